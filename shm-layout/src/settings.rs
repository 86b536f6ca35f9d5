//! The operator's settings as a workload sees them.

use std::sync::atomic::AtomicU32;

use crate::{
    codec::{self, GroupSettings, ShareSettings},
    futex,
    limits::Source,
    primitive::Ordering,
    segment::Segments,
    state::Slot,
    text::POLICY_FIELDS,
};

/// When the holder must yield to a waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// Never locked: observe only.
    #[default]
    Off,
    /// After so many launches or copies.
    Launches(u32),
    /// After so many nanoseconds.
    Timeslice(u64),
    /// After every call.
    Always,
}

/// Who is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Who came first.
    Fifo,
    /// Who has the highest priority, with ageing.
    Priority,
    /// Who has held least for its weight.
    #[default]
    Fair,
}

/// A device's lock policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockPolicy {
    /// When the holder yields.
    pub kind: PolicyKind,
    /// Who is next.
    pub order: Order,
    /// The lock is released when nothing was submitted for so long and all work has drained.
    pub idle_ns: u64,
    /// The longest hold while others wait.
    pub max_hold_ns: u64,
    /// How long a drain or an overdue holder is waited for before it is forced.
    pub grace_ns: u64,
    /// Explicit synchronisations that keep the lock.
    pub sync_skips: u32,
}

impl Default for LockPolicy {
    fn default() -> Self {
        Self {
            kind: PolicyKind::Off,
            order: Order::Fair,
            idle_ns: 5_000_000,
            max_hold_ns: 10_000_000_000,
            grace_ns: 200_000_000,
            sync_skips: 0,
        }
    }
}

/// A process's share of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// 1 to 1000.
    pub weight: u32,
    /// -20 to 19, higher first; a boost is included while it lasts.
    pub priority: i32,
    /// Most of the device's time, per cent.
    pub cap: Option<u32>,
    /// Not eligible until resumed.
    pub paused: bool,
    /// A boost is in force until then.
    pub boost_until_ns: Option<u64>,
    /// Who set it.
    pub source: Source,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 100,
            priority: 0,
            cap: None,
            paused: false,
            boost_until_ns: None,
            source: Source::Default,
        }
    }
}

impl LockPolicy {
    /// Which field makes no sense, and why. The ranges are those of [`POLICY_FIELDS`].
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for field in &POLICY_FIELDS {
            if let Some(why) = field.complaint(self) {
                return Err((field.name, why));
            }
        }
        if matches!(self.kind, PolicyKind::Timeslice(ns) if ns > self.max_hold_ns) {
            return Err(("max-hold", "must not be shorter than the timeslice".into()));
        }
        if self.grace_ns > self.max_hold_ns {
            return Err(("grace", "must not be longer than max-hold".into()));
        }
        Ok(())
    }
}

/// What the lock's arithmetic needs of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) weight: u32,
    pub(crate) cap: Option<u32>,
}

impl Share {
    pub(crate) fn pace(&self) -> Pace {
        Pace {
            weight: self.weight,
            cap: self.cap,
        }
    }
}

/// What a process asked for at launch, as its slot says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchShare {
    pub(crate) weight: Option<u32>,
    pub(crate) priority: Option<i32>,
    pub(crate) cap: Option<u32>,
    pub(crate) source: Source,
}

impl LaunchShare {
    /// The slot's two words.
    pub(crate) fn encode(&self) -> [u64; 2] {
        let share = u64::from(self.weight.unwrap_or(0)) | u64::from(self.cap.unwrap_or(0)) << 32;
        let priority =
            u64::from(self.priority.unwrap_or(0) as u32) | u64::from(self.priority.is_some()) << 32;
        [share, priority | codec::source_byte(self.source) << 40]
    }

    pub(crate) fn decode(words: [u64; 2]) -> LaunchShare {
        LaunchShare {
            weight: Some(words[0] as u32).filter(|w| codec::valid_weight(*w)),
            cap: Some((words[0] >> 32) as u32).filter(|c| codec::valid_cap(*c)),
            priority: Some(words[1] as u32 as i32)
                .filter(|p| words[1] >> 32 & 1 == 1 && codec::valid_priority(*p)),
            source: codec::source_of(words[1] >> 40),
        }
    }

    pub(crate) fn of_slot(slot: &Slot) -> LaunchShare {
        LaunchShare::decode([
            slot.launch_share.load(Ordering::Relaxed),
            slot.launch_priority.load(Ordering::Relaxed),
        ])
    }
}

/// Operator before launch before group before default.
pub(crate) fn resolve_share(
    launch: &LaunchShare,
    control: Option<&ShareSettings>,
    group: Option<&GroupSettings>,
    now_ns: u64,
) -> Share {
    let mut share = Share::default();
    if let Some(group) = group.filter(|group| group.weight.is_some() || group.cap.is_some()) {
        share.weight = group.weight.unwrap_or(share.weight);
        share.cap = group.cap;
        share.source = Source::Group;
    }
    if launch.weight.is_some() || launch.priority.is_some() || launch.cap.is_some() {
        share.weight = launch.weight.unwrap_or(share.weight);
        share.priority = launch.priority.unwrap_or(share.priority);
        share.cap = launch.cap.or(share.cap);
        share.source = launch.source;
    }
    let Some(control) = control else { return share };
    let boost = control.boost.filter(|boost| boost.until_ns > now_ns);
    share.weight = control.weight.unwrap_or(share.weight);
    share.priority = control.priority.unwrap_or(share.priority);
    share.cap = control.cap.or(share.cap);
    share.paused = control.paused.unwrap_or(false);
    if let Some(boost) = boost {
        share.priority = boost.priority;
        share.boost_until_ns = Some(boost.until_ns);
    }
    let touched = control.weight.is_some()
        || control.priority.is_some()
        || control.cap.is_some()
        || control.paused == Some(true)
        || boost.is_some();
    if touched {
        share.source = Source::Operator;
    }
    share
}

/// The futex word that every edit bumps and wakes (shared futex, not private).
pub fn control_bell(segments: &Segments) -> &AtomicU32 {
    &segments.control().bell
}

/// Sleeps until the bell is no longer `seen`, or `timeout_ns` passed, or a signal came.
pub fn wait_bell(segments: &Segments, seen: u32, timeout_ns: u64) {
    futex::wait(control_bell(segments), seen, timeout_ns);
}
