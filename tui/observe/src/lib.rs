//! What is happening on a machine, without a terminal.
//!
//! A [`source`] makes samples: from the segments and NVML, from a recording, from other machines. [`data`] is what follows from
//! the samples seen so far: lanes, rates, waits and who caused them. [`alerts`], [`why`] and [`advice`] make sentences of it, and
//! [`filter`] chooses among its rows.

#![forbid(unsafe_code)]

pub mod advice;
pub mod alerts;
pub mod data;
pub mod filter;
pub mod source;
pub mod why;
