//! Tests of the lock on the real words, with a clock that the test holds.

mod disorder;
pub(super) mod pair;
mod schedule;
