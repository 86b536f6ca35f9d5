//! A caller's pointer to a driver call's input. As in the driver, NULL is allowed.
#![allow(unsafe_code, reason = "reads through the caller's pointers")]

/// An input of a driver call, as the caller passed it: the counterpart of [`Out`](crate::Out).
///
/// The driver's documentation binds the caller: the pointer is NULL, or an address that can be read as `T` during the call.
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
    /// Wraps a value of our own; it must outlive the call to which it is passed.
    pub fn from(value: &T) -> Self {
        Self(value)
    }

    /// Reads the value, or returns `None` for NULL.
    pub fn get(self) -> Option<T> {
        self.nth(0)
    }

    /// Reads the element with this index of the caller's array, or returns `None` for NULL. The array has the length that the
    /// call states.
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
