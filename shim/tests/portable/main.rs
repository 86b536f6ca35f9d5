//! The library on other systems than the one it was built on: an older glibc, musl, another machine.
//!
//! What a test needs comes from packages that `.ci/run` installs; where they are missing it says so and is done.

#[path = "../resolution/bench.rs"]
#[allow(dead_code, reason = "shared with the tests of resolution")]
mod bench;
mod elf;
mod machines;
mod other_libcs;
mod programs;
