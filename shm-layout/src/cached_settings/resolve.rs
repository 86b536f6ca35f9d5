//! The settings in force: their precedence (operator, launch, default), the limits of a process on a device that follow, and the
//! shares of other slots, for the choice of the next holder.
//!
//! Beside its limits a process caches there how other processes keep it away, because other tenants may write over the shared words
//! that say so (`lock::starvation_check`, `lock::overlap`).

use std::sync::Mutex;

use crate::{
    layout::{
        codec::{DeviceSettings, EVERY_DEVICE, GroupSettings, SlotSettings},
        state::{DeviceEntry, Slot},
    },
    protocol::primitive::{AtomicU32, AtomicU64, Ordering},
    segment::{Segments, identity},
    value::{
        LAUNCH_WORDS, LaunchShare, LockPolicy, Quota, SettingValues, Share, ShareSettings, SlotId,
        Source,
    },
};

/// The words of a quota as launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchQuota {
    pub(crate) kind: u64,
    pub(crate) bytes: u64,
}

impl LaunchQuota {
    pub(crate) fn of(words: &DeviceEntry) -> LaunchQuota {
        LaunchQuota {
            kind: words.launch_quota.load(Ordering::Relaxed),
            bytes: words.launch_bytes.load(Ordering::Relaxed),
        }
    }

    /// Converts the value to a quota.
    fn quota(self) -> Quota {
        let source = Source::of_code(self.kind >> 8);
        let bytes = (self.kind & 0xff == 2).then_some(self.bytes);
        let is_said = matches!(self.kind & 0xff, 1 | 2) || source == Source::Invalid;
        match is_said {
            true => Quota { bytes, source },
            false => Quota::default(),
        }
    }

    pub(crate) fn write(self, words: &DeviceEntry) {
        words.launch_bytes.store(self.bytes, Ordering::Relaxed);
        words.launch_quota.store(self.kind, Ordering::Relaxed);
    }
}

/// The quota of a process on a device: operator, then the lesser of its rule's and its launch's.
pub(crate) fn resolve_quota(
    control: &SlotSettings,
    entry: usize,
    rule: &SettingValues,
    launch: LaunchQuota,
    total_bytes: u64,
    now_ns: u64,
) -> Quota {
    for setting in [control.quotas.get(entry), control.quotas.get(EVERY_DEVICE)] {
        if let Some(bytes) = setting.and_then(|setting| setting.at(now_ns)?.of_device(total_bytes))
        {
            return Quota {
                bytes,
                source: Source::Operator,
            };
        }
    }
    let launch = launch.quota();
    let of_rule = rule.memory.and_then(|value| value.of_device(total_bytes));
    let Some(bytes) = of_rule else {
        return launch;
    };
    let is_less = |own: u64| bytes.is_none_or(|most| own <= most);
    match launch.bytes {
        // A launch that asked for less gets less.
        Some(own) if is_less(own) => launch,
        _ => Quota {
            bytes,
            source: Source::Rule,
        },
    }
}

/// Resolves the settings of a process that are in force. Without a setting of its own for the idle time after which it is
/// evicted, the shortest of the devices that it has memory on applies, each the device's own before the common one.
pub(crate) fn resolve_share<'d>(
    launch: &LaunchShare,
    control: Option<&ShareSettings>,
    group: Option<&GroupSettings>,
    rule: &SettingValues,
    devices: impl Iterator<Item = &'d DeviceSettings>,
    common: &DeviceSettings,
    now_ns: u64,
) -> Share {
    let group = group.map(|group| group.at(now_ns)).unwrap_or_default();
    let mut share = Share::resolve(launch, control, &group, rule, now_ns);
    if !matches!(share.sources.evict_after, Source::Default | Source::Invalid) {
        return share;
    }
    let of_devices = devices.filter_map(|device| {
        let own = device.memory.evict_after.at(now_ns);
        own.or(common.memory.evict_after.at(now_ns))?.ns()
    });
    if let Some(ns) = of_devices.min() {
        (share.evict_after, share.sources.evict_after) = (Some(ns), Source::Operator);
    }
    share
}

/// The limit on all processes together on a device.
pub(crate) fn device_limit(
    device: &DeviceSettings,
    common: &DeviceSettings,
    total_bytes: u64,
) -> Option<u64> {
    device
        .limit
        .of_device(total_bytes)
        .or_else(|| common.limit.of_device(total_bytes))
        .flatten()
}

/// Returns the policy that a process's launch asked for. An invalid policy counts as unset and is reported as invalid.
pub(crate) fn launch_policy(
    policy: Option<LockPolicy>,
    source: Source,
) -> Option<(LockPolicy, Source)> {
    match source {
        Source::Invalid => Some((LockPolicy::default(), source)),
        _ => policy.map(|policy| (policy, source)),
    }
}

/// The policy on a device: the operator's for it, for all, then the launch's.
pub(crate) fn resolve_policy(
    device: Option<LockPolicy>,
    common: Option<LockPolicy>,
    launch: Option<(LockPolicy, Source)>,
) -> (LockPolicy, Source) {
    match device.or(common) {
        Some(policy) => (policy, Source::Operator),
        None => launch.unwrap_or_default(),
    }
}

/// The limits of a process on a device now; `u64::MAX` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) quota: u64,
    pub(crate) group: u64,
    pub(crate) device: u64,
}

impl Limits {
    /// Returns true if one of the limits is shared with other processes.
    #[inline(always)]
    pub(crate) fn are_shared(&self) -> bool {
        self.group & self.device != u64::MAX
    }
}

/// The cached settings and measurements of one device.
#[derive(Default)]
pub(crate) struct CachedLimits {
    pub(super) quota: AtomicU64,
    pub(super) source: AtomicU64,
    pub(super) group: AtomicU64,
    pub(super) device: AtomicU64,
    /// The order of the device's queue.
    pub(super) order: AtomicU64,
    /// The device's memory, as its process entered it.
    pub(crate) total: AtomicU64,
    /// Bytes outside the accounts that this process measured there, plus 1; 0 before it measured any.
    pub(crate) outside: AtomicU64,
    /// The time of that measurement.
    pub(crate) outside_ns: AtomicU64,
    /// The period without turns on the device, if the process is in one.
    pub(crate) untrusted_fallback: UntrustedFallback,
    /// Time since which the process is held back there.
    pub(crate) hold_back_timer: HoldBackTimer,
    /// 1 while the process is charged by its work and not by the time in which it is active.
    pub(crate) charged_by_work: AtomicU32,
    /// 1 while the process has work on the device though it is held back.
    pub(crate) trickles: AtomicU32,
    /// The cap, in percent, by which the time until which it is used up was reckoned; 0 before the first look.
    pub(crate) reckoned_cap: AtomicU32,
    /// The process's own record of its context there, which it trusts, because other tenants may write over the shared one: the
    /// state of MPS (`codec::mps_word`), its slice from the card, the time when the context was lost, and the evicted bytes.
    pub(crate) mps: AtomicU32,
    pub(crate) card_slice: AtomicU32,
    pub(crate) lost_ns: AtomicU64,
    pub(crate) evicted: AtomicU64,
    /// The lock of the thread that has the process's ticket in the device's memory queue.
    pub(crate) queued: Mutex<()>,
}

impl CachedLimits {
    #[inline(always)]
    pub(crate) fn load(&self) -> Limits {
        Limits {
            quota: self.quota.load(Ordering::Relaxed),
            group: self.group.load(Ordering::Relaxed),
            device: self.device.load(Ordering::Relaxed),
        }
    }

    /// Returns the source of the quota.
    pub(crate) fn source(&self) -> Source {
        Source::of_code(self.source.load(Ordering::Relaxed))
    }
}

/// First and longest duration of a period without turns.
const FALLBACK_NS: u64 = 1_000_000_000;
const LONGEST_FALLBACK_NS: u64 = 64 * FALLBACK_NS;

/// The end and the duration of a process's last period without turns on a device. It is in the process's own memory.
#[derive(Default)]
pub(crate) struct UntrustedFallback {
    until_ns: AtomicU64,
    lasts_ns: AtomicU64,
}

impl UntrustedFallback {
    /// Returns true while the period lasts.
    #[inline]
    pub(crate) fn is_active(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let until = self.until_ns.load(Ordering::Relaxed);
        until != 0 && now_ns() < until
    }

    /// Begins; longer each time if the last one ended a short while ago.
    pub(crate) fn begin(&self, now_ns: u64) {
        let (until, lasts) = (
            self.until_ns.load(Ordering::Relaxed),
            self.lasts_ns.load(Ordering::Relaxed),
        );
        // Back at once: the words are still written over.
        let again = until != 0 && now_ns.saturating_sub(until) <= lasts.max(4 * FALLBACK_NS);
        let lasts = match again {
            true => (2 * lasts).min(LONGEST_FALLBACK_NS),
            false => FALLBACK_NS,
        };
        self.lasts_ns.store(lasts, Ordering::Relaxed);
        self.until_ns.store(now_ns + lasts, Ordering::Relaxed);
    }
}

/// A process that is held back where there are no turns.
#[derive(Default)]
pub(crate) struct HoldBackTimer {
    /// 0 while it is not.
    since_ns: AtomicU64,
    /// For how long in all, with no more than moments in between.
    starved_ns: AtomicU64,
    ended_ns: AtomicU64,
}

impl HoldBackTimer {
    /// Starts a period of being held back.
    pub(crate) fn begin(&self, now_ns: u64) {
        self.since_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    /// For how long; `None` while it is not.
    pub(crate) fn lasts(&self, now_ns: u64) -> Option<u64> {
        let since = self.since_ns.load(Ordering::Relaxed);
        (since != 0).then(|| now_ns.saturating_sub(since))
    }

    /// Ends the hold-back. If it ended only because the process had waited `enough_ns`, returns the sum of this wait and of
    /// earlier ones that ended so.
    pub(crate) fn end(&self, now_ns: u64, enough_ns: u64) -> u64 {
        let waited = self.lasts(now_ns).unwrap_or(0);
        self.since_ns.store(0, Ordering::Relaxed);
        let ended = self.ended_ns.swap(now_ns, Ordering::Relaxed);
        let at_once = now_ns.saturating_sub(waited).saturating_sub(ended) < enough_ns;
        let before = match at_once {
            true => self.starved_ns.load(Ordering::Relaxed),
            false => 0,
        };
        let starved = match waited >= enough_ns {
            true => before + waited,
            false => 0,
        };
        self.starved_ns.store(starved, Ordering::Relaxed);
        starved
    }
}

/// The cached shares of other slots, for the choice of the next holder.
#[derive(Default)]
pub(crate) struct Shares {
    others: Vec<Option<Other>>,
}

#[derive(Clone, Copy)]
struct Other {
    generation: u64,
    slot: SlotId,
    settings: ShareSettings,
    group: GroupSettings,
    rule: SettingValues,
    /// The launch's words that `share` was resolved from.
    launch: [u64; LAUNCH_WORDS],
    share: Share,
    /// Time until which `share` holds: the next temporary setting ends then.
    until_ns: u64,
}

impl Shares {
    /// Returns a slot's share. Resolved once for each generation, because a choice among many waiters asks for all of theirs.
    pub(crate) fn share_of(
        &mut self,
        segments: &Segments,
        id: SlotId,
        slot: &Slot,
        now_ns: u64,
    ) -> Share {
        let generation = segments.control().generation();
        // The process may write over these words at any time.
        let launch = slot.launch_words().map(|word| word.load(Ordering::Relaxed));
        let index = usize::from(id.index);
        if self.others.len() <= index {
            self.others.resize(index + 1, None);
        }
        let cached = &mut self.others[index];
        let known = cached.filter(|other| other.slot == id);
        let read = match known {
            Some(other) if other.generation == generation => other,
            _ => read(segments, id, known, generation),
        };
        if read.launch == launch && now_ns < read.until_ns {
            return read.share;
        }
        cached.insert(read.resolved(segments, launch, now_ns)).share
    }
}

/// Reads a slot's settings. A record that cannot be read completely leaves what is `known` of it in force.
fn read(segments: &Segments, id: SlotId, known: Option<Other>, generation: u64) -> Other {
    let control = segments.control();
    let name = segments.group_name_of(usize::from(id.index));
    let group = name.and_then(|name| control.group_settings(&name));
    let settings = control.slot_settings(id).map(|settings| settings.share);
    let rule = || control.rule_limits(&identity::traits(segments, id)?);
    Other {
        generation,
        slot: id,
        settings: settings.or(known.map(|it| it.settings)).unwrap_or_default(),
        group: group.or(known.map(|it| it.group)).unwrap_or_default(),
        rule: rule().or(known.map(|it| it.rule)).unwrap_or_default(),
        launch: [0; LAUNCH_WORDS],
        share: Share::default(),
        until_ns: 0,
    }
}

impl Other {
    fn resolved(self, segments: &Segments, launch: [u64; LAUNCH_WORDS], now_ns: u64) -> Other {
        let share = resolve_share(
            &segments.bounded(LaunchShare::decode(&launch)),
            Some(&self.settings),
            Some(&self.group),
            &self.rule,
            // The lock has no use for the idle time.
            std::iter::empty(),
            &DeviceSettings::default(),
            now_ns,
        );
        let ends = self.settings.reverts(now_ns);
        let until_ns = ends.chain(self.group.set.reverts(now_ns)).min();
        Other {
            launch,
            share,
            until_ns: until_ns.unwrap_or(u64::MAX),
            ..self
        }
    }
}
