//! The operator's edits: read the generation, check, write one record, count up, ring the bell.
//!
//! One editor at a time holds a byte of the control file. An edit changes one record, whose earlier words are in the journal
//! until the generation has changed. An editor killed at any step has either edited or not, readers see one or the other, and
//! the next editor tidies up.

mod plan;
pub mod settings;

use std::{fmt, io, path::Path, time::Duration};

use self::plan::Plan;
use crate::{
    files::{create::Want, error::OpenError},
    layout::codec,
    lock,
    memory::queue,
    os::{clock, futex, liveness::Bytes},
    protocol::{
        claim,
        crash::crash_point,
        primitive::{Ordering, fence},
        seqlock,
    },
    segment::{Segments, identity, records::RecordId, tables::DeviceIdentity},
    value::{Change, Edit, Event, EventKind, SlotId, Uuid, is_pick_held},
};

/// A process with the right to edit.
pub struct Operator {
    segments: Segments,
}

/// The byte of the control file that an editor locks.
const EDITOR: usize = 0;

impl Operator {
    /// Opens both segments read-write; creates them in user mode where missing or stale. Where there is a broker, only the
    /// broker changes the settings: this operator reads, and previews changes.
    pub fn open(dir: &Path) -> Result<Operator, OpenError> {
        let segments = Segments::open(dir, Want::Make, true, true)?;
        Ok(Operator { segments })
    }

    pub(crate) fn of(segments: &Segments) -> Operator {
        let segments = segments.clone();
        Operator { segments }
    }

    /// The segments.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Checks a change without doing it.
    pub fn check(&self, change: &Change) -> Result<(), EditError> {
        self.preview(change).map(drop)
    }

    /// Returns the change that would undo this one. Writes nothing.
    pub fn preview(&self, change: &Change) -> Result<Change, EditError> {
        plan::ranges(change)?;
        match (change, self.segments.registry()) {
            (Change::Label { slot, .. }, Some(registry)) => {
                let who = identity::of_registry(registry, *slot).ok_or(EditError::NoSuchTarget)?;
                let (slot, label) = (*slot, who.0.label);
                Ok(Change::Label { slot, label })
            }
            _ => Ok(self.plan(change, clock::now())?.old),
        }
    }

    /// Does a change, if the generation is still the one expected.
    pub fn edit(
        &self,
        expected_generation: Option<u64>,
        change: &Change,
        now_ns: u64,
    ) -> Result<Edit, EditError> {
        plan::ranges(change)?;
        if !self.segments.may_edit() {
            return Err(EditError::NotPermitted);
        }
        let control = self.segments.control();
        // A broker is the only editor there is.
        let _lock = match self.segments.is_brokered() {
            true => None,
            false => Some(self.lock()?),
        };
        crash_point!("edit:locked");
        self.repair();
        let found = control.generation();
        if let Some(expected) = expected_generation.filter(|expected| *expected != found) {
            return Err(EditError::Moved { expected, found });
        }
        let plan = self.plan(change, now_ns)?;
        let generation = found.wrapping_add(1);
        self.write(&plan, found)?;
        let event = Event::of(now_ns, change.slot().unwrap_or(NO_SLOT), EventKind::Edit);
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

    /// Undoes an edit that another process left half done. The generation shows whether it was complete.
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

    /// Wakes every process that applies edits: keepers at the bell, and waiters for a lock at their grant.
    fn ring(&self) {
        let bell = &self.segments.control().bell;
        // ORDER: Release, behind the generation: a process that this wakes sees the edit.
        bell.fetch_add(1, Ordering::Release);
        futex::wake(bell, i32::MAX);
        lock::nudge_waiters(self.segments.state());
        queue::nudge(self.segments.state());
    }

    /// The live processes that have not applied this generation yet.
    pub fn unacknowledged(&self, generation: u64) -> Vec<SlotId> {
        let state = self.segments.state();
        let probe = self.segments.probe().ok();
        let gone = |index: usize| {
            matches!(
                probe.as_ref().map(|probe| probe.is_gone(index)),
                Some(Ok(true))
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
            .filter(|slot| self.segments.is_current(*slot))
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
        let (segments, state) = (&self.segments, self.segments.state());
        let is_it = |index: &usize| segments.device(*index).is_some_and(|(_, of)| of == uuid);
        let known = (0..state.devices.len()).find(is_it);
        let Some(index) = known.or_else(|| self.place_for_pick(uuid, name, total_bytes)) else {
            return false;
        };
        let free = state.devices[index].picks.iter().find(|until| {
            let seen = until.load(Ordering::Relaxed);
            // A pause that others hold is left as it is: it ends when they set.
            let swap =
                || until.compare_exchange(seen, until_ns, Ordering::Relaxed, Ordering::Relaxed);
            !is_pick_held(seen, now_ns) && swap().is_ok()
        });
        let event = Event::of(now_ns, NO_SLOT, EventKind::Pick);
        state.publish(Event {
            device: index as u8,
            arg0: until_ns,
            ..event
        });
        free.is_some()
    }

    /// Takes back the claim on a device that was to end at `until_ns`.
    pub fn release_pick(&self, uuid: Uuid, until_ns: u64) {
        let (segments, state) = (&self.segments, self.segments.state());
        let is_it = |index: &usize| segments.device(*index).is_some_and(|(_, of)| of == uuid);
        let picks = (0..state.devices.len())
            .filter(is_it)
            .flat_map(|index| &state.devices[index].picks);
        for until in picks {
            // It may have ended and be another's by now.
            let _ = until.compare_exchange(until_ns, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A place for a device that no process has used yet.
    fn place_for_pick(&self, uuid: Uuid, name: &str, total_bytes: u64) -> Option<usize> {
        let (segments, state) = (&self.segments, self.segments.state());
        let known = DeviceIdentity {
            uuid,
            name,
            total_bytes,
            flags: 0,
        };
        let index = match segments.registry() {
            Some(registry) => {
                let words = codec::uuid_words(&uuid).into();
                segments.place_in(registry, uuid, words).ok()??
            }
            None => state.enter_device(&known)?,
        };
        state.devices[index].describe(&known);
        Some(index)
    }
}

const NO_SLOT: SlotId = SlotId {
    index: u16::MAX,
    epoch: 0,
};

/// The reason that an edit was refused. Nothing changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum EditError {
    /// Another edit was made in between.
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
        /// Name of the field.
        field: &'static str,
        /// The reason.
        why: String,
    },
    /// No room for another group or device.
    TooMany,
    /// The user may not write the control segment.
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
                    "another edit came first (generation {found}, not {expected}); check the settings and try again"
                )
            }
            Self::NoSuchTarget => {
                f.write_str("the target does not exist; `gpushare ps` lists the processes")
            }
            Self::Invalid { field, why } => write!(f, "{field} {why}"),
            Self::TooMany => {
                f.write_str("no room for another device or group; remove a group first")
            }
            Self::NotPermitted => f.write_str(
                "this user may not write the control segment; ask the user who ran `gpushare init`",
            ),
            Self::Busy => f.write_str(
                "another edit has been in progress for too long; is a gpushare process stopped?",
            ),
            Self::Io(error) => write!(f, "cannot edit: {error}"),
        }
    }
}

impl std::error::Error for EditError {}
