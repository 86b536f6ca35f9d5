//! gpushare-top and gpushare: the dashboard and the control program.
//!
//! Both read the same segments and edit them in the same way ([`edit`]): validate, compare-and-swap, audit,
//! acknowledgement. What a user reads and types is in [`text`]; each verb of the control program is one file in [`cli`].
//!
//! # Floors
//!
//! A module uses what stands below it; `tests/floors.rs` holds it to that.
//!
//! ```text
//! cli        cli                  the control program: one file for each verb
//! programs   doctor, top          what the verbs start: the checks, the dashboard and its figures for Prometheus
//! broker     broker               what one process does for a machine of many users
//! work       traces, workload     traces as files; programs started under gpushare
//! advice     advice               which policy would serve better
//! source     source               where samples come from
//! edit       edit                 edits of the segments
//! sample     sample               everything known at one moment, its columns and its JSON
//! host       host                 processes, ELF files, installed libraries
//! text       text                 units, names of users and devices, exit codes
//! ```

#![forbid(unsafe_code)]

pub mod advice;
pub mod broker;
pub mod cli;
pub mod doctor;
pub mod edit;
pub mod host;
pub mod sample;
pub mod source;
pub mod text;
pub mod top;
pub mod traces;
pub mod workload;
