//! Verbs that change settings of processes, groups and devices, and take changes back.

pub mod apply;
pub mod edits;
pub mod evictions;
pub mod export_config;
pub mod group;
pub mod kill;
pub mod pin;
pub mod policy;
pub mod quota;
pub mod share;
pub mod tune;
pub mod undo;
