//! The linker's own list of loaded objects, which debuggers read too: found without calling any function that a library in
//! front of libc may have replaced.
#![allow(unsafe_code, reason = "reads the linker's records")]

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::Elf64_Phdr;

use super::tables::{Dyn, Tables};

const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;

/// `struct r_debug`, as far as it is used.
#[repr(C)]
struct Debug {
    _version: c_int,
    first: *const Link,
}

/// `struct link_map`.
#[repr(C)]
struct Link {
    base: usize,
    _name: *const c_char,
    dynamic: *const Dyn,
    next: *const Link,
}

/// A function of the library of this name, which the program must have been started with: the list is not locked, and only
/// what comes behind it may go meanwhile.
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

/// The head of the list: the linker notes it in the main program, whose headers the kernel has named.
fn first() -> Option<*const Link> {
    // SAFETY: takes a number.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    // SAFETY: takes a number.
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
