//! NVML's return codes.
//!
//! [`NvmlReturn`] has the C ABI of `nvmlReturn_t`, because a [`Fault`] is never zero.

use std::ffi::CStr;
use std::num::NonZeroU32;

pub(crate) type NvmlReturn = Result<(), Fault>;

#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault(NonZeroU32);

const _: () = assert!(size_of::<NvmlReturn>() == 4);

macro_rules! faults {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(pub(crate) const $name: Fault = match NonZeroU32::new($code) {
            Some(code) => Fault(code),
            None => panic!("an error code is never zero"),
        };)*

        /// Returns the text of `nvmlErrorString` for a code.
        pub(crate) fn text(code: u32) -> &'static CStr {
            match code {
                0 => c"Success",
                $($code => $text,)*
                _ => c"Unknown Error",
            }
        }
    };
}

faults! {
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    GPU_IS_LOST = 15, c"GPU is lost";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument Version Mismatch";
    UNKNOWN = 999, c"Unknown Error";
}
