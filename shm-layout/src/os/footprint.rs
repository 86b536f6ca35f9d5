//! Release of memory that only maps files. The kernel maps it again at the next access, and until then it costs nothing. Made
//! for a broker, which works for a moment and then waits for hours.

#![expect(
    unsafe_code,
    reason = "two calls of madvise, and a walk over what is loaded"
)]

use std::ffi::{c_int, c_void};

use memmap2::{MmapRaw, UncheckedAdvice};

/// Releases the memory of a segment's mapping; the bytes stay in the file.
pub(crate) fn let_go(map: &MmapRaw) {
    // SAFETY: a shared mapping of a file loses no byte by this, whoever reads or writes it meanwhile.
    let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
}

/// Releases the memory of the code and constants of the program and its libraries.
pub fn let_go_of_program() {
    // SAFETY: the callback takes what the linker hands it, keeps nothing of it, and does not panic.
    unsafe { libc::dl_iterate_phdr(Some(let_go_of_object), std::ptr::null_mut()) };
}

unsafe extern "C" fn let_go_of_object(
    object: *mut libc::dl_phdr_info,
    _: usize,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the linker hands a whole record.
    let object = unsafe { &*object };
    // SAFETY: and says how many headers it has.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let page = rustix::param::page_size();
    for header in headers {
        // Segments that may be written, or were during linking, differ from the file.
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let begin = object.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
        let end = begin.wrapping_add(header.p_memsz as usize);
        let begin = begin & !(page - 1);
        // SAFETY: pages of a file that no process has written: the next touch reads them again. The kernel's own object is no
        // such mapping, and it refuses.
        let _ = unsafe { libc::madvise(begin as *mut c_void, end - begin, libc::MADV_DONTNEED) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> u64 {
        let status = crate::os::procfs::text("/proc/self/status").expect("ours");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssFile:"));
        let number = line.and_then(|line| line.split_ascii_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }

    #[test]
    fn a_program_goes_on_without_its_pages_and_has_less_of_them() {
        let before = resident();
        let_go_of_program();
        let after = resident();
        assert!(after < before, "{before} kB, then {after} kB");
        // Code, constants and relocated tables that were not touched since.
        let text: Vec<String> = (0..100).map(|number| format!("{number:>5.2?}")).collect();
        assert_eq!(text[99], "   99");
        std::thread::spawn(|| ())
            .join()
            .expect("threads start still");
    }
}
