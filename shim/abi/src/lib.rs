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
