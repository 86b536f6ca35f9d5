//! A caller's pointer to something a driver call reads, as the driver treats it: NULL is allowed.
#![allow(unsafe_code, reason = "reads through the caller's pointers")]

/// What a driver call reads, as the caller passed it: the counterpart of [`Out`](crate::Out).
///
/// The caller promises what the driver's documentation asks of it: NULL, or an address that may be read as `T` for the
/// length of the call.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> std::fmt::Debug for In<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Copy> In<T> {
    /// Our own value in a caller's place; it must outlive the call it is passed to.
    pub fn from(value: &T) -> Self {
        Self(value)
    }

    /// What is there, or `None` for NULL.
    pub fn get(self) -> Option<T> {
        self.nth(0)
    }

    /// The element of this index in the caller's array, which is as long as the call says, or `None` for NULL.
    pub fn nth(self, index: usize) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        let element = self.0.wrapping_add(index);
        // SAFETY: not NULL, so the caller promises readable Ts (see the type's own docs).
        Some(unsafe { element.read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_reads_as_nothing_and_a_value_as_itself() {
        assert_eq!(In::<u64>(std::ptr::null()).get(), None);
        assert_eq!(In::from(&7_u64).get(), Some(7));
        assert_eq!(In([1_u64, 2, 3].as_ptr()).nth(2), Some(3));
    }
}
