//! The protocols, apart from where their words lie.
//!
//! Each takes references to atomics and knows nothing of segments, so that loom can try to break exactly the
//! code that runs in production.

pub mod account;
pub mod bell;
pub mod claim;
pub mod line;
pub mod seqlock;
pub mod turn;
