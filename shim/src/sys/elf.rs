//! Look-ups of symbols in loaded objects by their ELF tables.
//!
//! They find libc's own `dlsym`, `dlvsym` and `dlopen`, which cannot be looked up by name while the shim's exports
//! come first. They use no allocation, no TLS and no `dl*` call except libc's own `dl_iterate_phdr`, so they are safe
//! before constructors have run and in races at first use. A sanitizer's function of that name is not used: it looks
//! names up, and so calls the shim, before it is ready to be called.
#![allow(unsafe_code, reason = "reads the tables of loaded objects")]

pub mod at_fork;
mod link_map;
mod tables;

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*},
};

use libc::{Elf64_Phdr, dl_phdr_info};

use tables::{Dyn, Tables};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;

/// A loaded object, as `dl_iterate_phdr` shows it. It is valid while that call runs.
#[derive(Clone, Copy)]
pub struct Object {
    base: usize,
    name: *const c_char,
    headers: *const Elf64_Phdr,
    count: usize,
    /// The position in load order.
    pub index: usize,
}

/// Calls `visit` for each loaded object, in load order, until it returns a value. The linker's list is locked during
/// the visit: `visit` must not allocate, nor take any lock.
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
    let _visit = at_fork::Visit::begin();
    // SAFETY: `step` matches the type of `walk`.
    unsafe { libcs_own()(Some(step::<T>), std::ptr::from_mut(&mut walk).cast()) };
    walk.found
}

type Step = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Option<Step>, *mut c_void) -> c_int;

/// Returns libc's own `dl_iterate_phdr`, past any library before it; with musl, which has no soname, the linked one.
fn libcs_own() -> Iterate {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut found = FOUND.load(Relaxed);
    if found.is_null() {
        found = link_map::find(c"libc.so.6", c"dl_iterate_phdr")
            .unwrap_or(libc::dl_iterate_phdr as *mut c_void);
        FOUND.store(found, Relaxed);
    }
    // SAFETY: libc's function of this name has this type.
    unsafe { transmute::<*mut c_void, Iterate>(found) }
}

/// Returns true if an address lies in this library.
pub fn is_own(address: usize) -> bool {
    static START: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);
    // ORDER: Acquire pairs with the Release below; the start is visible.
    let mut end = END.load(Acquire);
    if end == 0 {
        let code = is_own as *const () as usize;
        let own = visit(|object| object.contains(code).then(|| object.span()));
        let (start, behind) = own.unwrap_or_default();
        START.store(start, Relaxed);
        // ORDER: Release publishes the start.
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

    /// Returns the path of the object; empty for the main program.
    pub fn path(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the string belongs to libc and lives as long as the object.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// Returns true if an address lies in one of the object's segments.
    pub fn contains(&self, address: usize) -> bool {
        self.headers().iter().any(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            header.p_type == PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
        })
    }

    /// Returns the first address of the segments, and the one after the last.
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

    /// Returns the address of the unwind table.
    pub fn unwind_table(&self) -> Option<usize> {
        let mut headers = self.headers().iter();
        let header = headers.find(|header| header.p_type == PT_GNU_EH_FRAME)?;
        Some(self.base.wrapping_add(header.p_vaddr as usize))
    }

    fn tables(&self) -> Tables {
        let mut headers = self.headers().iter();
        let header = headers.find(|header| header.p_type == PT_DYNAMIC);
        let dynamic = header.map_or(0, |header| self.base.wrapping_add(header.p_vaddr as usize));
        Tables {
            base: self.base,
            dynamic: dynamic as *const Dyn,
        }
    }

    /// Returns true if this is the object's DT_SONAME.
    pub fn is_called(&self, soname: &CStr) -> bool {
        self.tables().soname() == Some(soname)
    }

    /// Returns the address of a function that the object defines.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        self.tables().function(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_and_a_function_of_it_are_found() {
        let found = visit(|object| match object.is_called(c"libc.so.6") {
            true => object.function(c"getpid"),
            false => None,
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
