//! The arguments of C callers: pointers that may be NULL, strings, arrays.
//!
//! The types here stand for raw pointers in the exported signatures. Reading or writing through them checks for NULL
//! and returns `CUDA_ERROR_INVALID_VALUE`, as the driver does. A pointer that is not NULL must be valid; the driver's
//! documentation requires that of the caller.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult};
use gpushare_abi::types::CUstream;

/// A pointer to the place of a result.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(pub *mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Checks the pointer; NULL is an invalid value.
    pub fn check(self) -> CUresult {
        if self.0.is_null() {
            Err(CUDA_ERROR_INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// Writes the result; NULL is an invalid value.
    pub fn set(self, value: T) -> CUresult {
        self.check()?;
        // SAFETY: not NULL, and the caller promised room for a T.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result if it is wanted.
    pub fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Writes the result at `index` of an array; the caller of this function knows its length.
    pub fn set_at(self, index: usize, value: T) -> CUresult {
        Out(self
            .0
            .wrapping_add(if self.0.is_null() { 0 } else { index }))
        .set(value)
    }

    /// Returns true if the caller wants no result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the same pointer, to read from.
    pub fn input(self) -> In<T> {
        In(self.0)
    }
}

/// A pointer to an argument to be read.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(pub *const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// Reads the argument; NULL is an invalid value.
    pub fn get(self) -> Result<T, CUerror> {
        self.at(0)
    }

    /// Reads element `index` of an array.
    pub fn at(self, index: usize) -> Result<T, CUerror> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let element = self.0.wrapping_add(index);
        // SAFETY: not NULL, and the caller promised that many elements.
        Ok(unsafe { element.read_unaligned() })
    }

    /// Reads an array of `count` elements; NULL is valid only for none.
    pub fn all(self, count: usize) -> Result<Vec<T>, CUerror> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

impl<T> In<T> {
    /// Returns true if the caller passes no argument.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A string that ends in NUL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(pub *const c_char);

impl Text {
    /// Reads the string; NULL is an invalid value.
    pub fn get(self) -> Result<String, CUerror> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not NULL, and the caller promised a string.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// A C struct kept as it was passed. Its pointers belong to the application: they are returned, not followed.
#[derive(Clone, Copy)]
pub struct Plain<T>(pub T);

impl<T> std::fmt::Debug for Plain<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::any::type_name::<T>())
    }
}

// SAFETY: the pointers in it are not followed, so they are plain numbers here.
unsafe impl<T> Send for Plain<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Plain<T> {}

/// Writes a string, truncated to `length` bytes with its NUL.
pub fn put_text(room: Out<c_char>, length: i32, text: &str) -> CUresult {
    let length = usize::try_from(length).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    room.check()?;
    if length == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = text.bytes().take(length - 1).chain([0]);
    for (index, byte) in bytes.enumerate() {
        room.set_at(index, byte as c_char)?;
    }
    Ok(())
}

/// Reads bytes at an address: a device address of [`crate::memory::heap`], or host memory that the caller passed for
/// a copy.
pub fn read_bytes(address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    copy_bytes(bytes.as_mut_ptr() as u64, address, count);
    bytes
}

/// Copies bytes from one such address to another; they may overlap.
pub fn copy_bytes(to: u64, from: u64, count: usize) {
    if count > 0 {
        // SAFETY: both ranges were checked against the heap or promised by the caller of the copy.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, count) };
    }
}

/// Fills `count` elements from an address of the heap, which is aligned for them.
pub fn fill<T: Copy>(to: u64, value: T, count: usize) {
    // SAFETY: the range was checked against the heap, and its alignment too.
    let elements = unsafe { std::slice::from_raw_parts_mut(to as *mut T, count) };
    elements.fill(value);
}

/// Calls a host function that the application queued.
pub fn call_host(function: unsafe extern "C" fn(*mut c_void), data: u64) {
    // SAFETY: the application queued both to be called together.
    unsafe { function(data as *mut c_void) };
}

/// Calls a stream callback that the application queued.
pub fn call_back(
    function: unsafe extern "C" fn(CUstream, u32, *mut c_void),
    stream: u64,
    data: u64,
) {
    // SAFETY: the application queued them to be called together.
    unsafe { function(stream as CUstream, 0, data as *mut c_void) };
}
