//! Verbs that install, check and serve a machine, and the manual.

pub mod cdi;
pub mod checks;
pub mod complete;
pub mod doctor;
pub mod documents;
pub mod dra;
pub mod examples;
pub mod help;
pub mod init;
pub mod serve;
