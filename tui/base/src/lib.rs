//! Units, names, users, exit codes ([`text`]); processes, ELF files, installed libraries ([`host`]).

#![forbid(unsafe_code)]

pub mod host;
pub mod text;
