//! Edits of the segments: their values, checks, records and undo.
//!
//! The control program and the dashboard edit in the same way: an [`Editor`] checks the change, makes it by
//! compare-and-swap, writes the [`audit`] log and waits for the acknowledgement. [`targets`] resolves what a user typed to
//! processes and devices; [`quota`], [`policy`], [`share`] and [`group`] read the values, [`manifest`] the file of
//! `gpushare apply`; [`preview`] predicts the effect of an edit.

#![forbid(unsafe_code)]

pub mod audit;
pub mod boot_settings;
pub mod broker_client;
pub mod change;
pub mod device_memory;
mod editor;
pub mod group;
mod installation;
pub mod manifest;
pub mod measured;
pub mod policy;
pub mod preview;
pub mod quota;
pub mod rule;
pub mod share;
pub mod targets;
pub mod trace;

pub use editor::{ACKNOWLEDGEMENT, Applied, EditFailure, EditRequest, Editor, set_aside, sound};
pub use installation::{Installation, SYSTEM_LOGS};
