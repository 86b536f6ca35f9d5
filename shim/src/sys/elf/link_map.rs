//! The linker's own list of loaded objects, which debuggers read too. It is found without a call of any function that
//! a library before libc may have replaced.
#![allow(unsafe_code, reason = "reads the linker's records")]

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::Elf64_Phdr;

use super::tables::{Dyn, Tables};

const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;

/// The used part of `struct r_debug`.
#[repr(C)]
struct Debug {
    _version: c_int,
    first: *const Link,
}

/// The C type `struct link_map`.
#[repr(C)]
struct Link {
    base: usize,
    _name: *const c_char,
    dynamic: *const Dyn,
    next: *const Link,
}

/// Returns a function of the library with this soname, which must have been loaded at the program's start: the list
/// is not locked, and only objects after those may be removed at the same time.
pub fn find(soname: &CStr, function: &CStr) -> Option<*mut c_void> {
    let mut next = first()?;
    loop {
        // SAFETY: the linker's own record, or the end of the list.
        let link = unsafe { next.as_ref() }?;
        let tables = Tables {
            base: link.base,
            dynamic: link.dynamic,
        };
        if tables.soname() == Some(soname) {
            return tables.function(function);
        }
        next = link.next;
    }
}

/// Returns the head of the list. The linker stores it in the main program, whose headers the kernel provides.
fn first() -> Option<*const Link> {
    // SAFETY: the argument is a number.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    // SAFETY: the argument is a number.
    let count = unsafe { libc::getauxval(libc::AT_PHNUM) } as usize;
    if headers == 0 {
        return None;
    }
    let program = headers as *const Elf64_Phdr;
    // SAFETY: the kernel's count of the headers of the main program, which stay mapped.
    let program = unsafe { std::slice::from_raw_parts(program, count) };
    let address = |kind: u32| {
        let header = program.iter().find(|header| header.p_type == kind)?;
        Some(header.p_vaddr as usize)
    };
    let base = headers.wrapping_sub(address(PT_PHDR)?);
    let dynamic = base.wrapping_add(address(PT_DYNAMIC)?) as *const Dyn;
    let debug = Tables { base, dynamic }.debug()? as *const Debug;
    // SAFETY: the linker's own record, which lives as long as the process.
    Some(unsafe { (*debug).first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_libc_is_found_without_a_call() {
        let found = find(c"libc.so.6", c"getpid");
        assert_eq!(found, Some(libc::getpid as *mut c_void));
        assert_eq!(find(c"libc.so.6", c"no_such_function"), None);
        assert_eq!(find(c"no-such-library.so", c"getpid"), None);
    }
}
