//! The library on other systems than the build machine: an older glibc, musl, another architecture.
//!
//! `.ci/run` installs the packages that these tests need. A test without its package reports that and ends.

#[path = "../resolution/bench.rs"]
#[allow(dead_code, reason = "shared with the tests of resolution")]
mod bench;
mod elf;
mod machines;
mod other_libcs;
mod programs;
