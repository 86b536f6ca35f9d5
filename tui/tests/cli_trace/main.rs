//! `gpushare trace` on the simulated GPU: begun and ended while a workload runs, and read in every form.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod forms;
mod hostile;
mod run;
mod support;
mod wrong;
