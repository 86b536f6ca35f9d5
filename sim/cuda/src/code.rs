//! Code: the images that a program loads, the modules made of them, and the linker. Nothing is compiled.

pub mod image;
pub mod jit;
pub mod link;
pub mod module;
