//! An object's dynamic section, and look-ups in the tables that it points to.
#![allow(unsafe_code, reason = "reads the tables of loaded objects")]

use std::ffi::{CStr, c_char, c_void};

use libc::Elf64_Sym;

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_DEBUG: i64 = 21;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

/// An entry of a dynamic section.
#[repr(C)]
pub struct Dyn {
    tag: i64,
    value: u64,
}

/// The tables of a loaded object. They are valid while the object is loaded.
#[derive(Clone, Copy)]
pub struct Tables {
    /// The difference between addresses in memory and in the file.
    pub base: usize,
    /// The dynamic section.
    pub dynamic: *const Dyn,
}

impl Tables {
    fn entry(&self, tag: i64) -> Option<u64> {
        let mut entry = self.dynamic;
        if entry.is_null() {
            return None;
        }
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

    /// Returns the address of a table. glibc has relocated the pointer in the dynamic section, musl has not.
    fn table(&self, tag: i64) -> Option<usize> {
        let value = self.entry(tag)? as usize;
        Some(if value < self.base {
            value.wrapping_add(self.base)
        } else {
            value
        })
    }

    /// Returns the DT_DEBUG value, which the linker stores in the main program.
    pub fn debug(&self) -> Option<usize> {
        let value = self.entry(DT_DEBUG)? as usize;
        (value != 0).then_some(value)
    }

    /// Returns the DT_SONAME.
    pub fn soname(&self) -> Option<&CStr> {
        let offset = self.entry(DT_SONAME)? as usize;
        let strings = self.table(DT_STRTAB)?;
        // SAFETY: an offset into the object's own string table.
        Some(unsafe { CStr::from_ptr((strings + offset) as *const c_char) })
    }

    /// Returns a function that the object defines, found by its GNU hash table.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        let hash = self.table(DT_GNU_HASH)?;
        let symbols = self.table(DT_SYMTAB)?;
        let strings = self.table(DT_STRTAB)?;
        let word = |index: usize| {
            // SAFETY: within the hash table, according to its header.
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
