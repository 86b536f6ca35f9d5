//! Registration: claiming a slot and publishing the process's identity.

use std::{io, sync::Mutex, time::Duration};

use super::{RegisterError, Registration};
use crate::{
    broker::{socket::PATIENCE, wire::Field},
    cached_settings::{self, OwnSlot},
    files::{error::OpenError, probe},
    layout::{codec, registry::Registry, state::Slot},
    os::{clock, liveness::Alive},
    protocol::{claim, crash::crash_point, primitive::Ordering, seqlock},
    register::reap::{reap, sweep},
    segment::{Segments, account_map::OwnAccount, identity::decode_vouched, tables},
    value::{
        Event, EventKind, Gang, Identity, LaunchLimits, LaunchShare, LockPolicy, MAX_PROCESSES,
        SlotId, Source,
    },
};

/// Claims a slot and publishes this process's identity.
pub fn register(
    segments: &Segments,
    identity: &Identity,
    limits: &LaunchLimits,
) -> Result<Registration, RegisterError> {
    let now = clock::now();
    let state = segments.state();
    let ClaimedSlot {
        alive,
        id,
        member,
        group: given,
        identity,
        private_account,
    } = match segments.registry() {
        None => claim_slot(segments, now, identity)?,
        Some(registry) => ask_broker(segments, registry, identity, limits)?,
    };
    // The broker may know better what group a process is in.
    let asked_group = given.as_ref().or(limits.group.as_ref());
    let group_name = asked_group.and_then(|name| codec::name_words(name));
    let slot = &state.slots[usize::from(id.index)];
    crash_point!("register:claimed");
    sweep(segments, id, now);
    slot.clear();
    let group = match (member, group_name) {
        (None, Some(name)) => tables::join_group(segments, slot, &name).unwrap_or(0),
        (member, _) => {
            let member = member.unwrap_or(0);
            slot.group.store(member, Ordering::Relaxed);
            member
        }
    };
    if let (Some(name), 0) = (asked_group, group) {
        if alive.is_some() {
            // Nothing was published: the slot is as free as before. A slot from a broker is taken back by the broker.
            claim::free(&slot.claim, id.epoch);
        }
        let name = name.clone();
        return Err(RegisterError::NoGroup { name });
    }
    let launched = fill(segments, slot, &identity, limits, now);
    crash_point!("register:filled");
    seqlock::write(&slot.identity_seq, &slot.identity, &identity.encode());
    claim::publish(&slot.claim, id.epoch);
    crash_point!("register:published");
    state.publish(Event::of(now, id, EventKind::Register));
    Ok(Registration {
        own_slot: OwnSlot::new(segments, id, group_name, launched.policy, private_account),
        pid: std::process::id(),
        alive,
        memory: limits.memory,
        memory_source: limits.memory_source,
        keeper: Mutex::new(None),
        entering: Mutex::new(()),
        is_curbed: launched.is_curbed,
    })
}

/// The settings of a launch, as they hold on this machine.
struct Launched {
    policy: Option<(LockPolicy, Source)>,
    /// True if the launch asked for a larger share than it may have.
    is_curbed: bool,
}

/// Writes the settings of the launch and the times of a new process into its slot.
fn fill(
    segments: &Segments,
    slot: &Slot,
    identity: &Identity,
    limits: &LaunchLimits,
    now: u64,
) -> Launched {
    let asked = LaunchShare {
        values: limits.settings,
        sources: limits.sources,
        source: limits.share_source,
    };
    let launch = segments.bounded(asked);
    let policy = limits.policy.filter(|policy| policy.check().is_ok());
    // A policy that makes no sense is refused in the open.
    let is_bad = limits.policy.is_some() && policy.is_none();
    let source = match is_bad {
        true => Source::Invalid,
        false => limits.policy_source,
    };
    let policy_words = slot.launch_policy.iter().zip(LockPolicy::encode(policy));
    let launch_words = slot.launch_words().into_iter().zip(launch.encode());
    for (word, value) in launch_words.chain(policy_words) {
        word.store(value, Ordering::Relaxed);
    }
    slot.launch_policy_source
        .store(source.code(), Ordering::Relaxed);
    let invalid = u32::from(limits.invalid || is_bad);
    slot.invalid.store(invalid, Ordering::Relaxed);
    let gang = limits.gang.as_ref();
    let gang = gang.map_or(0, |gang| gang_word(gang, identity));
    slot.gang.store(gang, Ordering::Relaxed);
    for time in [&slot.used_ns, &slot.registered_ns, &slot.heartbeat_ns] {
        time.store(now, Ordering::Relaxed);
    }
    let generation = segments.control().generation();
    slot.acked.store(generation, Ordering::Relaxed);
    Launched {
        policy: cached_settings::launch_policy(policy, source),
        is_curbed: launch != asked,
    }
}

/// Waits, where there is a broker, until others can see this process's accounts; before that it may hold nothing. Returns false
/// if the broker does not respond.
pub(super) fn await_begun(segments: &Segments, id: SlotId) -> bool {
    let entry = segments.registry();
    let Some(entry) = entry.and_then(|registry| registry.entry(usize::from(id.index))) else {
        return true;
    };
    let until = clock::now() + PATIENCE.as_nanos() as u64;
    let mut looks = 0;
    while entry.begun() != Some(id.epoch) {
        if clock::now() >= until {
            return false;
        }
        looks += 1;
        match looks {
            0..100 => std::thread::yield_now(),
            // Another broker may have taken over before the accounts were mapped: it checks again on request.
            _ if looks % 100 == 0 => segments.ask_for_accounts(id),
            _ => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    true
}

/// Returns the session of this process. The kernel reports 0 for a session that began outside our PID namespace: as a rule all
/// such processes were started together. Where the session is unknown, the process is a session of its own.
#[expect(unsafe_code, reason = "rustix takes this number to be no zero")]
fn session() -> u64 {
    // SAFETY: takes and leaves nothing.
    let session = unsafe { libc::getsid(0) };
    u32::try_from(session)
        .unwrap_or_else(|_| std::process::id())
        .into()
}

/// Computes the number that all processes of a job share; never zero. The job's processes have one user, and unless the user
/// named the job, one container.
fn gang_word(gang: &Gang, identity: &Identity) -> u64 {
    let (name, container, session) = match gang {
        Gang::Named(name) => (name, 0, 0),
        Gang::Found(name) => (name, identity.pid_ns, 0),
        Gang::Group(name) => (name, identity.pid_ns, session()),
    };
    let ids = [u64::from(identity.uid), container, session];
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    // FNV-1a.
    let hash = bytes
        .chain(name.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    hash.max(1)
}

/// A claimed slot.
struct ClaimedSlot {
    /// Keeps its byte locked; where there is a broker, it watches the process.
    alive: Option<Alive>,
    id: SlotId,
    /// Our group's index + 1, where the broker entered it.
    member: Option<u32>,
    /// Name of the group, as the broker reports it.
    group: Option<String>,
    /// Identity of this process; from the kernel where there is a broker.
    identity: Identity,
    /// Our accounts, where they are the broker's to hand out.
    private_account: Option<OwnAccount>,
}

/// The slot that the broker gives us.
fn ask_broker(
    segments: &Segments,
    registry: &Registry,
    identity: &Identity,
    limits: &LaunchLimits,
) -> Result<ClaimedSlot, RegisterError> {
    let refused = |error: OpenError| RegisterError::Refused(error.to_string());
    let (answer, private_account) = segments
        .admit(&identity.label, limits.group.as_deref())
        .map_err(refused)?;
    if let Some(why) = answer.text(Field::Why) {
        return Err(RegisterError::Refused(why.to_owned()));
    }
    let slot = || {
        let id = SlotId {
            index: answer.number(Field::Slot)?,
            epoch: answer.number(Field::Epoch)?,
        };
        let entry = registry.entry(usize::from(id.index))?;
        let words = entry.read().filter(|_| registry.is_current(id))?;
        Some((id, decode_vouched(&words).0))
    };
    let given = slot().filter(|_| private_account.is_some());
    let (id, identity) = given.ok_or_else(|| {
        RegisterError::Refused(
            "the broker gave us no slot that is in its registry; use the library and the broker of one release".to_owned(),
        )
    })?;
    Ok(ClaimedSlot {
        alive: None,
        id,
        member: Some(answer.number(Field::Member).unwrap_or(0)),
        group: answer.text(Field::Group).map(str::to_owned),
        identity,
        private_account,
    })
}

/// The first free slot whose byte we can lock; dead processes are reaped if there is none.
fn claim_slot(
    segments: &Segments,
    now: u64,
    identity: &Identity,
) -> Result<ClaimedSlot, RegisterError> {
    let state = segments.state();
    if !segments.may_write() {
        return Err(RegisterError::Io(io::ErrorKind::PermissionDenied.into()));
    }
    for _ in 0..3 {
        let bytes = segments.slot_bytes(true).map_err(RegisterError::Io)?;
        for (index, slot) in state.slots.iter().enumerate() {
            if !claim::is_free(&slot.claim) || !bytes.try_lock(index).map_err(RegisterError::Io)? {
                continue;
            }
            crash_point!("register:locked");
            if let Some(epoch) = claim::claim(&slot.claim) {
                crash_point!("register:claiming");
                let kept = bytes.keep().and_then(|alive| {
                    // Segments that were brought to a file system which forgets the lock were not made there.
                    match segments.slot_bytes(false)?.is_locked(index)? {
                        true => Ok(alive),
                        false => Err(probe::refusal(segments.dir()).into()),
                    }
                });
                let alive = kept.map_err(|error| {
                    claim::free(&slot.claim, epoch);
                    RegisterError::Io(error)
                })?;
                let id = SlotId {
                    index: index as u16,
                    epoch,
                };
                return Ok(ClaimedSlot {
                    alive: Some(alive),
                    id,
                    member: None,
                    group: None,
                    identity: identity.clone(),
                    private_account: None,
                });
            }
            // Claimed and freed in between: this descriptor's lock on it must not linger.
            bytes.unlock(index);
        }
        drop(bytes);
        if reap(segments, now) == 0 {
            break;
        }
    }
    state.count_unmanaged(now);
    state.publish(Event {
        slot: u16::MAX,
        ..Event::of(now, SlotId { index: 0, epoch: 0 }, EventKind::Unmanaged)
    });
    Err(RegisterError::Full {
        capacity: MAX_PROCESSES,
    })
}
