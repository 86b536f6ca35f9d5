//! gpushare-top and gpushare: the dashboard and the control program.
//!
//! Both look at the same segments and edit them by the same road ([`edit`]): validate,
//! compare-and-swap, audit, acknowledgement. What a person reads and types is in [`text`]; the control program's verbs are in [`cli`], one file each.

#![forbid(unsafe_code)]

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
