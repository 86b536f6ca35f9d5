//! Looking a symbol up in a loaded object by reading its ELF tables.
//!
//! Needed once, for libc's own `dlsym`, `dlvsym` and `dlopen`: they cannot be asked for by name any more
//! once we stand in front of them. No allocation, no TLS, no `dl*` call but `dl_iterate_phdr`: safe before
//! constructors have run and in races at first use.
#![allow(unsafe_code, reason = "reads the tables of loaded objects")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::atomic::{AtomicUsize, Ordering::*},
};

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

#[repr(C)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// A loaded object, as `dl_iterate_phdr` shows it. Valid while that call runs.
#[derive(Clone, Copy)]
pub struct Object {
    base: usize,
    name: *const c_char,
    headers: *const Elf64_Phdr,
    count: usize,
    /// Its place in load order.
    pub index: usize,
}

/// Calls `visit` for each loaded object, in load order, until it returns something. The linker's list is locked
/// meanwhile: `visit` must not allocate, nor take any lock.
pub fn visit<T>(mut visit: impl FnMut(Object) -> Option<T>) -> Option<T> {
    struct Walk<'v, T> {
        visit: &'v mut dyn FnMut(Object) -> Option<T>,
        index: usize,
        found: Option<T>,
    }

    unsafe extern "C" fn step<T>(
        info: *mut dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: libc passes a valid record for the length of the call.
        let info = unsafe { &*info };
        // SAFETY: `data` is the walk of the frame that called dl_iterate_phdr.
        let walk = unsafe { &mut *data.cast::<Walk<'_, T>>() };
        let object = Object {
            base: info.dlpi_addr as usize,
            name: info.dlpi_name,
            headers: info.dlpi_phdr,
            count: usize::from(info.dlpi_phnum),
            index: walk.index,
        };
        walk.index += 1;
        walk.found = (walk.visit)(object);
        c_int::from(walk.found.is_some())
    }

    let mut walk = Walk {
        visit: &mut visit,
        index: 0,
        found: None,
    };
    // SAFETY: `step` matches the type `walk` has.
    unsafe { libc::dl_iterate_phdr(Some(step::<T>), std::ptr::from_mut(&mut walk).cast()) };
    walk.found
}

/// Whether an address lies in this library.
pub fn is_own(address: usize) -> bool {
    static START: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);
    // ORDER: pairs with the Release below; the start is there.
    let mut end = END.load(Acquire);
    if end == 0 {
        let code = is_own as *const () as usize;
        let own = visit(|object| object.contains(code).then(|| object.span()));
        let (start, behind) = own.unwrap_or_default();
        START.store(start, Relaxed);
        // ORDER: publishes the start.
        END.store(behind, Release);
        end = behind;
    }
    (START.load(Relaxed)..end).contains(&address)
}

impl Object {
    fn headers(&self) -> &[Elf64_Phdr] {
        // SAFETY: libc shows `count` headers that stay mapped while the object is loaded.
        unsafe { std::slice::from_raw_parts(self.headers, self.count) }
    }

    /// The path it was loaded from; empty for the main program.
    pub fn path(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: libc's own string, which lives as long as the object.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// Whether an address lies in one of its segments.
    pub fn contains(&self, address: usize) -> bool {
        self.headers().iter().any(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            header.p_type == PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
        })
    }

    /// The first address of its segments, and the one behind the last.
    pub fn span(&self) -> (usize, usize) {
        let loads = || {
            self.headers()
                .iter()
                .filter(|header| header.p_type == PT_LOAD)
        };
        let start = loads().map(|header| header.p_vaddr as usize).min();
        let end = loads()
            .map(|header| (header.p_vaddr + header.p_memsz) as usize)
            .max();
        (
            self.base.wrapping_add(start.unwrap_or(0)),
            self.base.wrapping_add(end.unwrap_or(0)),
        )
    }

    /// Where its unwind table begins.
    pub fn unwind_table(&self) -> Option<usize> {
        let mut headers = self.headers().iter();
        let header = headers.find(|header| header.p_type == PT_GNU_EH_FRAME)?;
        Some(self.base.wrapping_add(header.p_vaddr as usize))
    }

    /// An entry of its dynamic section.
    fn dynamic(&self, tag: i64) -> Option<u64> {
        let header = self
            .headers()
            .iter()
            .find(|header| header.p_type == PT_DYNAMIC)?;
        let mut entry = self.base.wrapping_add(header.p_vaddr as usize) as *const Dyn;
        loop {
            // SAFETY: the dynamic section is mapped and ends with a null tag.
            let here = unsafe { &*entry };
            match here.tag {
                0 => return None,
                found if found == tag => return Some(here.value),
                _ => entry = entry.wrapping_add(1),
            }
        }
    }

    /// A table its dynamic section points to. glibc has relocated the pointer, musl has not.
    fn table(&self, tag: i64) -> Option<usize> {
        let value = self.dynamic(tag)? as usize;
        Some(if value < self.base {
            value.wrapping_add(self.base)
        } else {
            value
        })
    }

    /// Its DT_SONAME.
    pub fn soname(&self) -> Option<&CStr> {
        let offset = self.dynamic(DT_SONAME)? as usize;
        let strings = self.table(DT_STRTAB)?;
        // SAFETY: an offset into the object's own string table.
        Some(unsafe { CStr::from_ptr((strings + offset) as *const c_char) })
    }

    /// A function it defines, found by its GNU hash table.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        let hash = self.table(DT_GNU_HASH)?;
        let symbols = self.table(DT_SYMTAB)?;
        let strings = self.table(DT_STRTAB)?;
        let word = |index: usize| {
            // SAFETY: within the hash table, as its own header says.
            unsafe { *(hash as *const u32).wrapping_add(index) }
        };
        let (buckets, first, bloom) = (word(0) as usize, word(1) as usize, word(2) as usize);
        if buckets == 0 {
            return None;
        }
        let wanted = gnu_hash(name.to_bytes());
        let bucket_words = 4 + bloom * 2;
        let chain_words = bucket_words + buckets;
        let mut index = word(bucket_words + wanted as usize % buckets) as usize;
        if index < first {
            return None;
        }
        loop {
            let chained = word(chain_words + index - first);
            if chained | 1 == wanted | 1 {
                // SAFETY: the chain's indices are those of the symbol table.
                let symbol = unsafe { &*(symbols as *const Elf64_Sym).wrapping_add(index) };
                // SAFETY: an offset into the object's own string table.
                let found =
                    unsafe { CStr::from_ptr((strings + symbol.st_name as usize) as *const c_char) };
                if found == name && symbol.st_shndx != 0 && symbol.st_info & 0xf == STT_FUNC {
                    return Some(self.base.wrapping_add(symbol.st_value as usize) as *mut c_void);
                }
            }
            if chained & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_and_a_function_of_it_are_found() {
        let found = visit(|object| {
            let ours = object.soname()?.to_bytes().starts_with(b"libc.");
            if ours {
                object.function(c"getpid")
            } else {
                None
            }
        });
        assert_eq!(found, Some(libc::getpid as *mut c_void));
    }

    #[test]
    fn the_object_of_an_address_is_found() {
        let here = the_object_of_an_address_is_found as *const () as usize;
        let path = visit(|object| object.contains(here).then(|| object.path().to_owned()));
        assert_eq!(path.as_deref(), Some(c""), "the main program has no path");
    }
}
