//! Away, and the way back: waits until the memory is wanted, for room in line, and brings it.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use shm_layout::{
    Phase, Reservation, Why, clock,
    memory::queue::{Poll, QueueTicket},
};

use crate::{
    eviction::{
        eligible::Way,
        evictor::{Evictor, is_a_call, lose, open, restore_checkpoint},
        footprint::Footprint,
        gauge, measure,
        swap::{self, RestoreError},
    },
    managed_process::Device,
    notice,
    sys::futex::{self, Watch},
    thread,
};

/// What the driver had no room for after all is tried again so much later.
pub(super) const AGAIN: u64 = 1_000_000_000;
/// A call that is in the driver at so many looks in a row is stuck there.
const STUCK_LOOKS: u32 = 3;
/// Bytes a second, until they were measured (H100, 580.159.04).
const BACK: u64 = 5_000_000_000;
/// NVML is a second behind; what it says of the time after a step is read so much later.
const BEHIND: u64 = 1_500_000_000;

/// The account of a process ends before its memory has left the devices: by its last calls, and by so much more, as far as was
/// seen (25 GiB on an H200, 580.159.04).
const TEARDOWN: u64 = 2_000_000_000;
/// Who has ended their account and lives on is waited for so long.
const ENDING: u64 = 10_000_000_000;
/// A process that is on the device and can say what is free there does so within this time.
const ANSWER: u64 = 3_000_000_000;
/// Between two looks at who is ending, or answers.
const NAP: Duration = Duration::from_millis(20);

/// A place in a device's line, and the bytes that it was for.
type Room = (QueueTicket<'static>, Reservation<'static>);

/// What came of an attempt to come back.
enum Return {
    Done,
    /// The operator wants it to stay where it is.
    NotNow,
    /// The process ends.
    Leaving,
    Lost,
}

impl Evictor {
    /// On the host, until it is wanted.
    pub(super) fn wait_evicted(&mut self, footprints: &[Footprint<'static>]) {
        let eviction = &self.process.eviction;
        let mut stuck = 0;
        loop {
            // ORDER: what is rung for after a look ends the sleep.
            let rung = eviction.bell().load(std::sync::atomic::Ordering::Acquire);
            if eviction.ended.load(Relaxed) {
                return;
            }
            self.watch_goings();
            // A call that is there at one look may be one of NVML's, or on its way to the door.
            stuck = if self.is_stuck() { stuck + 1 } else { 0 };
            if stuck >= STUCK_LOOKS {
                eviction.want();
            }
            if self.may_restore() && clock::now() >= self.not_before {
                match self.restore(footprints) {
                    Return::Done | Return::Leaving | Return::Lost => return,
                    Return::NotNow => {}
                }
            }
            let watch = Watch {
                word: eviction.bell(),
                seen: rung,
                private: true,
            };
            futex::wait_any(&[watch], Duration::from_millis(100));
        }
    }

    /// Whether it is wanted and the operator lets it. What runs on unmanaged comes back as well.
    fn may_restore(&self) -> bool {
        self.process.is_leaving()
            || self.process.eviction.is_wanted() && !self.process.registration.share().evict
    }

    /// A thread is stuck in the driver: one of the driver's own, or one that was taken for that.
    fn is_stuck(&self) -> bool {
        thread::all().any(is_a_call)
    }

    /// Back, once there is room for all of it.
    fn restore(&mut self, footprints: &[Footprint<'static>]) -> Return {
        let (process, eviction) = (self.process, &self.process.eviction);
        let bytes = process.registration.evicted_bytes();
        if eviction.phase() != Phase::Returning {
            eviction.set_phase(Phase::Returning);
            self.say(Phase::Returning, bytes, 0);
        }
        let mut places: Vec<Room> = Vec::new();
        for footprint in footprints {
            match self.reserve(footprint) {
                Ok(place) => places.push(place),
                Err(why_not) => {
                    if matches!(why_not, Return::NotNow) {
                        eviction.set_phase(Phase::Evicted);
                        self.say(Phase::Evicted, bytes, 0);
                    }
                    return why_not;
                }
            }
        }
        let began = clock::now();
        eviction.set_phase(Phase::Restoring);
        let rate = match self.way {
            Way::Checkpoint => BACK,
            Way::Swap(_) => swap::RATE,
        };
        self.say(Phase::Restoring, bytes, eviction.back_ns(bytes, rate));
        match self.bring() {
            Ok(()) => {}
            Err(RestoreError::Full) => {
                // Nothing is lost: programs that we do not manage were faster. It lines up again, after a while.
                notice::once(
                    notice::Cause::Full,
                    format_args!(
                        "the driver has no room for the memory that is to come back from the host ({bytes} bytes); nothing is lost, \
                         its calls wait, and it tries again; gpushare ps shows what is on the device"
                    ),
                );
                self.not_before = clock::now().saturating_add(AGAIN);
                eviction.set_phase(Phase::Returning);
                self.say(Phase::Returning, bytes, 0);
                return Return::NotNow;
            }
            Err(RestoreError::Lost(error)) => {
                lose(process, Why::RestoreFailed, error);
                return Return::Lost;
            }
        }
        let took = clock::now().saturating_sub(began);
        eviction.measured_back(bytes, took);
        process
            .registration
            .publish_swap_time(eviction.swap_ns.load(Relaxed));
        for (footprint, (place, reservation)) in footprints.iter().zip(places) {
            let ledger = &footprint.device.ledger;
            ledger.returned(reservation.commit().saturating_sub(ledger.evicted()));
            place.complete();
            drop(place);
            measure::publish(process, footprint.device);
        }
        self.publish_host_bytes();
        self.say(Phase::Resident, bytes, 0);
        self.asking = None;
        open(process);
        Return::Done
    }

    fn bring(&self) -> Result<(), RestoreError> {
        match self.way {
            Way::Checkpoint => restore_checkpoint(),
            Way::Swap(_) => swap::restore(self.process),
        }
    }

    /// What is free on a device; by NVML in a process whose driver does not answer, which is a second behind.
    fn free_bytes(&self, device: &'static Device, seen: &mut (u64, u64)) -> Option<u64> {
        let ledger = &device.ledger;
        match self.way {
            Way::Checkpoint => gauge::free_bytes(self.process, device)
                .inspect(|free| ledger.publish_free_late(*free, BEHIND, seen)),
            Way::Swap(_) => swap::free_bytes(self.process, device.ordinal)
                .inspect(|free| ledger.publish_free(*free)),
        }
    }

    /// Waits in line for room on one device: what the limits that are shared with others leave, and what the card has.
    fn reserve(&mut self, footprint: &Footprint<'static>) -> Result<Room, Return> {
        let ledger = &footprint.device.ledger;
        let bytes = ledger.evicted().saturating_add(footprint.besides);
        // What it had whole must fit again, however little was beside it.
        let most = footprint
            .device
            .total_bytes
            .saturating_sub(ledger.outside());
        let margin = footprint.margin.min(most.saturating_sub(bytes));
        let mut seen = (0, 0);
        let place = ledger.enqueue_return(bytes, margin, clock::now());
        loop {
            self.is_still_on_its_way()?;
            let free = self.free_bytes(footprint.device, &mut seen);
            self.watch_goings();
            let now = clock::now();
            // Where the device is overcommitted, it asks others to go as they asked it.
            place.make_room(now);
            if let Poll::Granted(reservation) = place.look(now) {
                // Programs that we do not manage are in no account. Where NVML does not answer, what was outside must do.
                match free {
                    Some(free) if free < bytes.saturating_add(margin) => {
                        drop(reservation);
                        place.refused_by_device(now);
                    }
                    Some(_) => return Ok((place, reservation)),
                    None => {
                        self.let_them_end()?;
                        if self.is_measured_room(footprint.device, margin)? {
                            return Ok((place, reservation));
                        }
                        drop(reservation);
                        place.refused_by_device(clock::now());
                    }
                }
            }
            place.sleep(now);
        }
    }

    /// Whether the device has the room that was just granted. The accounts do not know what contexts take, what pools keep, and what
    /// programs have that are not managed: a process that is there is asked, where there is one.
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

    /// There is room by the accounts, and the device does not say whether it has it: waits until who has given up an account is
    /// off the devices. Who goes from now on only makes more room.
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
