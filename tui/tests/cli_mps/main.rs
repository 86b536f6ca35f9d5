//! `gpushare mps`, and the programs that join it.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod control;
mod hostile;
mod join;
mod mix;
mod simulated;
mod support;
