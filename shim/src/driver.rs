//! The driver's own functions: what the table says of them, where they are, and typed calls of them.

pub mod addresses;
pub mod call;
#[cfg(debug_assertions)]
pub mod checked;
pub mod library;
pub mod symbols;

pub use symbols::Symbol;
