//! The text of settings: one grammar for the command line, the dashboard's dialogs and the environment of a workload.

pub use crate::grammar::*;
pub use crate::policy::{PolicyEdit, parse_policy, policy_words};
pub use crate::value::{Amount, MemoryList, in_bytes, parse_amount, parse_memory_list};
