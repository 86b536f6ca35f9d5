//! The protocols, apart from where their words lie.
//!
//! Each takes references to atomics and knows nothing of segments, so that loom can try to break exactly the
//! code that runs in production.

pub mod account;
pub mod bell;
pub mod claim;
#[doc(hidden)]
pub mod crash;
pub mod memory_queue;
pub(crate) mod primitive;
pub mod seqlock;
pub mod turn;
