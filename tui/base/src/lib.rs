//! Units, names, users, exit codes ([`text`]); processes, ELF files, installed libraries ([`host`]); the [`median`].

#![deny(unsafe_code)]

pub mod host;
pub mod median;
pub mod text;
