//! The states of this process's threads, as the kernel reports them.

use std::fs;

/// Visits the ID of every thread. Returns `None` if the kernel does not list them all.
pub fn all(mut visit: impl FnMut(u32)) -> Option<()> {
    for task in fs::read_dir("/proc/self/task").ok()? {
        let name = task.ok()?.file_name();
        visit(name.to_str()?.parse().ok()?);
    }
    Some(())
}

/// Returns true if a thread runs, or waits only for a processor. An ended thread does not run.
pub fn is_running(tid: u32) -> bool {
    let stat = fs::read(format!("/proc/self/task/{tid}/stat"));
    stat.is_ok_and(|stat| state(&stat) == Some(b'R'))
}

/// Returns the state letter after the name, which may contain any bytes.
fn state(stat: &[u8]) -> Option<u8> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name_ends + 2).copied()
}

/// Returns true if a thread sleeps until another thread of this process wakes it: in a lock, at a condition, for
/// another's end. Returns false if the kernel does not report it.
pub fn waits_for_a_thread(tid: u32) -> bool {
    let call = fs::read_to_string(format!("/proc/self/task/{tid}/syscall"));
    call.is_ok_and(|call| {
        is_woken_by_a_thread(&call, |tid| {
            fs::exists(format!("/proc/self/task/{tid}")).is_ok_and(|exists| exists)
        })
    })
}

/// Returns true if a system call, given as its number and arguments, is a wait on a futex without a time limit: on a
/// private one, or on the ID of a thread that the kernel clears when that thread ends.
fn is_woken_by_a_thread(call: &str, is_a_thread: impl Fn(u32) -> bool) -> bool {
    let mut words = call.split_ascii_whitespace();
    let number: Option<libc::c_long> = words.next().and_then(|word| word.parse().ok());
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let arguments = (argument(), argument(), argument(), argument());
    let (Some(_), Some(operation), Some(value), Some(0)) = arguments else {
        return false;
    };
    let operation = operation as i32;
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    number == Some(libc::SYS_futex)
        && matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
        && (operation & libc::FUTEX_PRIVATE_FLAG != 0 || is_a_thread(value as u32))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;
    use crate::sys::own_thread;

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state(b"12 (a) R 1 2"), Some(b'R'));
        assert_eq!(state(b"12 (a) R (b) S 1 2"), Some(b'S'));
        assert_eq!(state(b"12"), None);
    }

    #[test]
    fn only_another_thread_ends_a_futex_without_a_time_limit() {
        let futex = |operation, value, timeout| {
            let number = libc::SYS_futex;
            let call =
                format!("{number} 0x7f00 {operation:#x} {value:#x} {timeout:#x} 0x0 0x0 0x1 0x2");
            is_woken_by_a_thread(&call, |tid| tid == 77)
        };
        assert!(futex(0x80, 2, 0) && futex(0x189, 0, 0));
        assert!(futex(0x109, 77, 0), "the end of a thread");
        assert!(!futex(0, 2, 0), "another process may share the word");
        assert!(!futex(0x80, 2, 0x7fff), "it wakes up by itself");
        assert!(!futex(0x81, 1, 0), "it wakes others");
        for other in ["running", "-1 0x1 0x2", "7 0x1 0x80 0x0 0x0", ""] {
            assert!(!is_woken_by_a_thread(other, |_| true), "{other}");
        }
    }

    #[test]
    fn a_thread_in_a_lock_is_told_from_one_that_sleeps() {
        let lock = Mutex::new(());
        let [locked, sleeps] = [const { AtomicU32::new(0) }; 2];
        let number_of = |thread: &AtomicU32| loop {
            match thread.load(Relaxed) {
                0 => std::thread::yield_now(),
                tid => break tid,
            }
        };
        let (held, time) = (lock.lock().expect("ours"), Duration::from_millis(300));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                locked.store(own_thread::id(), Relaxed);
                drop(lock.lock());
            });
            scope.spawn(|| {
                sleeps.store(own_thread::id(), Relaxed);
                std::thread::sleep(time);
            });
            let (locked, sleeps) = (number_of(&locked), number_of(&sleeps));
            while !waits_for_a_thread(locked) {
                std::thread::yield_now();
            }
            assert!(!waits_for_a_thread(sleeps) && is_running(own_thread::id()));
            // A thread that ends meanwhile, as those of other tests do, may hide another one from the kernel's list.
            let sees_both = || {
                let mut seen = Vec::new();
                assert_eq!(all(|tid| seen.push(tid)), Some(()));
                seen.contains(&locked) && seen.contains(&own_thread::id())
            };
            assert!((0..100).any(|_| sees_both()));
            drop(held);
        });
    }
}
