//! Giving a slot back: by its process when it leaves, by any living process when it died.
//!
//! The process that releases a dead process's slot holds its byte. Every step leaves the slot in a state from which the
//! next reaper can start over, so a reaper may die as well: locks first (someone waits for them), then the ledger,
//! then the claim word last.

use crate::{
    layout::state::{DeviceEntry, Slot},
    lock,
    memory::queue,
    os::liveness,
    protocol::{claim, crash::crash_point, primitive::Ordering},
    segment::Segments,
    value::{Event, EventKind, Reason, SlotId},
};

/// The reason that a slot is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The process leaves.
    Exit,
    /// The process died.
    Death,
}

/// Gives back what dead processes held; any living process may call it. Returns how many slots it freed.
pub fn reap(segments: &Segments, now_ns: u64) -> usize {
    let state = segments.state();
    let taken: Vec<usize> = (0..state.slots.len())
        .filter(|index| !claim::is_free(&state.slots[*index].claim))
        .collect();
    if taken.is_empty() || !segments.may_reap() {
        return 0;
    }
    let Ok(bytes) = segments.slot_bytes(true) else {
        return 0;
    };
    let mut freed = 0;
    for index in taken {
        let is_gone = matches!(bytes.is_locked(index), Ok(false));
        if !is_gone || !matches!(bytes.try_lock(index), Ok(true)) {
            continue;
        }
        crash_point!("reap:locked");
        if let Some(epoch) = claim::begin_reaping(&state.slots[index].claim) {
            crash_point!("reap:begun");
            give_back(
                segments,
                SlotId {
                    index: index as u16,
                    epoch,
                },
                now_ns,
                Cause::Death,
            );
            freed += 1;
        }
        bytes.unlock(index);
    }
    freed
}

/// Takes a slot out of every queue and sum, and frees it. The caller is its process, or holds its byte.
pub(crate) fn give_back(segments: &Segments, id: SlotId, now_ns: u64, cause: Cause) {
    let state = segments.state();
    let slot = &state.slots[usize::from(id.index)];
    let reason = if cause == Cause::Exit {
        Reason::Exit
    } else {
        Reason::Forced
    };
    for device in 0..state.devices.len() {
        lock::withdraw(segments, id, device, reason, now_ns);
    }
    for device in &state.devices {
        queue::withdraw(device, id);
    }
    crash_point!("reap:withdrawn");
    for (device, member) in state.devices.iter().enumerate() {
        if let Some(entry) = lock::entry_on(slot, device) {
            member.end_reserve(entry);
        }
        slot.entry_of_device[device].store(0, Ordering::Relaxed);
        let (at, bit) = id.bit();
        member.members[at].fetch_and(!bit, Ordering::Relaxed);
    }
    crash_point!("reap:left");
    slot.clear();
    crash_point!("reap:cleared");
    // Only now, so that a process that looks finds the bytes given back.
    queue::nudge(state);
    if cause == Cause::Death {
        state.reaped.fetch_add(1, Ordering::Relaxed);
    }
    state.publish(Event {
        arg0: u64::from(cause == Cause::Death),
        ..Event::of(now_ns, id, EventKind::Exit)
    });
    claim::free(&slot.claim, id.epoch);
    crash_point!("reap:freed");
}

/// Takes the marks of a slot's last process off every device. A thread of it may have set one after its process had given
/// the slot back at its exit. The caller has claimed the slot.
pub(crate) fn sweep(segments: &Segments, id: SlotId, now_ns: u64) {
    let (at, bit) = id.bit();
    for (index, device) in segments.state().devices.iter().enumerate() {
        lock::withdraw(segments, id, index, Reason::Exit, now_ns);
        queue::withdraw(device, id);
        device.members[at].fetch_and(!bit, Ordering::Relaxed);
    }
}

impl Slot {
    /// Sets all but the claim word to zero.
    pub(crate) fn clear(&self) {
        liveness::disown_word(&self.keeper);
        for word in [
            &self.heartbeat_ns,
            &self.acked,
            &self.registered_ns,
            &self.gang,
            &self.trace_state,
            &self.trace_records,
            &self.trace_dropped,
            &self.residence,
            &self.residence_since,
            &self.residence_expected,
            &self.host_bytes,
            &self.used_ns,
            &self.evict_asked,
            &self.swap_ns,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in self.launch_words() {
            word.store(0, Ordering::Relaxed);
        }
        self.invalid.store(0, Ordering::Relaxed);
        self.evict_bell.store(0, Ordering::Relaxed);
        self.group.store(0, Ordering::Relaxed);
        self.launch_policy_source.store(0, Ordering::Relaxed);
        self.launch_policy
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        self.entry_of_device
            .iter()
            .for_each(|byte| byte.store(0, Ordering::Relaxed));
        self.entries.iter().for_each(DeviceEntry::clear);
    }
}

impl DeviceEntry {
    /// Clears an entry that is in use. Others are left alone, for a slot's entries are many pages.
    fn clear(&self) {
        if self.device.load(Ordering::Relaxed) != 0 {
            self.clear_all();
        }
    }

    /// Clears the entry. A thread of the last process may have written into an entry that was cleared, for example one that
    /// waited for memory and got what its own process gave back at its exit.
    pub(crate) fn clear_all(&self) {
        for word in [
            &self.used,
            &self.trying,
            &self.peak,
            &self.launch_quota,
            &self.launch_bytes,
            &self.evicted,
            &self.lock_since,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &self.vtime,
            &self.cap_until,
            &self.held_ns,
            &self.waited_ns,
            &self.acquisitions,
            &self.forced,
            &self.pulse_ns,
            &self.left_ns,
            &self.slack_ns,
            &self.late_ns,
            &self.charged_ns,
            &self.lost_ns,
            &self.lost,
            &self.ending,
            &self.line_bytes,
            &self.line_ticket,
            &self.line_since,
            &self.line_until,
            &self.line_pulse,
            &self.gap_ns,
            &self.deep_at,
            &self.deep_ns,
            &self.tolerance,
            &self.submission_ns,
            &self.activity_ns,
            &self.step_waited_ns,
            &self.reserve,
            &self.line_margin,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.lock_state.store(0, Ordering::Relaxed);
        self.mps.store(0, Ordering::Relaxed);
        self.queued.store(0, Ordering::Relaxed);
        self.card_slice.store(0, Ordering::Relaxed);
        self.line_limit.store(0, Ordering::Relaxed);
        self.releases
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        self.holds.clear();
        self.waits.clear();
        self.steps.clear();
        self.blamed
            .iter()
            .flatten()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        self.counters.clear();
        self.ordinal.store(0, Ordering::Relaxed);
        self.device.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, mem::offset_of, os::unix::fs::FileExt};

    use super::*;
    use crate::{Counters, Identity, LaunchLimits, layout::state::State, register};

    /// A word that is forgotten here would show through in the next process's account.
    #[test]
    fn who_has_a_slot_next_finds_nothing_of_the_last_ones_entry() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let process = register(&segments, &Identity::default(), &LaunchLimits::default());
        let process = process.expect("a slot");
        process.add_device([1; 16], 0, "", 1, 0).expect("an entry");
        let entry = offset_of!(State, slots)
            + usize::from(process.slot().index) * size_of::<Slot>()
            + offset_of!(Slot, entries);
        let file = File::options()
            .read(true)
            .write(true)
            .open(dir.path().join("state"))
            .expect("the segment's file");
        // All but the device, which says whether there is anything to clear.
        let begin = offset_of!(DeviceEntry, ordinal);
        let length = size_of::<DeviceEntry>() - begin;
        file.write_all_at(&vec![0x11; length], (entry + begin) as u64)
            .expect("written");
        segments.state().slots[usize::from(process.slot().index)].clear();
        let mut after = vec![0; length];
        file.read_exact_at(&mut after, (entry + begin) as u64)
            .expect("read");
        let counters = offset_of!(DeviceEntry, counters);
        let inner = Counters::FIELDS
            .iter()
            .map(|field| (field, counters + field.offset));
        let fields = DeviceEntry::FIELDS
            .iter()
            .filter(|field| field.name != "counters")
            .map(|field| (field, field.offset));
        for (field, offset) in fields.chain(inner) {
            // Reserved words are never written, and a sleeper on a grant only checks whether it has changed.
            let kept = field.name.starts_with('_') || field.name == "grant";
            let Some(at) = offset.checked_sub(begin).filter(|at| *at < length && !kept) else {
                continue;
            };
            let left = after[at..at + field.size].iter().any(|byte| *byte != 0);
            assert!(!left, "{} is left over", field.name);
        }
    }
}
