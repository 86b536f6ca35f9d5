//! The dashboard in a real terminal: it edits running processes, and after every kind of end the terminal is as it was.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod damage;
mod edits;
mod endings;
mod hosts;
mod past;
mod session;
