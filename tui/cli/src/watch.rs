//! Verbs that show what is happening, and what happened.

pub mod advise;
pub mod audit;
pub mod events;
pub mod hosts;
pub mod metrics;
pub mod ps;
pub mod trace;
