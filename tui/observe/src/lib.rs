//! What is happening on a machine, without a terminal.
//!
//! A [`source`] makes samples: from the segments and NVML, from a recording, from other machines. [`data`] is what follows from
//! the samples seen so far: lanes, rates, waits and who caused them. [`alerts`], [`why`] and [`advice`] make sentences of it;
//! [`rows`] are what [`filter`] chooses among; [`document`] is all of it as JSON, and [`metrics`] the same for Prometheus.

#![forbid(unsafe_code)]

pub mod advice;
pub mod alerts;
pub mod data;
pub mod document;
pub mod filter;
pub mod metrics;
pub mod rows;
pub mod source;
pub mod why;
