//! Reading the segments, whatever their bytes.

mod devices;

use std::borrow::BorrowMut;

use super::{Liveness, LivenessCache, ProcessDeviceView, ProcessView, Snapshot};
use crate::{
    cached_settings::{self, resolve_share},
    layout::{
        codec::{self, DeviceSettings, SlotSettings},
        state::{DeviceEntry, IDENTITY_WORDS, Slot},
    },
    lock,
    memory::residence_of,
    os::liveness::{self, Mark},
    protocol::{
        claim::{self, Phase},
        primitive::{AtomicU64, Ordering},
        seqlock,
    },
    segment::{
        Probe, Segments,
        identity::{self, decode_vouched},
    },
    text,
    value::{
        Identity, LockPolicy, Rule, SettingValues, Share, SlotId, Source, TraceOrder, TraceView,
        Vouched,
    },
};

/// Copies the segments out. Never panics and never waits, whatever their bytes.
pub fn snapshot(segments: &Segments, now_ns: u64) -> Snapshot {
    let mut seen_alive = LivenessCache::default();
    snapshot_of::<_, ProcessDeviceView>(segments, now_ns, Vec::new(), &mut seen_alive)
}

/// Takes a snapshot with a tool's own types around the views of processes and devices. It reuses the memory of `earlier` views,
/// which are large and many. Fields that the tool added keep their values, perhaps those of another process. `lives` keeps what
/// this reader's earlier snapshots of these segments found.
pub fn snapshot_of<P, E>(
    segments: &Segments,
    now_ns: u64,
    earlier: Vec<P>,
    seen_alive: &mut LivenessCache,
) -> Snapshot<P>
where
    P: BorrowMut<ProcessView<E>> + Default,
    E: BorrowMut<ProcessDeviceView> + Default,
{
    let mut reading = Reading::new(segments, now_ns, seen_alive);
    let state = segments.state();
    let mut processes = earlier;
    let mut count = 0;
    for index in 0..state.slots.len() {
        if processes.len() == count {
            processes.push(P::default());
        }
        if reading
            .process(index, processes[count].borrow_mut())
            .is_some()
        {
            count += 1;
        }
    }
    processes.truncate(count);
    let devices = (0..state.devices.len())
        .filter_map(|index| reading.device(index, &processes))
        .collect();
    let groups = reading.groups(&processes);
    // Where there is a broker it counts them itself: tenants write the state.
    let (unmanaged, unmanaged_ns) = match segments.registry() {
        Some(registry) => (&registry.unmanaged, &registry.unmanaged_ns),
        None => (&state.unmanaged, &state.unmanaged_ns),
    };
    Snapshot {
        time_ns: now_ns,
        default_policy: reading.common.policy.at(now_ns),
        devices,
        groups,
        generation: segments.control().generation(),
        unmanaged: unmanaged.load(Ordering::Relaxed),
        unmanaged_ns: unmanaged_ns.load(Ordering::Relaxed),
        events_head: state.ring.head.load(Ordering::Relaxed),
        violations: state
            .devices
            .iter()
            .map(|device| device.violations.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add),
        processes,
        warnings: reading.warnings,
        damaged: reading.damaged,
    }
}

/// Returns the identity of the process in this life of a slot. It stays readable after the process has left, until another
/// claims the slot.
pub fn last_identity(segments: &Segments, id: SlotId) -> Option<Identity> {
    if let Some(registry) = segments.registry() {
        let entry = registry.entry(usize::from(id.index))?;
        let words = entry.read()?;
        return (entry.epoch() == id.epoch).then(|| decode_vouched(&words).0);
    }
    let slot = segments.state().slots.get(usize::from(id.index))?;
    // ORDER: pairs with the Release in publish; the words below are of this life, or the second look differs.
    let is_it = || claim::parse(slot.claim.load(Ordering::Acquire)).0 == id.epoch;
    let mut words = [0; IDENTITY_WORDS];
    if !is_it() {
        return None;
    }
    seqlock::read(&slot.identity_seq, &slot.identity, &mut words)?;
    is_it().then(|| Identity::decode(&words))
}

/// The records that one snapshot needs, read once.
struct Reading<'s> {
    segments: &'s Segments,
    now_ns: u64,
    seen_alive: &'s mut LivenessCache,
    /// The query of dead processes; `None` where it is not possible.
    probe: Option<Probe<'s>>,
    common: DeviceSettings,
    /// By device index.
    devices: Vec<DeviceSettings>,
    has_rules: bool,
    warnings: Vec<String>,
    damaged: Vec<u16>,
}

/// A time so far ahead was written by no clock of this machine.
const FUTURE_NS: u64 = 60_000_000_000;

impl<'s> Reading<'s> {
    fn new(segments: &'s Segments, now_ns: u64, seen_alive: &'s mut LivenessCache) -> Self {
        let control = segments.control();
        let mut warnings = Vec::new();
        let common = control.common_settings().unwrap_or_else(|| {
            warnings.push(
                "the settings for all devices cannot be read: an edit is stuck; repeat it"
                    .to_owned(),
            );
            DeviceSettings::default()
        });
        let devices = (0..segments.state().devices.len())
            .map(|index| {
                let (_, uuid) = segments.device(index)?;
                control.device_settings(&uuid)
            })
            .map(Option::unwrap_or_default)
            .collect();
        let probe = segments.probe().ok();
        Reading {
            segments,
            now_ns,
            seen_alive,
            probe,
            common,
            devices,
            has_rules: control.has_rules(),
            warnings,
            damaged: Vec::new(),
        }
    }

    /// Reads the process in a slot, if there is one; `into` is written completely.
    fn process<E>(&mut self, index: usize, into: &mut ProcessView<E>) -> Option<()>
    where
        E: BorrowMut<ProcessDeviceView> + Default,
    {
        let ProcessView {
            slot: its_slot,
            identity,
            vouched: its_vouched,
            forged: is_forged,
            registered_ns,
            heartbeat_ns,
            alive,
            share: its_share,
            group: its_group,
            rule: its_rule,
            gang,
            acked,
            invalid,
            trace,
            residence,
            devices,
        } = into;
        let state = self.segments.state();
        let slot = &state.slots[index];
        let Who {
            id,
            vouched,
            forged,
        } = self.who(slot, index, identity)?;
        let is_alone = vouched.is_none();
        if self.is_damaged(slot, identity) || forged && vouched.is_some() {
            self.damaged.push(id.index);
        }
        let name = self.segments.group_name_of(index);
        let rule = self.rule_of(identity, vouched.as_ref(), name.as_ref());
        let launch = self.launch_of(slot, id, name.as_ref(), rule.as_ref());
        let mut count = 0;
        for (at, words) in slot.entries.iter().enumerate() {
            let Some(about) = self.device_of(words) else {
                continue;
            };
            if devices.len() == count {
                devices.push(E::default());
            }
            let view = devices[count].borrow_mut();
            self.entry(id, (at, words), about, &launch, view);
            count += 1;
        }
        devices.truncate(count);
        *is_forged = forged;
        *registered_ns = slot.registered_ns.load(Ordering::Relaxed);
        *heartbeat_ns = slot.heartbeat_ns.load(Ordering::Relaxed);
        *alive = match forged && is_alone {
            false => self.liveness(slot, id),
            // No process of ours: there is nothing to be dead.
            true => Liveness::Unknown,
        };
        *its_slot = id;
        *its_share = launch.share;
        *its_vouched = vouched;
        *its_group = name.map(|name| codec::text_of(&name));
        *its_rule = rule.map(|rule| rule.name);
        *gang = slot.gang.load(Ordering::Relaxed);
        *acked = slot.acked.load(Ordering::Relaxed);
        *invalid = slot.invalid.load(Ordering::Relaxed) != 0;
        *trace = TraceView {
            wanted: launch.settings.trace.and_then(TraceOrder::room),
            progress: slot.trace_progress(),
        };
        *residence = residence_of(slot);
        Some(())
    }

    /// Returns the settings that hold for all devices of a process.
    fn launch_of(
        &mut self,
        slot: &Slot,
        id: SlotId,
        group: Option<&codec::NameWords>,
        rule: Option<&Rule>,
    ) -> Launch {
        let control = self.segments.control();
        let settings = control.slot_settings(id).unwrap_or_else(|| {
            self.warnings.push(format!(
                "the settings of slot {} cannot be read: an edit is stuck; repeat it",
                id.index
            ));
            SlotSettings::default()
        });
        let group = group
            .and_then(|name| control.group_settings(name))
            .unwrap_or_default();
        let rule = rule.map(|rule| rule.limits).unwrap_or_default();
        let held = slot.entries.iter().filter(|entry| {
            let bytes = entry.used.load(Ordering::Relaxed);
            bytes.saturating_add(entry.evicted.load(Ordering::Relaxed)) != 0
        });
        let share = resolve_share(
            &self.segments.launch_of(slot),
            Some(&settings.share),
            Some(&group),
            &rule,
            held.filter_map(|entry| {
                let device = entry.device.load(Ordering::Relaxed) as usize;
                self.devices.get(device.checked_sub(1)?)
            }),
            &self.common,
            self.now_ns,
        );
        let policy = LockPolicy::decode(&std::array::from_fn(|at| {
            slot.launch_policy[at].load(Ordering::Relaxed)
        }));
        let source = Source::of_code(slot.launch_policy_source.load(Ordering::Relaxed));
        Launch {
            settings,
            rule,
            share,
            policy: cached_settings::launch_policy(policy, source),
        }
    }

    /// The rule that holds for a process.
    fn rule_of(
        &self,
        identity: &Identity,
        vouched: Option<&Vouched>,
        group: Option<&codec::NameWords>,
    ) -> Option<Rule> {
        if !self.has_rules {
            return None;
        }
        let container = vouched.map(|vouched| vouched.container.clone());
        let group = group.map(|name| codec::text_of(name));
        let traits = identity::traits_of(identity, container, group);
        self.segments.control().rule_for(&traits).ok().flatten()
    }

    /// Identifies the process in a slot: by the broker's registry where there is one, else by the process's own report.
    fn who(&mut self, slot: &Slot, index: usize, identity: &mut Identity) -> Option<Who> {
        let said = |identity: &mut Identity, warnings: &mut Vec<String>| {
            let mut words = [0; IDENTITY_WORDS];
            match seqlock::read(&slot.identity_seq, &slot.identity, &mut words) {
                Some(()) => identity.decode_into(&words),
                None => {
                    warnings.push(format!(
                        "the identity of slot {index} cannot be read: it is incomplete"
                    ));
                    *identity = Identity::default();
                }
            }
        };
        let of_itself = |epoch| Who {
            id: SlotId {
                index: index as u16,
                epoch,
            },
            vouched: None,
            forged: false,
        };
        let claimed = claim::live(&slot.claim);
        let Some(registry) = self.segments.registry() else {
            let who = of_itself(claimed?);
            said(identity, &mut self.warnings);
            return Some(who);
        };
        let entry = registry.entry(index)?;
        let Some(epoch) = entry.live() else {
            // Free by the registry: a process that claims otherwise was given no slot.
            let who = of_itself(claimed?);
            said(identity, &mut Vec::new());
            return Some(Who {
                forged: true,
                ..who
            });
        };
        // ORDER: pairs with the Release in publish.
        let phase = claim::parse(slot.claim.load(Ordering::Acquire));
        if matches!(phase, (of, Phase::Free | Phase::Claiming) if of == epoch) {
            // On its way in or out.
            return None;
        }
        let words = entry.read()?;
        said(identity, &mut Vec::new());
        let (true_identity, vouched) = decode_vouched(&words);
        let forged = claimed != Some(epoch) || *identity != true_identity;
        *identity = true_identity;
        Some(Who {
            vouched: Some(vouched),
            forged,
            ..of_itself(epoch)
        })
    }

    /// Returns true if a slot holds values that gpushare never writes.
    fn is_damaged(&self, slot: &Slot, identity: &Identity) -> bool {
        let ahead =
            |time: &AtomicU64| time.load(Ordering::Relaxed) > self.now_ns.saturating_add(FUTURE_NS);
        let entry = |entry: &DeviceEntry| {
            let device = entry.device.load(Ordering::Relaxed) as usize;
            device > self.segments.state().devices.len()
                || entry.lock_state.load(Ordering::Relaxed) > lock::BACK
                || ahead(&entry.lock_since)
        };
        ahead(&slot.registered_ns)
            || ahead(&slot.heartbeat_ns)
            || text::visible(&identity.label).is_err()
            || slot.entries.iter().any(entry)
    }

    fn liveness(&mut self, slot: &Slot, id: SlotId) -> Liveness {
        let keeper = liveness::mark_of(&slot.keeper);
        // The kernel marks dead processes. The byte says the same, and a query of it costs as much as reading the rest of a
        // slot.
        if keeper == Mark::Alive && self.seen_alive.is_fresh(id, self.now_ns) {
            return Liveness::Live;
        }
        let index = usize::from(id.index);
        let found = match self.probe.as_ref().map(|probe| probe.is_gone(index)) {
            Some(Ok(true)) => Liveness::Dead,
            // Any tenant may write the mark; the broker sees a death by itself.
            _ if keeper == Mark::Dead && !self.segments.is_brokered() => Liveness::Dead,
            Some(Ok(false)) if keeper == Mark::None => Liveness::NoKeeper,
            Some(Ok(false)) => Liveness::Live,
            _ => Liveness::Unknown,
        };
        match found {
            Liveness::Live => self.seen_alive.note(id, self.now_ns),
            _ => self.seen_alive.forget(id),
        }
        found
    }
}

/// The process in a slot.
struct Who {
    id: SlotId,
    vouched: Option<Vouched>,
    forged: bool,
}

/// Launch settings that hold for all devices of a process.
struct Launch {
    settings: SlotSettings,
    rule: SettingValues,
    share: Share,
    policy: Option<(LockPolicy, Source)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LaunchLimits, os::clock, register};

    #[test]
    fn who_has_left_is_known_until_the_slot_is_claimed_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let launch = LaunchLimits::default();
        let identity = |label: &str| Identity {
            label: label.into(),
            ..Identity::default()
        };
        let first = register(&segments, &identity("first"), &launch).expect("a slot");
        let id = first.slot();
        let label = || last_identity(&segments, id).map(|identity| identity.label);
        assert_eq!(label().as_deref(), Some("first"));
        drop(first);
        assert_eq!(label().as_deref(), Some("first"));
        let next = register(&segments, &identity("next"), &launch).expect("a slot");
        assert_eq!(next.slot().index, id.index);
        assert_eq!(label(), None);
    }

    #[test]
    fn a_slot_that_was_written_over_is_named_and_a_sound_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let launch = LaunchLimits::default();
        let [sound, broken] =
            [(); 2].map(|()| register(&segments, &Identity::default(), &launch).expect("a slot"));
        assert_eq!(snapshot(&segments, clock::now()).damaged, Vec::<u16>::new());
        let slot = &segments.state().slots[usize::from(broken.slot().index)];
        slot.heartbeat_ns.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(
            snapshot(&segments, clock::now()).damaged,
            [broken.slot().index]
        );
        slot.heartbeat_ns.store(0, Ordering::Relaxed);
        slot.entries[3].lock_state.store(77, Ordering::Relaxed);
        assert_eq!(
            snapshot(&segments, clock::now()).damaged,
            [broken.slot().index]
        );
        drop(sound);
    }

    #[test]
    fn who_was_seen_to_live_is_asked_again_within_seconds() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let launch = LaunchLimits::default();
        let own = register(&segments, &Identity::default(), &launch).expect("a slot");
        let slots = &segments.state().slots;
        // A slot with the mark of a life and without its byte.
        let (index, sound) = (9, &slots[usize::from(own.slot().index)]);
        let claim = sound.claim.load(Ordering::Relaxed);
        slots[index].claim.store(claim, Ordering::Relaxed);
        slots[index].keeper.store(1, Ordering::Relaxed);
        let start = clock::now();
        let look = |seconds: u64, seen_alive: &mut LivenessCache| {
            let now_ns = start + seconds * 1_000_000_000;
            let all: Snapshot = snapshot_of(&segments, now_ns, Vec::new(), seen_alive);
            let mut here = all.processes.iter();
            let process = here.find(|process| usize::from(process.slot.index) == index);
            process.expect("the slot is in use").alive
        };
        let mut seen_alive = LivenessCache::default();
        assert_eq!(
            look(0, &mut seen_alive),
            Liveness::Dead,
            "the first look asks"
        );
        assert_eq!(
            look(0, &mut seen_alive),
            Liveness::Dead,
            "who is dead stays so"
        );
        let id = SlotId {
            index: index as u16,
            epoch: claim::parse(claim).0,
        };
        seen_alive.note(id, start);
        assert_eq!(look(1, &mut seen_alive), Liveness::Live);
        assert_eq!(look(4, &mut seen_alive), Liveness::Dead);
        assert_eq!(
            look(4, &mut seen_alive),
            Liveness::Dead,
            "and is not forgotten"
        );
        // Another life of the slot.
        let other = SlotId {
            epoch: id.epoch + 1,
            ..id
        };
        seen_alive.note(other, start);
        assert_eq!(look(1, &mut seen_alive), Liveness::Dead);
        slots[index].claim.store(0, Ordering::Relaxed);
    }
}
