//! The operator's edits: read the generation, check, write one record, count up, ring the bell.
//!
//! One editor at a time holds a byte of the control file. An edit changes one record, and what that held before
//! is in the journal until the generation has moved: an editor killed at any step has either edited or not, readers
//! see one or the other, and the next editor tidies up.

mod check;
mod plan;

use std::{fmt, io, time::Duration};

use self::plan::Plan;
use crate::{
    clock,
    crash::crash_point,
    events::{Event, EventKind},
    futex,
    ids::{SlotId, Uuid},
    liveness::Bytes,
    lock,
    primitive::{Ordering, fence},
    protocol::{claim, seqlock},
    records::RecordId,
    register,
    segment::Segments,
    settings::LockPolicy,
};

/// A memory quota the operator sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaValue {
    /// Not set here: what the launch, group or default says.
    #[default]
    Inherit,
    /// No limit.
    Unlimited,
    /// So many bytes.
    Bytes(u64),
    /// A share of the device's memory, 1 to 100.
    Percent(u8),
}

/// What an edit does to one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Set<T> {
    /// Leaves it.
    #[default]
    Keep,
    /// Unsets it: launch, group or default.
    Inherit,
    /// Sets it.
    To(T),
}

/// Another priority for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boost {
    /// -20 to 19.
    pub priority: i32,
    /// When it ends by itself.
    pub until_ns: u64,
}

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A process's memory quota.
    ProcessQuota {
        /// Whose.
        slot: SlotId,
        /// On which of its entries; `None` for every device, later ones included.
        device: Option<u8>,
        /// The quota.
        value: QuotaValue,
        /// When it reverts by itself to what it was.
        until_ns: Option<u64>,
    },
    /// A process's share.
    ProcessShare {
        /// Whose.
        slot: SlotId,
        /// 1 to 1000.
        weight: Set<u32>,
        /// -20 to 19.
        priority: Set<i32>,
        /// 1 to 100 per cent.
        cap: Set<u32>,
        /// Not eligible for the lock until resumed.
        paused: Set<bool>,
        /// Another priority for a while.
        boost: Set<Boost>,
    },
    /// A device's lock policy.
    Policy {
        /// Which device; `None` for all that have no policy of their own.
        device: Option<Uuid>,
        /// The policy; `None` unsets it.
        policy: Option<LockPolicy>,
    },
    /// What all processes together may hold on a device.
    DeviceLimit {
        /// Which.
        uuid: Uuid,
        /// The limit.
        value: QuotaValue,
    },
    /// A group; created when it is not there.
    Group {
        /// Its name, 1 to 31 bytes.
        name: String,
        /// What its members may hold together on each device.
        memory: Set<QuotaValue>,
        /// Each member's weight.
        weight: Set<u32>,
        /// Each member's cap.
        cap: Set<u32>,
        /// Removes it.
        remove: bool,
    },
}

/// A done edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Its generation: wait for the slots to acknowledge it.
    pub generation: u64,
    /// The change that restores what was.
    pub old: Change,
}

/// Why an edit was refused. Nothing changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum EditError {
    /// Somebody else edited in between.
    Moved {
        /// The generation expected.
        expected: u64,
        /// The generation found.
        found: u64,
    },
    /// The process, device entry or group is not there.
    NoSuchTarget,
    /// A value is out of range.
    Invalid {
        /// Which.
        field: &'static str,
        /// Why.
        why: String,
    },
    /// No room for another group or device.
    TooMany,
    /// This user may not write the control segment.
    NotPermitted,
    /// Another editor holds the control segment and does not let go.
    Busy,
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved { expected, found } => {
                write!(
                    f,
                    "somebody else edited in between (generation {found}, not {expected}); look again and repeat"
                )
            }
            Self::NoSuchTarget => {
                f.write_str("the target is not there (any more); see `gpushare ps`")
            }
            Self::Invalid { field, why } => write!(f, "{field} {why}"),
            Self::TooMany => {
                f.write_str("no room for another device or group; remove a group first")
            }
            Self::NotPermitted => f.write_str(
                "this user may not write the control segment; ask who ran `gpushare init`",
            ),
            Self::Busy => {
                f.write_str("another edit is under way and does not end; is some gpushare stopped?")
            }
            Self::Io(error) => write!(f, "cannot edit: {error}"),
        }
    }
}

impl std::error::Error for EditError {}

/// Somebody who may edit.
pub struct Operator {
    segments: Segments,
}

/// The byte of the control file that an editor locks.
const EDITOR: usize = 0;

impl Operator {
    pub(crate) fn new(segments: Segments) -> Operator {
        Operator { segments }
    }

    /// The segments.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Checks a change without doing it.
    pub fn check(&self, change: &Change) -> Result<(), EditError> {
        check::ranges(change)?;
        self.plan(change, clock::now()).map(|_| ())
    }

    /// Does a change, if the generation is still the one expected.
    pub fn edit(
        &self,
        expected_generation: Option<u64>,
        change: &Change,
        now_ns: u64,
    ) -> Result<Edit, EditError> {
        check::ranges(change)?;
        let control = self.segments.control();
        let _lock = self.lock()?;
        crash_point!("edit:locked");
        self.repair();
        let found = control.generation();
        if let Some(expected) = expected_generation.filter(|expected| *expected != found) {
            return Err(EditError::Moved { expected, found });
        }
        let plan = self.plan(change, now_ns)?;
        let generation = found.wrapping_add(1);
        self.write(&plan, found)?;
        let event = register::event(now_ns, target_of(change), EventKind::Edit);
        self.segments.state().publish(Event {
            arg0: generation,
            ..event
        });
        self.ring();
        Ok(Edit {
            generation,
            old: plan.old,
        })
    }

    /// Keeps other editors out; a dead one loses the lock by itself.
    fn lock(&self) -> Result<Bytes, EditError> {
        let not_permitted = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => EditError::NotPermitted,
            _ => EditError::Io(error),
        };
        let bytes = self.segments.control_bytes().map_err(not_permitted)?;
        for _ in 0..2000 {
            if bytes.try_lock(EDITOR).map_err(EditError::Io)? {
                return Ok(bytes);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(EditError::Busy)
    }

    /// Undoes what an editor left half done. The generation tells whether it was done.
    fn repair(&self) {
        let control = self.segments.control();
        let journal = &control.journal;
        // ORDER: pairs with the Release in write; the journal's words are those of that record.
        let record = RecordId::from_word(journal.record.load(Ordering::Acquire));
        let undone = journal.generation.load(Ordering::Relaxed) == control.generation();
        if let Some((seq, words)) = record
            .filter(|_| undone)
            .and_then(|record| control.record(record))
        {
            let old: Vec<u64> = journal
                .words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect();
            seqlock::write(seq, words, &old);
        }
        // ORDER: Release, behind the record; a reader that finds no journal finds a whole record.
        journal.record.store(0, Ordering::Release);
    }

    fn write(&self, plan: &Plan, generation: u64) -> Result<(), EditError> {
        let control = self.segments.control();
        let Some((seq, words)) = control.record(plan.record) else {
            return Err(EditError::NoSuchTarget);
        };
        let journal = &control.journal;
        // ORDER: Release, before the words below; pairs with the Acquire fence in records::read.
        fence(Ordering::Release);
        for (copy, word) in journal.words.iter().zip(words) {
            copy.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        journal.generation.store(generation, Ordering::Relaxed);
        // ORDER: pairs with the Acquire in records::read and repair; publishes the journal.
        journal
            .record
            .store(plan.record.to_word(), Ordering::Release);
        crash_point!("edit:journalled");
        let odd = seq.load(Ordering::Relaxed) | 1;
        seq.store(odd, Ordering::Relaxed);
        crash_point!("edit:odd");
        seqlock::write(seq, words, &plan.words);
        crash_point!("edit:written");
        // ORDER: pairs with the Acquire in Control::generation; publishes the record.
        control
            .generation
            .store(generation.wrapping_add(1), Ordering::Release);
        crash_point!("edit:counted");
        // ORDER: Release, behind the record; see repair.
        journal.record.store(0, Ordering::Release);
        Ok(())
    }

    /// Wakes everybody who obeys: keepers at the bell, and those who wait for a lock at their grant.
    fn ring(&self) {
        let bell = &self.segments.control().bell;
        // ORDER: Release, behind the generation; who wakes by it sees the edit.
        bell.fetch_add(1, Ordering::Release);
        futex::wake(bell, i32::MAX);
        lock::nudge_waiters(self.segments.state());
    }

    /// The living that have not obeyed this generation yet.
    pub fn unacknowledged(&self, generation: u64) -> Vec<SlotId> {
        let state = self.segments.state();
        let bytes = self.segments.slot_bytes(false).ok();
        let gone = |index: usize| {
            matches!(
                bytes.as_ref().map(|bytes| bytes.is_locked(index)),
                Some(Ok(false))
            )
        };
        let slots = state.slots.iter().enumerate();
        slots
            .filter_map(|(index, slot)| {
                let epoch = claim::live(&slot.claim)?;
                let behind = slot.acked.load(Ordering::Relaxed) < generation;
                (behind && !gone(index)).then_some(SlotId {
                    index: index as u16,
                    epoch,
                })
            })
            .collect()
    }

    /// Holds a short claim on a device for `gpushare pick`, so that the next pick looks elsewhere.
    pub fn claim_pick(
        &self,
        uuid: Uuid,
        name: &str,
        total_bytes: u64,
        until_ns: u64,
        now_ns: u64,
    ) -> bool {
        let state = self.segments.state();
        let known = state
            .devices
            .iter()
            .position(|device| device.is_ready() && device.uuid() == uuid);
        let Some(index) = known.or_else(|| state.enter_device(&uuid, name, total_bytes, 0)) else {
            return false;
        };
        let free = state.devices[index].picks.iter().find(|until| {
            let seen = until.load(Ordering::Relaxed);
            let swap = until.compare_exchange(seen, until_ns, Ordering::Relaxed, Ordering::Relaxed);
            seen <= now_ns && swap.is_ok()
        });
        let event = register::event(now_ns, NOBODY, EventKind::Pick);
        state.publish(Event {
            device: index as u8,
            arg0: until_ns,
            ..event
        });
        free.is_some()
    }
}

const NOBODY: SlotId = SlotId {
    index: u16::MAX,
    epoch: 0,
};

fn target_of(change: &Change) -> SlotId {
    match change {
        Change::ProcessQuota { slot, .. } | Change::ProcessShare { slot, .. } => *slot,
        _ => NOBODY,
    }
}
