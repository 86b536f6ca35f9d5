//! How threads agree by plain words. Each file is compiled a second time with loom's words, and loom tries to break it.

pub mod quiescence;
pub mod residence;
pub mod submission;
