//! A device as a sample shows it: NVML's numbers beside the lock's.

use serde::{Deserialize, Serialize};
use shm_layout::{Histogram, LockPolicy, SlotId};

/// One GPU or MIG instance. `None` means that its source does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSample {
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// The product name.
    pub name: String,
    /// Is it the simulator's?
    pub sim: bool,
    /// Is it a MIG instance?
    pub mig: bool,
    /// Its index in the segment, when a managed process uses it.
    pub segment_index: Option<u8>,
    /// Memory it has.
    pub total_bytes: u64,
    /// Memory in use by NVML's count, driver overhead included.
    pub used_bytes: Option<u64>,
    /// Share of time with a kernel running.
    pub util_percent: Option<u32>,
    /// Share of time the memory was read or written.
    pub mem_util_percent: Option<u32>,
    /// Power drawn, milliwatts.
    pub power_mw: Option<u32>,
    /// Power limit, milliwatts.
    pub power_limit_mw: Option<u32>,
    /// Degrees Celsius.
    pub temperature_c: Option<u32>,
    /// SM clock in MHz.
    pub clock_mhz: Option<u32>,
    /// Performance state, 0 is fastest.
    pub pstate: Option<u8>,
    /// Who holds the lock.
    pub owner: Option<SlotId>,
    /// Since when.
    pub owner_since_ns: u64,
    /// Who waits for it.
    pub waiters: Vec<SlotId>,
    /// When a holder must yield, and who is next.
    pub policy: LockPolicy,
    /// Who set it: `default`, `operator`, `environment` …
    pub policy_source: String,
    /// Bytes that all processes together may hold.
    pub limit_bytes: Option<u64>,
    /// Times the lock went from one process to another.
    pub handoffs: u64,
    /// Times it was taken from a holder that did not yield.
    pub forced: u64,
    /// Times it was taken over from a holder that had died.
    pub takeovers: u64,
    /// How long the latest hand-off took.
    pub last_handoff_ns: u64,
    /// How long hand-offs took, from the release to the next holder running.
    pub handoff_hist: Histogram,
    /// Times two holders were seen at once: always 0, or gpushare has a bug.
    pub violations: u64,
    /// Claims of `gpushare pick` in force.
    pub picks: u32,
}

impl DeviceSample {
    /// The name without the vendor's prefix, as short as a header wants it.
    pub fn short_name(&self) -> &str {
        self.name.strip_prefix("NVIDIA ").unwrap_or(&self.name)
    }
}
