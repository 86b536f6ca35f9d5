//! The path that every allocation takes: reserve, the driver, remember; and where either has no room, wait for some.
//!
//! Allocations that find no room and wait for some (`on-full=wait`).
//!
//! What the program may rely on: it gets its memory when there is some, or the error that it would have got at once. It
//! waits in a call of its own that allocates, and nowhere else:
//!
//! | not | because |
//! |---|---|
//! | while this thread captures a stream | what is captured must not depend on when it is |
//! | in a callback of the driver | the driver's own thread would stand still, and with it the work whose end would free memory |
//! | in a launch or an upload of a graph | a launch is not expected to wait, and may be inside the gate |
//! | when a context's stacks and heaps are resized | it is not told from the settings of a launch |
//! | for more than there could ever be | nobody could make room |
//! | in a library that empties its own cache first | it is refused once, frees, and waits at its next try: see [`caches`] |
//!
//! Where the operator has overcommitted the device (`policy set GPU overcommit=on`, or `timeslice=T swap=on`), whoever finds it
//! full asks others to make room ([`QueueTicket::make_room`]), and waits for that even if it waits for nothing else. Meanwhile it may
//! be evicted itself: then it leaves the line, waits at the door, and lines up again when its own memory is back.
//!
//! The process holds no turn while it waits: who it waits for may wait for that. The driver is asked again when the
//! accounts say that it may have room by now, and once a second.
//!
//! Only the process itself can free what its own quota lacks. Where no thread of it could any more ([`stuck`](super::stuck)),
//! the allocation is refused after two seconds.

use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};
use shm_layout::{
    Denial, Limit, OnFull, Poll, QueueTicket, Reason, Reservation, Room as Making, Want, WantKind,
    clock, reap,
};

use crate::{
    current_context,
    driver::Symbol,
    driver_query::{context, memory as ask},
    eviction,
    hooks::{
        Real,
        memory::{
            account::{self, Account},
            caches,
            stuck::Stuck,
        },
    },
    thread::{self, Thread},
    tracking::record::Kind,
};

/// The path of an allocation: reserve, the driver, remember. `bytes` is `None` where the size is not known.
#[inline(always)]
pub fn allocate(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    account: Option<Account>,
    bytes: Option<u64>,
    kind: Kind,
    key: impl FnOnce() -> Option<u64>,
) -> CUresult {
    let Some(account) = account else {
        return account::unaccounted(real);
    };
    let Some(bytes) = bytes else {
        return real.call().inspect(|()| account.lost_track());
    };
    real.moves(bytes);
    let charged = granted(account, &real, bytes)?;
    account.keep(key().unwrap_or(0), charged, kind);
    Ok(())
}

/// Sets bytes aside and asks the driver, and where either has no room and the process waits for some, again until there is.
/// How many bytes are charged.
#[inline(always)]
pub fn granted<F: FnOnce() -> CUresult + Copy>(
    account: Account,
    real: &Real<'_, F>,
    bytes: u64,
) -> Result<u64, CUerror> {
    granted_by(account, real.symbol(), bytes, || real.again())
}

/// The same where `attempt` is what the driver is asked.
#[inline(always)]
pub fn granted_by(
    account: Account,
    symbol: Symbol,
    bytes: u64,
    mut attempt: impl FnMut() -> CUresult,
) -> Result<u64, CUerror> {
    let mut room = match account.ledger().reserve_at_once(bytes) {
        Some(reservation) => Room::from(reservation),
        None => room_or_deny(account, bytes, symbol)?,
    };
    account.keep_pools_within_limits();
    loop {
        match attempt() {
            Ok(()) => return Ok(room.granted()),
            Err(CUDA_ERROR_OUT_OF_MEMORY) => room = for_device(account, room, symbol)?,
            Err(error) => return Err(error),
        }
    }
}

#[cold]
#[inline(never)]
fn room_or_deny(account: Account, bytes: u64, symbol: Symbol) -> Result<Room, CUerror> {
    if let Some(denial) = blocked_by(account, bytes) {
        return for_limit(account, denial, symbol);
    }
    match account::reserve_or_reclaim(account, bytes) {
        Ok(reservation) => Ok(Room::from(reservation)),
        Err(denial) => for_limit(account, denial, symbol),
    }
}

/// Where turns include the memory: so long must nobody have been there who could make room.
const MOMENT_NS: u64 = 1_000_000_000;

/// Room for an allocation: its bytes, charged, and its place in the line where it had to wait.
#[must_use = "room that is dropped is given back"]
pub struct Room {
    bytes: Reservation<'static>,
    /// Kept until the driver has granted the bytes too. Boxed, for most allocations have none.
    place: Option<Box<QueueTicket<'static>>>,
}

impl From<Reservation<'static>> for Room {
    #[inline(always)]
    fn from(bytes: Reservation<'static>) -> Self {
        Self { bytes, place: None }
    }
}

impl Room {
    /// The driver has granted it. How many bytes stay charged.
    #[inline(always)]
    pub fn granted(self) -> u64 {
        if let Some(place) = self.place {
            place.complete();
        }
        self.bytes.commit()
    }
}

/// What one who waits has to let go first, though there may be room.
#[cold]
pub fn blocked_by(account: Account, bytes: u64) -> Option<Denial> {
    let registration = account.process().registration;
    let waits = registration.on_full().waits();
    waits.then(|| account.ledger().blocked_by(bytes, clock::now()))?
}

/// A limit denied it: waits for room under the limit, if this process waits here and now.
#[cold]
#[inline(never)]
pub fn for_limit(account: Account, denial: Denial, symbol: Symbol) -> Result<Room, CUerror> {
    let patient = account.process().registration.on_full().waits();
    let full = denial.limit == Limit::Device && account.ledger().overcommits();
    if !(patient || full) || !may_wait(account, &denial) {
        return Err(account.deny(&denial, symbol));
    }
    let want = Want {
        bytes: denial.asked,
        kind: WantKind::Allocation,
    };
    let _waits = WaitsForQuota::from(account.thread(), &denial);
    // Where another thread of the process has the place, this one waits for that first.
    let place = account.ledger().enqueue(want, denial, clock::now());
    wait_in_queue(account, Box::new(place)).map_err(|denial| account.deny(&denial, symbol))
}

/// The driver refused what the limits allowed: waits until it may have room.
#[cold]
#[inline(never)]
pub fn for_device(account: Account, room: Room, symbol: Symbol) -> Result<Room, CUerror> {
    let bytes = room.bytes.bytes();
    let place = room.place;
    // Given back before anything else: others may fit into less.
    drop(room.bytes);
    let denial = Denial {
        limit: Limit::Device,
        used: account.ledger().used(),
        quota: account.total_bytes(),
        asked: bytes,
    };
    let place = match place {
        Some(place) if place.is_over(clock::now()) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
        Some(place) => place,
        None if !waits(account) || !may_wait(account, &denial) => {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        None => {
            let kind = WantKind::Allocation;
            let ledger = account.ledger();
            Box::new(ledger.enqueue(Want { bytes, kind }, denial, clock::now()))
        }
    };
    if let Some(Ok(free)) = free_of(account) {
        account.ledger().publish_free(free);
    }
    place.refused_by_device(clock::now());
    let _waits = WaitsForQuota::from(account.thread(), &denial);
    wait_in_queue(account, place).map_err(|denial| match denial.limit {
        Limit::Device => CUDA_ERROR_OUT_OF_MEMORY,
        Limit::Process | Limit::Group => account.deny(&denial, symbol),
    })
}

/// Until it is dropped the thread waits, and it is noted while it waits for what only its process can free.
struct WaitsForQuota(&'static Thread);

impl WaitsForQuota {
    fn from(thread: &'static Thread, denial: &Denial) -> Self {
        thread.set_waits_for_quota(denial.limit == Limit::Process);
        Self(thread)
    }
}

impl Drop for WaitsForQuota {
    fn drop(&mut self) {
        self.0.set_waits_for_quota(false);
    }
}

/// Waits until the bytes are charged, or it is refused for good.
fn wait_in_queue(account: Account, mut place: Box<QueueTicket<'static>>) -> Result<Room, Denial> {
    let (process, ledger) = (account.process(), account.ledger());
    let began = place.began_ns();
    let mut alone_ns = None;
    let mut stuck = Stuck::default();
    for device in &process.devices {
        if device.turn.is_held() {
            device.turn.release(process, device, Reason::Explicit);
        }
    }
    loop {
        let now = clock::now();
        // Each time anew: the operator may have changed it.
        place.allow_until(match process.registration.on_full() {
            _ if process.is_leaving() => Some(0),
            // Who does not wait, waits all the same for room that others are making for it.
            OnFull::Fail if place.make_room(now) == Making::Coming => {
                alone_ns = None;
                None
            }
            // One on its way from one turn to the next is for a moment in no account.
            OnFull::Fail if ledger.memory_turn().is_some() => {
                Some(*alone_ns.get_or_insert(now) + MOMENT_NS)
            }
            OnFull::Fail => Some(0),
            on_full => {
                place.make_room(now);
                on_full.until(began)
            }
        });
        let is_own = place.denial().limit == Limit::Process;
        account.thread().set_waits_for_quota(is_own);
        place.own_threads_wait(is_own && stuck.poll(now));
        match place.look(now) {
            Poll::Granted(bytes) => {
                if ledger.memory_turn().is_some() && process.eviction.begin_turn(now) {
                    process.registration.publish_turn(now);
                }
                let place = Some(place);
                return Ok(Room { bytes, place });
            }
            Poll::Refused(denial) => {
                caches::forget(process, account.thread());
                return Err(denial);
            }
            Poll::Wait => {
                // Keepers do it once a second.
                if ledger.has_dead_members() {
                    reap(process.registration.segments(), now);
                }
                account.thread().outside(|| place.sleep(now));
                while thread::is_suspended() {
                    let wait = place.interrupt();
                    if account
                        .thread()
                        .outside(eviction::block_until_resumed)
                        .is_err()
                    {
                        return Err(wait.denial());
                    }
                    place = Box::new(ledger.enqueue_again(wait, clock::now()));
                }
            }
        }
    }
}

/// Whether this process waits for a device that is full: because it is to, or for others to make room.
fn waits(account: Account) -> bool {
    account.process().registration.on_full().waits() || account.ledger().overcommits()
}

/// Whether this call may wait for what was just denied.
fn may_wait(account: Account, denial: &Denial) -> bool {
    let process = account.process();
    !process.is_leaving()
        && account.ledger().could_ever(denial.asked).is_ok()
        && !account.thread().see_who_started_it()
        && !is_capturing(account)
        && free_of(account).is_none_or(|free| free.is_ok())
        && !caches::is_to_be_refused(process, account)
}

/// Whether a capture that the calling thread began is under way.
fn is_capturing(account: Account) -> bool {
    context::any_capturing() && {
        let begun = &account.process().memory.captures;
        let mine = begun.of(account.thread().number());
        mine.into_iter().any(context::is_capturing)
    }
}

/// What the driver says is free where the calling thread is, if that is the account's device. An error says that the driver
/// can do nothing for this thread just now: it is in a callback, or its context is lost.
fn free_of(account: Account) -> Option<Result<u64, CUerror>> {
    let here = current_context::of_thread(account.process(), account.thread());
    let (_, ordinal) = here.filter(|(context, _)| *context != 0)?;
    (ordinal == account.ordinal()).then(ask::free_bytes)
}
