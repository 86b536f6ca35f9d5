//! The CUDA driver's C types, and the table of hooked functions.
//!
//! [`types`] and [`errors`] are the driver's types and codes. Hooks read and write through a caller's pointers with [`In`] and
//! [`Out`]. [`driver_table!`] declares each function that is hooked or called exactly once. Exports, real pointers, the call
//! enum and the `cuGetProcAddress` index are derived from it by the macros to which it is passed. [`chunk_hash`] is the one kernel
//! that the library itself runs. [`resource_manager`] has the records of the requests to the kernel module below the driver.

pub mod argument;
pub mod chunk_hash;
pub mod errors;
pub mod resource_manager;
mod table;
pub mod types;

pub use argument::{Amount, In, Out};
pub use table::{LEFT_OUT, LeftOut, Query, query_of};

/// Returns the number by which an event identifies a driver function. It is a hash of the exported name, so it is the same for
/// every version of the table. `u16::MAX` is reserved for "no function".
pub const fn call_code(name: &str) -> u16 {
    let bytes = name.as_bytes();
    // A start value for which no two functions of the table have the same number.
    let mut hash = 3_u32;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    match (hash ^ (hash >> 16)) as u16 {
        u16::MAX => 0,
        code => code,
    }
}
