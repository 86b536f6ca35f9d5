//! What a run of the workload comes to.

use std::fmt;

use serde::Serialize;

/// The numbers of one run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub schema_version: u32,
    pub device: String,
    pub elapsed_ns: u64,
    pub launches: u64,
    pub synchronizations: u64,
    pub allocations: u64,
    /// Allocations that were refused with `CUDA_ERROR_OUT_OF_MEMORY`.
    pub refusals: u64,
    /// The most memory held at one time.
    pub peak_bytes: u64,
    /// The longest time from a burst's first launch to its end: its own work and all the waiting.
    pub longest_burst_ns: u64,
    pub free_bytes: u64,
    pub total_bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed_ns as f64 / 1e9;
        write!(
            f,
            "{}: {} launches in {seconds:.1} s ({:.0}/s), longest burst {:.1} ms, {} allocations, \
             {} refused, peak {} MiB",
            self.device,
            self.launches,
            self.launches as f64 / seconds.max(1e-9),
            self.longest_burst_ns as f64 / 1e6,
            self.allocations,
            self.refusals,
            self.peak_bytes >> 20,
        )
    }
}
