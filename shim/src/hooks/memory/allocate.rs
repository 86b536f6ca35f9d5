//! The path of every allocation: reserve the bytes, call the driver, add the record. If there is no room, wait for
//! it.
//!
//! Allocations wait under `on-full=wait`. The program gets its memory when there is room, or the error that it would
//! have got at once. It waits only in its own call that allocates, and not in these cases:
//!
//! | not | because |
//! |---|---|
//! | while this thread captures a stream | the captured work must not depend on the time of the capture |
//! | in a callback of the driver | the driver's own thread would stop, and with it the work whose end would free memory |
//! | for the memory that a graph allocates in its launch | a launch is not expected to wait for a quota |
//! | for more than the limit or the device has | no process could free enough |
//! | in a library that empties its own cache first | it is refused once, frees its cache, and waits at its next attempt: see `caches` |
//!
//! On an overcommitted device (`policy set GPU overcommit=on`, or `timeslice=T swap=on`) a process that finds it full
//! asks others to evict ([`QueueTicket::make_room`]), and waits for that even if it waits for nothing else. In that
//! time it may be evicted itself: it then leaves the queue, waits until it is restored, and joins the queue again.
//!
//! The driver also needs memory that is in no account: for a context, and later, at a call that seems to need none, for the
//! code of a kernel. Such a call waits only for a full device: see [`code`](super::code).
//!
//! The process holds no turn while it waits, because the process that frees memory may need the turn. The driver is
//! called again when the accounts show that it may have room, and once a second.
//!
//! A driver that refuses for two seconds although it reports plenty of free memory lacks something that no other process
//! could give, and its error stands (`plenty`).
//!
//! Only the process itself can free memory under its own quota. If none of its threads could any more
//! (`stuck`), the allocation is refused after two seconds.

use std::sync::atomic::Ordering::Relaxed;

use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};
use shm_layout::{
    Denial, Ledger, Limit, OnFull, Poll, QueueTicket, Reason, Reservation, Room as Making, Want,
    WantKind, clock, reap,
};

use crate::{
    driver::Symbol,
    eviction,
    hooks::{
        Real,
        memory::{
            account::{self, Account},
            caches,
            plenty::{Plenty, free_of, has_plenty},
            stuck::Stuck,
        },
    },
    sys::caller_state::Uncancelled,
    thread::{self, Thread},
    tracking::{pending_frees::Claim, record::Kind},
};

/// Forwards an allocation: reserves, calls the driver, adds the record. `bytes` is `None` if the size is unknown.
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

/// Reserves bytes and calls the driver. If either has no room and the process may wait, it repeats until there is
/// room. Returns the charged bytes.
#[inline(always)]
pub fn granted<F: FnOnce() -> CUresult + Copy>(
    account: Account,
    real: &Real<'_, F>,
    bytes: u64,
) -> Result<u64, CUerror> {
    granted_by(account, real.symbol(), bytes, || real.again())
}

/// Does the same as [`granted`], with `attempt` as the call of the driver.
#[inline(always)]
pub fn granted_by(
    account: Account,
    symbol: Symbol,
    bytes: u64,
    mut attempt: impl FnMut() -> CUresult,
) -> Result<u64, CUerror> {
    let room = match account.ledger().reserve_at_once(bytes) {
        Some(reservation) => Room::from(reservation),
        None => room_or_deny(account, bytes, symbol)?,
    };
    let mut room = room.settle_pools(account, symbol)?;
    if account.device().sees_alone.load(Relaxed) {
        room = with_headroom(account, room, symbol)?;
    }
    match room.attempt(account, &mut attempt) {
        Ok(()) => Ok(room.granted()),
        Err(CUDA_ERROR_OUT_OF_MEMORY) => after_refusal(account, room, symbol, &mut attempt),
        Err(error) => Err(error),
    }
}

/// Waits for room on the device and calls the driver again, until it grants the bytes or the refusal stands.
#[cold]
#[inline(never)]
fn after_refusal(
    account: Account,
    mut room: Room,
    symbol: Symbol,
    attempt: &mut dyn FnMut() -> CUresult,
) -> Result<u64, CUerror> {
    let mut plenty = Plenty::default();
    loop {
        // Nothing that other processes free would help, for example if a pool has reached its own maximum.
        if waits(account) && is_plenty_for(account, &room, &mut plenty) {
            caches::forget(account.process(), account.thread());
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        room = for_device(account, room, symbol)?;
        match room.attempt(account, &mut *attempt) {
            Ok(()) => return Ok(room.granted()),
            Err(CUDA_ERROR_OUT_OF_MEMORY) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_plenty_for(account: Account, room: &Room, plenty: &mut Plenty) -> bool {
    let _uncancelled = Uncancelled::enter();
    plenty.lasts_for(account, room.bytes.bytes())
}

/// On an overcommitted device: waits until the allocation leaves some memory free, as long as other processes make room. The
/// driver fails calls in many ways when it has no memory for a context or a module.
#[cold]
#[inline(never)]
fn with_headroom(account: Account, mut room: Room, symbol: Symbol) -> Result<Room, CUerror> {
    let _uncancelled = Uncancelled::enter();
    let bytes = room.bytes.bytes();
    let rests = &account.device().no_headroom_ns;
    let began = clock::now();
    let mut now = began;
    while now >= rests.load(Relaxed) && lacks_headroom(account, bytes, now) {
        let waited = now.saturating_sub(began);
        if waited > HEADROOM_WAIT_NS {
            rests.store(now.saturating_add(HEADROOM_REST_NS), Relaxed);
            break;
        }
        let found = wait_again(account, room, symbol);
        now = clock::now();
        room = match found {
            Ok(room) => room.settle_pools(account, symbol)?,
            // Nobody makes room, so the allocation may have the last bytes.
            Err(_) => {
                rests.store(now.saturating_add(HEADROOM_REST_NS), Relaxed);
                return room_or_deny(account, bytes, symbol)?.settle_pools(account, symbol);
            }
        };
    }
    Ok(room)
}

/// Returns true if the driver reports that an allocation would leave too little free.
fn lacks_headroom(account: Account, bytes: u64, now_ns: u64) -> bool {
    let headroom = account.ledger().headroom(now_ns);
    let is_short = |free: u64| free < bytes.saturating_add(headroom);
    headroom != 0 && matches!(free_of(account), Some(Ok(free)) if is_short(free))
}

#[cold]
#[inline(never)]
fn room_or_deny(account: Account, bytes: u64, symbol: Symbol) -> Result<Room, CUerror> {
    let _uncancelled = Uncancelled::enter();
    if account.ledger().wants_measurement()
        && let Some(Ok(free)) = free_of(account)
    {
        account.ledger().publish_free(free);
    }
    if let Some(denial) = blocked_by(account, bytes) {
        return in_queue(account, denial, symbol, Ledger::enqueue_behind);
    }
    match account::reserve_or_reclaim(account, bytes) {
        Ok(reservation) => Ok(Room::from(reservation)),
        Err(denial) => for_limit(account, denial, symbol),
    }
}

/// Longest wait of an allocation for headroom, in nanoseconds.
const HEADROOM_WAIT_NS: u64 = 2_000_000_000;
/// Time after a wait without success until allocations wait for headroom again, in nanoseconds.
const HEADROOM_REST_NS: u64 = 10_000_000_000;

/// Under `swap=on`: how long there must have been no process to evict before an allocation fails, in nanoseconds.
const MOMENT_NS: u64 = 1_000_000_000;

/// Room for an allocation: its reserved bytes, and its place in the memory queue if it had to wait.
#[must_use = "room that is dropped is given back"]
pub struct Room {
    /// The memory of a pending free that the allocation may use. Dropped before `bytes`, because it must count as pending first.
    claim: Option<Claim<'static>>,
    bytes: Reservation<'static>,
    /// Kept until the driver has granted the bytes too. Boxed, because most allocations have none.
    pub(super) place: Option<Box<QueueTicket<'static>>>,
}

impl From<Reservation<'static>> for Room {
    #[inline(always)]
    fn from(bytes: Reservation<'static>) -> Self {
        Self {
            claim: None,
            bytes,
            place: None,
        }
    }
}

impl Room {
    /// Keeps the memory of the process's pools within the limits. Repeated each time the bytes are reserved anew, because other threads
    /// may have allocated in between.
    #[inline(always)]
    fn settle_pools(mut self, account: Account, symbol: Symbol) -> Result<Self, CUerror> {
        let place = &mut self.place;
        // The process may be evicted during a wait, and its return needs a place in the queue itself.
        let give_place_up = || {
            if let Some(place) = place.take() {
                place.complete();
            }
        };
        self.claim = account.settle_pools(self.bytes.bytes(), symbol, give_place_up)?;
        Ok(self)
    }

    /// Calls the driver for the bytes.
    #[inline(always)]
    fn attempt(&mut self, account: Account, attempt: impl FnOnce() -> CUresult) -> CUresult {
        match self.claim.take() {
            None => attempt(),
            Some(claim) => account.allocate_claimed(claim, attempt),
        }
    }

    /// Commits the bytes after the driver has granted them. Returns the charged bytes.
    #[inline(always)]
    pub fn granted(self) -> u64 {
        if let Some(place) = self.place {
            place.complete();
        }
        self.bytes.commit()
    }
}

/// Returns the denial if other processes wait in the queue, so that this one must wait behind them even if there is
/// room.
#[cold]
pub fn blocked_by(account: Account, bytes: u64) -> Option<Denial> {
    let registration = account.process().registration;
    let waits = registration.on_full().waits();
    waits.then(|| account.ledger().blocked_by(bytes, clock::now()))?
}

/// Waits for room under a limit that has denied an allocation, or returns the error if this call must not wait.
#[cold]
#[inline(never)]
pub fn for_limit(account: Account, denial: Denial, symbol: Symbol) -> Result<Room, CUerror> {
    in_queue(account, denial, symbol, Ledger::enqueue)
}

/// Waits in the memory queue, or returns the error if this call must not wait.
fn in_queue(
    account: Account,
    denial: Denial,
    symbol: Symbol,
    enqueue: impl FnOnce(&Ledger<'static>, Want, Denial, u64) -> QueueTicket<'static>,
) -> Result<Room, CUerror> {
    let patient = account.process().registration.on_full().waits();
    let full = denial.limit == Limit::Device && account.ledger().overcommits();
    if !(patient || full) || !may_wait(account, &denial) {
        return Err(account.deny(&denial, symbol));
    }
    let want = Want {
        bytes: denial.asked,
        kind: WantKind::Allocation,
    };
    let _waits = WaitsForQuota::begin(account.thread());
    // If another thread of the process has the place in the queue, this one waits for that thread first.
    let place = enqueue(account.ledger(), want, denial, clock::now());
    wait_in_queue(account, Box::new(place)).map_err(|denial| account.deny(&denial, symbol))
}

/// Waits until the driver may have room, after it has refused an allocation that the limits allowed.
#[cold]
#[inline(never)]
pub fn for_device(account: Account, room: Room, symbol: Symbol) -> Result<Room, CUerror> {
    wait_again(account, room, symbol)?.settle_pools(account, symbol)
}

fn wait_again(account: Account, room: Room, symbol: Symbol) -> Result<Room, CUerror> {
    let bytes = room.bytes.bytes();
    // The reservation is released first, because others may fit into less.
    drop(room.claim);
    drop(room.bytes);
    wait_for_device(account, bytes, room.place, symbol)
}

/// Waits until the driver may have room for `bytes`, in `place` of the queue or in a new one.
#[cold]
#[inline(never)]
pub(super) fn wait_for_device(
    account: Account,
    bytes: u64,
    place: Option<Box<QueueTicket<'static>>>,
    symbol: Symbol,
) -> Result<Room, CUerror> {
    let _uncancelled = Uncancelled::enter();
    let _waits = WaitsForQuota::begin(account.thread());
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
    let free = free_of(account).and_then(Result::ok);
    if let Some(free) = free {
        account.ledger().publish_free(free);
    }
    place.refused_by_device(clock::now());
    // On an overcommitted device much is free for moments, between a process that leaves and one that returns.
    if free.is_some_and(|free| has_plenty(account, free, bytes)) && !account.ledger().overcommits()
    {
        place.ask_again_soon(clock::now());
    }
    wait_in_queue(account, place).map_err(|denial| match denial.limit {
        Limit::Device => CUDA_ERROR_OUT_OF_MEMORY,
        Limit::Process | Limit::Group => account.deny(&denial, symbol),
    })
}

/// A mark on a thread, until it is dropped, that the thread waits for memory that only its own process can free, or for the
/// place in the queue that another thread of the process has. The thread with the place keeps its mark up to date.
struct WaitsForQuota(&'static Thread);

impl WaitsForQuota {
    fn begin(thread: &'static Thread) -> Self {
        thread.set_waits_for_quota(true);
        Self(thread)
    }
}

impl Drop for WaitsForQuota {
    fn drop(&mut self) {
        self.0.set_waits_for_quota(false);
    }
}

/// Waits in the memory queue until the bytes are reserved, or the allocation is refused for good.
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
        // Evaluated each time, because the operator may have changed the setting.
        place.allow_until(match process.registration.on_full() {
            _ if process.is_leaving() => Some(0),
            // A process that does not wait by its settings waits for room that others are making for it.
            OnFull::Fail if place.make_room(now) == Making::Coming => {
                alone_ns = None;
                None
            }
            // A process between two turns is in no account for a short time.
            OnFull::Fail if ledger.has_memory_turns() => {
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
        match place.poll(now) {
            Poll::Granted(bytes) => {
                if ledger.has_memory_turns() && process.eviction.begin_turn(now) {
                    process.registration.publish_turn(now);
                }
                return Ok(Room {
                    place: Some(place),
                    ..Room::from(bytes)
                });
            }
            Poll::Refused(denial) => {
                caches::forget(process, account.thread());
                return Err(denial);
            }
            Poll::Wait => {
                // Keepers do this once a second.
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

/// Returns true if this process waits for a full device: by its settings, or for others to evict.
fn waits(account: Account) -> bool {
    account.process().registration.on_full().waits() || account.ledger().overcommits()
}

/// Returns true if this call may wait for the denied bytes.
fn may_wait(account: Account, denial: &Denial) -> bool {
    let process = account.process();
    // On an overcommitted device others leave to make room.
    let others_leave = denial.limit == Limit::Device && account.ledger().overcommits();
    !process.is_leaving()
        && account.ledger().could_ever(denial.asked).is_ok()
        && !account.thread().see_who_started_it()
        && !process.memory.captures.is_any_of(account.thread().number())
        && free_of(account).is_none_or(|free| free.is_ok())
        && (others_leave || !caches::is_to_be_refused(process, account, denial.asked))
}
