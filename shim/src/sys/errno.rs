//! The caller's `errno`: our own work leaves it as the caller, or the driver, left it.
#![allow(unsafe_code, reason = "libc keeps the number")]

use std::{cell::Cell, ffi::c_int};

/// What `errno` was; it is that again when this is dropped.
pub struct Errno {
    place: *mut c_int,
    value: Cell<c_int>,
}

impl Errno {
    /// As it is now, in this thread.
    #[inline(always)]
    pub fn keep() -> Self {
        // SAFETY: takes nothing; the place is this thread's as long as the thread lives.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: this thread's own number.
        let value = unsafe { *place };
        Self {
            place,
            value: Cell::new(value),
        }
    }

    /// Calls the driver: it finds `errno` as the caller left it, and what it leaves is what is kept from here on.
    #[inline(always)]
    pub fn around<T>(&self, driver: impl FnOnce() -> T) -> T {
        self.put_back();
        let answer = driver();
        // SAFETY: this thread's own number; a call of the driver ends in the thread it began in.
        self.value.set(unsafe { *self.place });
        answer
    }

    #[inline(always)]
    fn put_back(&self) {
        // SAFETY: this thread's own number.
        unsafe { *self.place = self.value.get() };
    }
}

impl Drop for Errno {
    #[inline(always)]
    fn drop(&mut self) {
        self.put_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: c_int) {
        let errno = Errno::keep();
        errno.value.set(value);
    }

    fn now() -> c_int {
        Errno::keep().value.get()
    }

    #[test]
    fn our_own_work_leaves_it_and_the_drivers_shows() {
        set(7);
        {
            let errno = Errno::keep();
            set(1);
            errno.around(|| {
                assert_eq!(now(), 7);
                set(9);
            });
            set(2);
        }
        assert_eq!(now(), 9);
        {
            let _errno = Errno::keep();
            set(3);
        }
        assert_eq!(now(), 9);
    }
}
