//! Observation of a machine, without a terminal.
//!
//! A [`source`] makes samples: from the segments and NVML, from a recording, or from other machines. [`data`] is
//! derived from the samples seen so far: lanes, rates, waits and their causes. The table of [`findings`] draws
//! conclusions from it, each a [`finding`] in sentences; [`marks`] are the moments at which one began. [`between`] two samples the
//! events tell more. [`filter`] chooses among [`rows`]. [`document`] is all of it as JSON, and [`metrics`] is
//! the document for Prometheus. [`http`] serves such pages.

#![forbid(unsafe_code)]

pub mod between;
pub mod data;
pub mod document;
pub mod evidence;
pub mod filter;
pub mod finding;
pub mod findings;
pub mod http;
pub mod marks;
pub mod metrics;
pub mod rhythm;
pub mod rows;
pub mod source;
pub mod tune;
pub mod what_if;
