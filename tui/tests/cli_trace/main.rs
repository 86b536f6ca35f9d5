//! `gpushare trace` on the simulated GPU: started and stopped while a workload runs, and shown in every format.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod forms;
mod hostile;
mod run;
mod support;
mod wrong;
