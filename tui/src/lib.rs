//! gpushare-top and gpushare: the dashboard and the control program.
//!
//! Both look at the same segments and edit them by the same road ([`edits`]): validate,
//! compare-and-swap, audit, acknowledgement. What a person reads and types is in [`units`],
//! [`uuids`] and [`exit`]; the control program's verbs are in [`cli`], one file each.

#![forbid(unsafe_code)]

pub mod artifacts;
pub mod audit;
pub mod calls;
pub mod cli;
pub mod demo;
pub mod doctor;
pub mod edits;
pub mod elf;
pub mod environment;
pub mod exit;
pub mod experiment;
pub mod launch;
pub mod manifest;
pub mod people;
pub mod picking;
pub mod pids;
pub mod plain;
pub mod probe;
pub mod processes;
pub mod sample;
pub mod source;
pub mod stage;
pub mod targets;
pub mod top;
pub mod traces;
pub mod units;
pub mod uuids;
pub mod wrapping;
