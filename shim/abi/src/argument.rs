//! The arguments of a call: a caller's pointers to results and inputs, and sizes of either width. As in the driver, NULL is
//! allowed; for a result it means "not wanted".
#![allow(unsafe_code, reason = "reads and writes through the caller's pointers")]

/// A place for a result of a driver call, as the caller passed it.
///
/// The driver's documentation binds the caller: the pointer is NULL, or an address that can be read and written as `T` during
/// the call. A caller that passes another pointer crashes in the driver too, so the hooks may rely on it.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> std::fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Copy> Out<T> {
    /// Wraps a variable of our own; it must outlive the call to which it is passed.
    pub fn to(place: &mut T) -> Self {
        Self(place)
    }

    /// The NULL pointer: no result is wanted.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// Returns true if the caller wants no result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads the value, or returns `None` for NULL.
    pub fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL, so the caller promises a readable T (see the type's own docs).
        Some(unsafe { self.0.read_unaligned() })
    }

    /// Writes a result; does nothing for NULL.
    pub fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not NULL, so the caller promises a writable T (see the type's own docs).
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Returns the pointer.
    pub fn as_ptr(self) -> *mut T {
        self.0
    }
}

/// An input of a driver call, as the caller passed it: the counterpart of [`Out`].
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

/// A size or an address of either width.
pub trait Amount: Copy {
    /// Returns the number, 64 bits wide.
    fn wide(self) -> u64;

    /// Converts back to this width; the number must fit.
    fn narrow(wide: u64) -> Self;
}

impl Amount for u32 {
    fn wide(self) -> u64 {
        self.into()
    }

    fn narrow(wide: u64) -> Self {
        wide as u32
    }
}

impl Amount for u64 {
    fn wide(self) -> u64 {
        self
    }

    fn narrow(wide: u64) -> Self {
        wide
    }
}

impl Amount for usize {
    fn wide(self) -> u64 {
        self as u64
    }

    fn narrow(wide: u64) -> Self {
        wide as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_reads_as_nothing_and_swallows_writes() {
        assert_eq!(Out::<u64>::NULL.get(), None);
        Out::<u64>::NULL.set(7);
    }

    #[test]
    fn a_place_is_read_and_written() {
        let mut place = 1_u64;
        let out = Out::to(&mut place);
        out.set(out.get().unwrap() + 1);
        assert_eq!(place, 2);
    }
}

#[cfg(test)]
mod input_tests {
    use super::*;

    #[test]
    fn null_reads_as_nothing_and_a_value_as_itself() {
        assert_eq!(In::<u64>(std::ptr::null()).get(), None);
        assert_eq!(In::from(&7_u64).get(), Some(7));
        assert_eq!(In([1_u64, 2, 3].as_ptr()).nth(2), Some(3));
    }
}
