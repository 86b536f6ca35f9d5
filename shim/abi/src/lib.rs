//! The CUDA driver's C types and the one table of hooked functions.
//!
//! [`types`] and [`errors`] are the driver's own vocabulary, [`In`] and [`Out`] are how a hook reads and
//! writes through a caller's pointers, and [`driver_table!`] declares each function we hook or call
//! exactly once: exports, real pointers, the call enum and the `cuGetProcAddress` index are derived
//! from it by the macros it is handed to.

pub mod amount;
pub mod errors;
pub mod input;
pub mod out;
mod table;
pub mod types;

pub use amount::Amount;
pub use input::In;
pub use out::Out;
pub use table::{LEFT_OUT, LeftOut};

/// The number by which an event names a driver function: made from the exported name, so that it means the same
/// whichever version of the table wrote it. `u16::MAX` stays free for "no function".
pub const fn call_code(name: &str) -> u16 {
    let bytes = name.as_bytes();
    // A start from which no two functions of the table end up with one number.
    let mut hash = 1_u32;
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
