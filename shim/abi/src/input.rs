//! A caller's pointer to something a driver call reads, with the driver's own manners: NULL is allowed.
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
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL, so the caller promises a readable T (see the type's own docs).
        Some(unsafe { self.0.read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_reads_as_nothing_and_a_value_as_itself() {
        assert_eq!(In::<u64>(std::ptr::null()).get(), None);
        assert_eq!(In::from(&7_u64).get(), Some(7));
    }
}
