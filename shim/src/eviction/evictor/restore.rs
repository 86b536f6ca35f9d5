//! The evicted state and the restore: waits until the memory is wanted, waits in the memory queue for room, and
//! restores it.

use std::{
    sync::atomic::Ordering::{Acquire, Relaxed},
    time::Duration,
};

use shm_layout::{
    Phase, Reservation, Why, clock, control_bell,
    memory::queue::{Poll, QueueTicket},
};

use crate::{
    eviction::{
        eligible::Way,
        evictor::{Evictor, admit_queries, lose, open, restore_checkpoint},
        footprint::Footprint,
        gauge, is_a_call,
        swap::{self, Coming, RestoreError},
        upkeep,
    },
    gate,
    managed_process::Device,
    notice,
    sys::{
        barrier,
        futex::{self, Watch},
    },
    thread,
};

/// Delay after the driver had no room for a restore, in nanoseconds.
pub(super) const AGAIN: u64 = 1_000_000_000;
/// Number of successive polls with a call in the driver after which the call counts as stuck.
const STUCK_LOOKS: u32 = 3;
/// Assumed restore rate in bytes per second until one was measured (H100, 580.159.04).
pub(super) const BACK: u64 = 5_000_000_000;
/// Delay of NVML's figures in nanoseconds: figures for the time after a step are read this much later.
const BEHIND: u64 = 1_500_000_000;

/// Time by which the memory of an ended process may stay on the devices after its account has ended, in nanoseconds;
/// measured with 25 GiB on an H200, 580.159.04.
const TEARDOWN: u64 = 2_000_000_000;
/// Longest wait for a process that has ended its account and still runs, in nanoseconds.
const ENDING: u64 = 10_000_000_000;
/// Longest wait for queries that are in the driver before a restore, in nanoseconds; a call that waits in NVML stays
/// there until the restore.
const QUERIES: u64 = 100_000_000;
/// Longest wait for another process on the device to publish what is free, in nanoseconds.
const ANSWER: u64 = 3_000_000_000;
/// Polling period of processes that end or measure.
const NAP: Duration = Duration::from_millis(20);
/// Time for which rooms on earlier devices are kept while another device has none and other processes wait for them, in nanoseconds.
const KEEPS_ROOMS: u64 = 2_000_000_000;
/// Delay after the driver had no room for one part.
const LATER: Duration = Duration::from_millis(2);

/// A place in a device's memory queue, and the bytes reserved for it.
struct Room {
    // Dropped first: the place marks bytes that the driver has not given yet.
    reservation: Reservation<'static>,
    place: QueueTicket<'static>,
    /// The memory was restored in parts as the room came. The value is the time that this took without waits, in nanoseconds.
    arrived_ns: Option<u64>,
}

/// The result of an attempt to restore.
enum Return {
    Done,
    /// The operator wants the memory to stay on the host, the driver had no room, or a process that comes first lacks the rest.
    NotNow,
    /// The process lets others go first for a while, and keeps its places in the queues.
    Yields,
    /// The process ends.
    Leaving,
    Lost,
}

impl Evictor {
    /// Waits while the memory is on the host, and restores it when it is wanted.
    pub(super) fn wait_evicted(&mut self, mut footprints: Vec<Footprint<'static>>) {
        let eviction = &self.process.eviction;
        let edits = control_bell(self.process.registration.segments());
        let mut stuck = 0;
        loop {
            // ORDER: Acquire, so that a ring or an edit after the checks below ends the sleep.
            let rung = eviction.bell().load(Acquire);
            let edited = edits.load(Acquire);
            if eviction.ended.load(Relaxed) {
                return;
            }
            self.watch_goings();
            if self.process.registration.share().evict {
                self.kept_ns = clock::now();
            }
            if !self.may_restore() {
                self.places.clear();
            }
            // A call seen at only one poll may be one of NVML's, or about to wait for the end of the suspension.
            stuck = if self.is_stuck() { stuck + 1 } else { 0 };
            if stuck >= STUCK_LOOKS {
                eviction.want();
            }
            if let Some(cause) = self.is_rest_to_leave(&footprints) {
                match self.evict_rest(cause, &mut footprints) {
                    // It may be wanted already.
                    Ok(()) => continue,
                    Err((why, error)) => return lose(self.process, why, error),
                }
            } else if self.may_restore() && clock::now() >= self.not_before {
                match self.restore(&self.whole(&footprints)) {
                    Return::Done | Return::Leaving | Return::Lost => return,
                    Return::NotNow => self.places.clear(),
                    Return::Yields => {}
                }
            } else if !self.may_restore()
                && self.is_to_deepen(&footprints)
                && let Err((why, error)) = self.deepen()
            {
                return lose(self.process, why, error);
            }
            let watches = [
                Watch {
                    word: eviction.bell(),
                    seen: rung,
                    private: true,
                },
                Watch {
                    word: edits,
                    seen: edited,
                    private: false,
                },
            ];
            futex::wait_any(&watches, Duration::from_millis(100));
        }
    }

    /// Returns true if the memory is wanted or pinned, and the operator allows a restore. A process that becomes unmanaged
    /// is restored as well.
    fn may_restore(&self) -> bool {
        let share = self.process.registration.share();
        let wanted = self.process.eviction.is_wanted() || share.pinned;
        self.process.is_leaving() || wanted && !share.evict
    }

    /// Returns true if a thread is in the driver that is one of the driver's own, or was taken for one. After copies
    /// the driver answers queries. After a checkpoint one that stays in the driver ends the eviction.
    fn is_stuck(&self) -> bool {
        let are_answered = !self.is_checkpointed();
        thread::all().any(|thread| is_a_call(thread) && !(are_answered && thread.is_asking()))
    }

    /// Suspends queries too, and waits until none is in the driver.
    pub(super) fn suspend_queries(&self) {
        gate::suspend(&thread::SUSPENSION);
        barrier::heavy();
        let until = clock::now().saturating_add(QUERIES);
        while !self.is_empty() && clock::now() < until {
            futex::nap(Duration::from_millis(1));
        }
    }

    /// Waits for room on all devices, and restores the memory.
    fn restore(&mut self, footprints: &[Footprint<'static>]) -> Return {
        let (process, eviction) = (self.process, &self.process.eviction);
        let bytes = process.registration.evicted_bytes();
        if eviction.phase() != Phase::Returning {
            eviction.set_phase(Phase::Returning);
            self.say(Phase::Returning, bytes, 0);
        }
        let mut rooms: Vec<Room> = Vec::new();
        let in_parts = footprints.len() == 1 && !self.is_checkpointed();
        for (at, footprint) in footprints.iter().enumerate() {
            match self.reserve(footprint, &footprints[..at], in_parts) {
                Ok(room) => rooms.push(room),
                Err(why_not) => {
                    if matches!(why_not, Return::NotNow | Return::Yields) {
                        eviction.set_phase(Phase::Evicted);
                        self.say(Phase::Evicted, bytes, 0);
                    }
                    return why_not;
                }
            }
        }
        let took = match rooms.iter().find_map(|room| room.arrived_ns) {
            Some(took) => took,
            None => match self.bring_whole(bytes) {
                Ok(took) => took,
                Err(why_not) => return why_not,
            },
        };
        let now = clock::now();
        eviction.figures.count_restore(took, self.waited_ns(now));
        upkeep::publish_figures(process, now);
        process
            .registration
            .publish_swap_time(eviction.swap_ns.load(Relaxed));
        for (footprint, room) in footprints.iter().zip(rooms) {
            let ledger = &footprint.device.ledger;
            ledger.returned(room.reservation.commit().saturating_sub(ledger.evicted()));
            room.place.complete();
            drop(room.place);
            upkeep::publish_free(process, footprint.device);
        }
        self.deep = None;
        self.publish_host_bytes();
        self.say(Phase::Resident, bytes, 0);
        self.asking = None;
        eviction.restored(clock::now());
        open(process);
        Return::Done
    }

    /// Moves all memory to the devices, which have room. Returns the time that this took, in nanoseconds.
    fn bring_whole(&mut self, bytes: u64) -> Result<u64, Return> {
        let eviction = &self.process.eviction;
        let began = clock::now();
        self.begin_to_restore(bytes);
        match self.bring() {
            Ok(deep_ns) => {
                let took = clock::now().saturating_sub(began);
                eviction.measured_back(bytes, took.saturating_sub(deep_ns));
                Ok(took)
            }
            Err(RestoreError::Full) => {
                // No memory is lost: unmanaged programs took the room. The process waits in the queue again after a
                // delay.
                notice::once(
                    notice::Cause::Full,
                    format_args!(
                        "the driver has no room for the memory that is to come back from the host ({bytes} bytes); nothing is lost, \
                         its calls wait, and it tries again; gpushare ps shows what is on the device"
                    ),
                );
                self.not_before = clock::now().saturating_add(AGAIN);
                self.wait_for_room(bytes);
                Err(Return::NotNow)
            }
            Err(RestoreError::Lost(error)) => {
                lose(self.process, Why::RestoreFailed, error);
                Err(Return::Lost)
            }
        }
    }

    fn begin_to_restore(&self, bytes: u64) {
        let eviction = &self.process.eviction;
        eviction.set_phase(Phase::Restoring);
        let rate = match self.way {
            Way::Checkpoint => BACK,
            Way::Swap(_) => swap::RATE,
        };
        let expected_ns = eviction.back_ns(bytes, rate);
        let deep_ns = self.deep.as_ref().map_or(0, |_| self.deep_ns());
        self.say(Phase::Restoring, bytes, expected_ns + deep_ns);
    }

    fn wait_for_room(&self, bytes: u64) {
        self.process.eviction.set_phase(Phase::Returning);
        self.say(Phase::Returning, bytes, 0);
    }

    /// Restores allocation by allocation, each as soon as there is room for it, while the memory of other processes leaves the
    /// device. Returns the reserved bytes and the time that this took without waits, or `None` if the rest does not come: then
    /// nothing is on the device.
    fn bring_in_parts(
        &mut self,
        place: &QueueTicket<'static>,
        bytes: u64,
    ) -> Result<Option<(u64, u64)>, Return> {
        let Ok(mut coming) = Coming::begin(self.process) else {
            return Ok(None);
        };
        self.begin_to_restore(bytes);
        let (began, mut waited_ns) = (clock::now(), 0);
        let mut parts: Vec<Reservation<'static>> = Vec::new();
        let ended = loop {
            let now = clock::now();
            if let Err(why_not) = self.is_still_on_its_way() {
                break Err(why_not);
            }
            let Some(next) = coming.next_bytes() else {
                break Ok(coming.wait().is_ok());
            };
            let goes_on = place.is_room_leaving(now);
            if let Some(part) = place.take_part(next, now) {
                match coming.bring_next() {
                    Ok(true) => {
                        parts.push(part);
                        continue;
                    }
                    // Memory in no account has grown. More is on its way, and may be there before the accounts change.
                    Ok(false) => {
                        place.put_back(part, next);
                        futex::nap(LATER);
                    }
                    Err(_) => break Ok(false),
                }
            }
            if !goes_on {
                break Ok(false);
            }
            // Less may leave than expected.
            place.make_room(now);
            place.sleep(now);
            waited_ns += clock::now().saturating_sub(now);
        };
        if let Ok(true) = ended {
            coming.complete();
            let took_ns = clock::now().saturating_sub(began).saturating_sub(waited_ns);
            let reserved = parts.into_iter().map(Reservation::commit).sum();
            self.process.eviction.measured_back(bytes, took_ns);
            return Ok(Some((reserved, took_ns)));
        }
        coming.give_back();
        drop(parts);
        place.give_back();
        self.wait_for_room(bytes);
        self.parts_not_before = clock::now().saturating_add(AGAIN);
        ended.map(|_| None)
    }

    /// Returns for how long calls have waited for the memory, without the time for which the operator kept it on the host.
    fn waited_ns(&self, now_ns: u64) -> Option<u64> {
        let since_ns = self.process.eviction.wanted_since()?;
        Some(now_ns.saturating_sub(since_ns.max(self.kept_ns)))
    }

    /// Moves the memory to the devices. Returns how long the checkpoint of what copies had left took of it, in nanoseconds.
    fn bring(&mut self) -> Result<u64, RestoreError> {
        let began = clock::now();
        if self.is_checkpointed() {
            self.suspend_queries();
            restore_checkpoint().inspect_err(|error| {
                if matches!(error, RestoreError::Full) {
                    admit_queries(gate::CHECKPOINTED);
                }
            })?;
        }
        if self.way == Way::Checkpoint {
            return Ok(0);
        }
        let deep_ns = match self.deep {
            Some(_) => self.measured_deep(clock::now().saturating_sub(began)),
            None => 0,
        };
        swap::restore(self.process).inspect_err(|error| {
            if matches!(error, RestoreError::Full) {
                self.is_shallow_again();
            }
        })?;
        Ok(deep_ns)
    }

    /// Returns the free bytes of a device. In a process whose driver does not return, NVML reports them, a second
    /// late.
    fn free_bytes(&self, device: &'static Device, seen: &mut (u64, u64)) -> Option<u64> {
        let ledger = &device.ledger;
        match self.is_checkpointed() {
            true => gauge::free_bytes(self.process, device)
                .inspect(|free| ledger.publish_free_late(*free, BEHIND, seen)),
            false => swap::free_bytes(self.process, device.ordinal)
                .inspect(|free| ledger.publish_free(*free)),
        }
    }

    /// Waits in the memory queue for room on one device, within the shared limits and within what the device has
    /// free, while it has room on the `earlier` ones. With `in_parts` the memory may be restored before all of its room is there.
    fn reserve(
        &mut self,
        footprint: &Footprint<'static>,
        earlier: &[Footprint<'static>],
        in_parts: bool,
    ) -> Result<Room, Return> {
        let ledger = &footprint.device.ledger;
        let bytes = ledger.evicted().saturating_add(footprint.besides);
        // The whole footprint must fit again, even if little was free beside it.
        let most = footprint
            .device
            .total_bytes
            .saturating_sub(ledger.outside());
        let margin = footprint.margin.min(most.saturating_sub(bytes));
        let mut seen = (0, 0);
        let (began_ns, ordinal) = (clock::now(), footprint.device.ordinal);
        let before = self.places.iter().find(|(of, _)| *of == ordinal);
        let place = match before {
            Some((_, before)) => ledger.enqueue_return_at(*before, bytes, margin, began_ns),
            None => ledger.enqueue_return(bytes, margin, began_ns),
        };
        if before.is_none() {
            self.places.push((ordinal, place.place()));
        }
        loop {
            self.is_still_on_its_way()?;
            if self.is_rest_lacking(clock::now()) {
                // Otherwise two processes could wait for each other's rest.
                return Err(Return::NotNow);
            }
            if self.is_to_yield(earlier, began_ns, clock::now()) {
                self.not_before = clock::now().saturating_add(AGAIN);
                return Err(Return::Yields);
            }
            let free = self.free_bytes(footprint.device, &mut seen);
            self.watch_goings();
            let now = clock::now();
            // On an overcommitted device the process asks others to evict, as they asked it.
            place.make_room(now);
            if let Poll::Granted(reservation) = place.poll(now) {
                // Unmanaged programs are in no account. If NVML reports nothing, the last known use outside of the
                // accounts is used. The room may have come after the first measurement.
                let is_enough = |free: u64| free >= bytes.saturating_add(margin);
                let fits = match free {
                    Some(free) => {
                        is_enough(free)
                            || self
                                .free_bytes(footprint.device, &mut seen)
                                .is_some_and(is_enough)
                    }
                    None => {
                        self.let_them_end()?;
                        self.is_measured_room(footprint.device, margin)?
                    }
                };
                if fits {
                    return Ok(Room {
                        place,
                        reservation,
                        arrived_ns: None,
                    });
                }
                drop(reservation);
                place.refused_by_device(clock::now());
            } else if in_parts
                && now >= self.parts_not_before
                && place.is_room_leaving(now)
                && let Some((reserved, took_ns)) = self.bring_in_parts(&place, bytes)?
            {
                return Ok(Room {
                    place,
                    reservation: ledger.reopen(reserved),
                    arrived_ns: Some(took_ns),
                });
            }
            place.sleep(now);
        }
    }

    /// Returns true if room that the process has on `earlier` devices, and does not use yet, has to be given up: the operator holds
    /// the process back, or others wait for that room, who may hold what it waits for.
    fn is_to_yield(&self, earlier: &[Footprint<'static>], since_ns: u64, now: u64) -> bool {
        let is_paused = || self.process.registration.share().paused;
        let has_waited = now.saturating_sub(since_ns) >= KEEPS_ROOMS;
        let mut ledgers = earlier.iter().map(|one| &one.device.ledger);
        !earlier.is_empty()
            && (is_paused() || has_waited && ledgers.any(|ledger| ledger.is_waited_for(now)))
    }

    /// Returns true if the device has the granted room. The accounts contain neither contexts, nor memory kept by
    /// pools, nor that of unmanaged programs. Another process on the device measures it, if there is one.
    fn is_measured_room(&self, device: &'static Device, margin: u64) -> Result<bool, Return> {
        let ledger = &device.ledger;
        let since = clock::now();
        let until = since.saturating_add(ANSWER);
        while !ledger.is_measured_since(since)
            && clock::now() < until
            && ledger.can_others_measure()
        {
            self.is_still_on_its_way()?;
            futex::nap(NAP);
        }
        Ok(ledger.has_room_beside(margin))
    }

    fn is_still_on_its_way(&self) -> Result<(), Return> {
        if self.process.eviction.ended.load(Relaxed) {
            return Err(Return::Leaving);
        }
        if !self.may_restore() {
            return Err(Return::NotNow);
        }
        Ok(())
    }

    fn watch_goings(&mut self) {
        let now_seen = self.process.registration.slots_generation();
        if self.goings.0 != now_seen {
            self.goings = (now_seen, clock::now());
        }
    }

    /// Waits until processes that have ended their accounts are off the devices. The accounts show room, but the
    /// device does not report whether it is free yet. Processes that end later only free more.
    fn let_them_end(&mut self) -> Result<(), Return> {
        let until = clock::now().saturating_add(ENDING);
        let mut gone_ns = self.goings.1;
        loop {
            self.is_still_on_its_way()?;
            let now = clock::now();
            if now < until && self.process.registration.is_anyone_ending() {
                gone_ns = now;
            }
            if now >= gone_ns.saturating_add(TEARDOWN) {
                return Ok(());
            }
            futex::nap(NAP);
        }
    }
}
