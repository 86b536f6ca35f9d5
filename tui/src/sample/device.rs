//! A device as a sample shows it: NVML's numbers beside the lock's.

use std::fmt;

use serde::{Deserialize, Serialize};
use shm_layout::text::{format_duration, format_policy};
use shm_layout::{LockPolicy, PolicyKind};

use super::{Histogram, Slot};

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
    pub owner: Option<Slot>,
    /// Since when.
    pub owner_since_ns: u64,
    /// Who waits for it.
    pub waiters: Vec<Slot>,
    /// When a holder must yield, and who is next.
    pub policy: Policy,
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

/// A device's lock policy with all its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// When a holder must yield.
    pub rule: Rule,
    /// Who is next.
    pub order: Order,
    /// Release after this long without work.
    pub idle_ns: u64,
    /// A holder past this is taken over …
    pub max_hold_ns: u64,
    /// … after this much patience.
    pub grace_ns: u64,
    /// Explicit synchronisations that do not release.
    pub sync_skips: u32,
    /// Who said so: `default`, `operator`, `environment` …
    pub source: String,
}

/// When a holder must yield to a waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "value")]
pub enum Rule {
    /// Never: gpushare only watches.
    #[default]
    Off,
    /// After every call.
    Always,
    /// After this many launches or copies.
    Launches(u32),
    /// After this many nanoseconds.
    Timeslice(u64),
}

/// Who gets the lock next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Whoever waits longest.
    Fifo,
    /// The highest priority, with ageing.
    Priority,
    /// The least hold time for its weight.
    #[default]
    Fair,
}

impl Order {
    /// The word a person types.
    pub fn word(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Priority => "priority",
            Order::Fair => "fair",
        }
    }
}

impl From<&Policy> for LockPolicy {
    fn from(policy: &Policy) -> Self {
        Self {
            kind: match policy.rule {
                Rule::Off => PolicyKind::Off,
                Rule::Always => PolicyKind::Always,
                Rule::Launches(count) => PolicyKind::Launches(count),
                Rule::Timeslice(ns) => PolicyKind::Timeslice(ns),
            },
            order: match policy.order {
                Order::Fifo => shm_layout::Order::Fifo,
                Order::Priority => shm_layout::Order::Priority,
                Order::Fair => shm_layout::Order::Fair,
            },
            idle_ns: policy.idle_ns,
            max_hold_ns: policy.max_hold_ns,
            grace_ns: policy.grace_ns,
            sync_skips: policy.sync_skips,
        }
    }
}

impl From<&LockPolicy> for Policy {
    fn from(policy: &LockPolicy) -> Self {
        Self {
            rule: policy.kind.into(),
            order: match policy.order {
                shm_layout::Order::Fifo => Order::Fifo,
                shm_layout::Order::Priority => Order::Priority,
                shm_layout::Order::Fair => Order::Fair,
            },
            idle_ns: policy.idle_ns,
            max_hold_ns: policy.max_hold_ns,
            grace_ns: policy.grace_ns,
            sync_skips: policy.sync_skips,
            source: String::new(),
        }
    }
}

impl From<PolicyKind> for Rule {
    fn from(kind: PolicyKind) -> Self {
        match kind {
            PolicyKind::Off => Rule::Off,
            PolicyKind::Always => Rule::Always,
            PolicyKind::Launches(count) => Rule::Launches(count),
            PolicyKind::Timeslice(ns) => Rule::Timeslice(ns),
        }
    }
}

/// The whole policy as `gpushare policy set` takes it.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_policy(&self.into()))
    }
}

/// The rule as `gpushare policy set` takes it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Off => f.write_str("off"),
            Rule::Always => f.write_str("always"),
            Rule::Launches(count) => write!(f, "launches={count}"),
            Rule::Timeslice(ns) => write!(f, "timeslice={}", format_duration(*ns)),
        }
    }
}
