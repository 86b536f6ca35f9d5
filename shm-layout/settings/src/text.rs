//! The text of settings: one grammar for the command line, the dashboard's dialogs and the environment of a workload.

pub use crate::grammar::*;
pub use crate::value::{
    Amount, MemoryList, POLICY_FIELDS, PolicyEdit, PolicyField, format_idle, format_policy,
    in_bytes, parse_amount, parse_memory_list, parse_policy,
};
