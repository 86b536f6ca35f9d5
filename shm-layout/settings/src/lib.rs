//! The settings of gpushare: the values, their text in both directions, the edits that change them, the rules that apply them
//! to every matching process, and the environment variables that ask for them at a launch.
//!
//! Everything here is a pure function of its arguments, except [`Environment::of_self`](environment::Environment::of_self),
//! which reads the environment, and `PFLOG`, whose directory is looked up. There are no atomics, no mappings and no `unsafe`
//! code. The crate lives in other people's processes and has no dependency; with the feature `serde`, for the tools, a
//! value can be written to a file and read back in the words that a person would type.
//!
//! # Layers
//!
//! ```text
//! faces      text                what people type and read back
//! launch     environment         what the variables of a launch ask for
//! names      variables           the environment variables by name
//! edits      change, launch      what changes settings, and what a launch asks for
//! rules      rule                which processes a rule is for
//! tables     table, policy       the settings of a process, and those of a lock
//! values     value               the types of what can be set
//! rows       row                 what a row of the table says
//! grammar    grammar             sizes, spans of time, numbers and labels
//! ```

#![forbid(unsafe_code)]

mod change;
pub mod environment;
mod grammar;
mod launch;
pub mod policy;
pub mod row;
mod rule;
pub mod table;
pub mod text;
pub mod value;
pub mod variables;

pub use change::{Change, Edit, OneQuota};
pub use launch::{Gang, LaunchLimits, MemoryLimit};
pub use rule::{Rule, Traits};
pub use table::{
    DeviceEdit, DeviceRecord, GroupEdit, GroupRecord, LaunchShare, Pace, SETTINGS, SettingEdit,
    SettingValues, Share, ShareEdit, ShareSettings, Sources,
};
