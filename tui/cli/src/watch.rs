//! Verbs that show the present state and past events.

pub mod advise;
pub mod audit;
pub mod events;
pub mod hosts;
pub mod metrics;
pub mod ps;
pub mod trace;
