//! Accounts: where bytes are charged, and the common path of charges and frees.

use std::{mem, sync::atomic::Ordering::Relaxed};

use super::{backing, reclaim, returns};
use gpushare_abi::{
    errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult},
    types::{CUdevice, CUmemoryPool, CUstream},
};
use shm_layout::{Counters, Denial, Event, EventKind, Ledger, Limit, Reservation, clock, reap};

use crate::{
    driver::Symbol,
    driver_query::memory as ask,
    hooks::Real,
    managed_process::{self, Device, ManagedProcess},
    sys::caller_state::Uncancelled,
    thread::{self, Thread},
    trace,
    tracking::{
        allocation_map::AllocationMap,
        pending_frees::Claim,
        physical::Id,
        pool::Source,
        record::{self, Counted, Kind, Record},
        untracked_frees::Begun,
    },
};

/// The account of one device in this process.
#[derive(Clone, Copy)]
pub struct Account {
    process: &'static ManagedProcess,
    thread: &'static Thread,
    device: &'static Device,
    /// The context of the allocation; its end may free the memory.
    context: usize,
    origin: Origin,
}

/// The origin of the allocated memory.
#[derive(Clone, Copy)]
enum Origin {
    /// The device.
    Device,
    /// A pool, which may have kept the memory.
    Pool(Source),
    /// The memory that the device keeps for graphs.
    Graphs,
    /// The driver's own memory, which is in no account.
    Driver,
}

/// Returns the account of the calling thread's current device.
pub fn of_current_device() -> Option<Account> {
    of_bound_device(managed_process::current()?, thread::attached())
}

/// Returns the account of the device that is current for a call.
#[inline(always)]
pub fn of_caller<F: FnOnce() -> CUresult>(real: &Real<'_, F>) -> Option<Account> {
    of_bound_device(real.process()?, real.thread())
}

#[inline(always)]
fn of_bound_device(process: &'static ManagedProcess, thread: &'static Thread) -> Option<Account> {
    let (context, ordinal) = process.home_of_thread(thread)?;
    let device = process.devices.get(usize::from(ordinal))?;
    Some(Account {
        process,
        thread,
        device,
        context,
        origin: Origin::Device,
    })
}

/// Returns the account of a device ordinal.
pub fn of_device(ordinal: CUdevice) -> Option<Account> {
    let (process, thread) = (managed_process::current()?, thread::attached());
    let context = process
        .home_of_thread(thread)
        .map_or(0, |(context, _)| context);
    on_device(process, thread, ordinal, context)
}

fn on_device(
    process: &'static ManagedProcess,
    thread: &'static Thread,
    ordinal: CUdevice,
    context: usize,
) -> Option<Account> {
    Some(Account {
        process,
        thread,
        device: process.device(ordinal)?,
        context,
        origin: Origin::Device,
    })
}

/// Returns the account of a stream's context, for a default stream that of the current context.
pub fn of_stream(stream: CUstream) -> Option<Account> {
    let (process, thread) = (managed_process::current()?, thread::attached());
    let here = || of_bound_device(process, thread);
    let named = || {
        let (context, ordinal) = process.home_of_stream(thread, stream as usize)?;
        on_device(process, thread, ordinal, context)
    };
    // The memory ends with the stream's context. With only one there is nothing to look up, unless none is current: a
    // stream with a handle needs no current context.
    if process.devices.len() > 1 || process.memory.has_created_contexts() {
        named().or_else(here)
    } else {
        here().or_else(named)
    }
}

/// Returns the account of a pool's device, for an allocation in a stream.
pub fn of_pool(ordinal: CUdevice, stream: CUstream) -> Option<Account> {
    let device = managed_process::current()?.device(ordinal)?;
    match of_stream(stream) {
        Some(account) => Some(Account { device, ..account }),
        None => of_device(ordinal),
    }
}

impl Account {
    /// Returns the process of the account.
    pub fn process(self) -> &'static ManagedProcess {
        self.process
    }

    /// Returns the context of the memory.
    pub fn context(self) -> usize {
        self.context
    }

    /// Returns the account for an allocation from a pool in the stream `key`. If no pool is named, the device's current
    /// one is used.
    pub fn out_of_pool(self, pool: Option<CUmemoryPool>, key: usize) -> Self {
        let (caching, ordinal) = (&self.process.memory.caching, self.ordinal().into());
        let used = match pool {
            Some(pool) => Some(pool).inspect(|pool| caching.add(*pool, ordinal)),
            None => caching.use_current(ordinal, || ask::current_pool(ordinal)),
        };
        let Some(pool) = used else {
            return self;
        };
        let origin = Origin::Pool(Source::new(pool, key, self.thread.number()));
        Self { origin, ..self }
    }

    /// Returns the account for memory of graphs.
    pub fn for_graphs(self) -> Self {
        let origin = Origin::Graphs;
        Self { origin, ..self }
    }

    /// Returns the account for the wait of a call whose memory is in no account.
    pub fn in_none(self) -> Self {
        let origin = Origin::Driver;
        Self { origin, ..self }
    }

    /// Returns the pool and the stream of an allocation from a pool.
    pub(super) fn source(self) -> Option<Source> {
        match self.origin {
            Origin::Pool(source) => Some(source),
            Origin::Device | Origin::Graphs | Origin::Driver => None,
        }
    }

    /// Returns the device's ordinal in this process.
    pub fn ordinal(self) -> u8 {
        self.device.ordinal
    }

    /// Returns the device.
    pub fn device(self) -> &'static Device {
        self.device
    }

    /// Returns the device's ledger.
    #[inline(always)]
    pub fn ledger(self) -> &'static Ledger<'static> {
        &self.device.ledger
    }

    /// Reserves bytes. A denial is counted and published, and the error is the driver's.
    #[inline(always)]
    pub fn reserve(self, bytes: u64, symbol: Symbol) -> Result<Reservation<'static>, CUerror> {
        let ledger = self.ledger();
        let reservation = match ledger.reserve_at_once(bytes) {
            Some(reservation) => reservation,
            None => {
                reserve_or_deny(self.process, self.device, bytes, symbol)?;
                ledger.reopen(bytes)
            }
        };
        // Only an allocation from a pool claims memory of it.
        self.settle_pools(bytes, symbol, || {})?;
        Ok(reservation)
    }

    /// Keeps the memory of this process's pools within the limits after `bytes` were reserved: waits for pending frees, and
    /// trims the pools. An allocation from a pool may use what the pools keep, so they are trimmed after it. Calls `before_wait` before
    /// it waits. Returns the memory of a pending free that the allocation may use.
    #[inline(always)]
    pub(super) fn settle_pools(
        self,
        bytes: u64,
        symbol: Symbol,
        before_wait: impl FnOnce(),
    ) -> Result<Option<Claim<'static>>, CUerror> {
        let memory = &self.process.memory;
        let mut claim = None;
        if memory.pending_frees.any() && !matches!(self.origin, Origin::Graphs) {
            let (device, thread) = (self.device, self.thread);
            let (process, source) = (self.process, self.source());
            claim = reclaim::wait_for_frees(process, device, thread, bytes, source, before_wait)
                .map_err(|denial| self.deny(&denial, symbol))?;
        }
        if memory.caching.any() && matches!(self.origin, Origin::Device) {
            reclaim::keep_within_limits(self.process, self.device, None);
        }
        Ok(claim)
    }

    /// Waits until memory that returns to the device leaves room for `bytes` that are in no account.
    #[inline(always)]
    pub fn wait_for_returns(self, bytes: u64) {
        returns::wait(self.device, self.thread, bytes);
    }

    /// Returns the allocating thread.
    pub fn thread(self) -> &'static Thread {
        self.thread
    }

    /// Returns true if a library may keep such memory in a cache of its own. Memory in pools is kept by the driver.
    pub fn can_be_cached(self) -> bool {
        matches!(self.origin, Origin::Device)
    }

    /// Returns the total memory of the device, in bytes.
    pub fn total_bytes(self) -> u64 {
        self.device.total_bytes
    }

    pub(super) fn deny(self, denial: &Denial, symbol: Symbol) -> CUerror {
        let counters = self.counters();
        counters.denials.fetch_add(1, Relaxed);
        counters.denied_bytes.fetch_add(denial.asked, Relaxed);
        trace::denied(symbol, self.device.ordinal, denial.asked);
        let slot = self.process.registration.slot();
        self.process.registration.segments().state().publish(Event {
            seq: 0,
            time_ns: clock::now(),
            slot: slot.index,
            epoch: slot.epoch,
            device: self.device.entry.device(),
            kind: EventKind::Denial,
            arg0: denial.asked,
            arg1: denial.quota,
            call: symbol.code(),
        });
        CUDA_ERROR_OUT_OF_MEMORY
    }

    /// Adds the record of granted memory under `key`.
    #[inline(always)]
    pub fn keep(self, key: u64, bytes: u64, kind: Kind) {
        let record = self.enter(bytes, kind);
        // Key 0 means that the caller passed no place for the result and the driver accepted that. Such memory cannot
        // be freed by name.
        if key != 0 {
            self.process.memory.allocations.put(key, record);
        }
    }

    /// Counts granted memory, and returns its record.
    #[inline(always)]
    pub fn enter(self, bytes: u64, kind: Kind) -> Record {
        match kind.counted() {
            Counted::Ledger => thread::add(&self.thread.tally(self.ordinal()).allocations, 1),
            Counted::Pinned => _ = self.counters().host_pinned_bytes.fetch_add(bytes, Relaxed),
            Counted::Imported => {
                self.process.memory.imported.fetch_add(bytes, Relaxed);
                self.counters().imported_bytes.fetch_add(bytes, Relaxed);
            }
        }
        let record = record::new(bytes, self.context, kind, self.ordinal());
        match self.origin {
            Origin::Pool(source) => record::with_pool(record, source.pool),
            Origin::Device | Origin::Graphs | Origin::Driver => record,
        }
    }

    fn counters(self) -> &'static Counters {
        self.process.registration.count(self.device.entry)
    }

    /// Counts a call of the driver that changed memory by an unknown number of bytes.
    pub fn lost_track(self) {
        self.counters().unaccounted.fetch_add(1, Relaxed);
    }
}

/// Does the work of [`Account::reserve`] if the bytes are not free at once. Memory kept for destroyed graphs, and
/// memory of dead processes under a shared limit, is released first.
#[cold]
#[inline(never)]
fn reserve_or_deny(
    process: &'static ManagedProcess,
    device: &'static Device,
    bytes: u64,
    symbol: Symbol,
) -> CUresult {
    let _uncancelled = Uncancelled::enter();
    let account = Account {
        process,
        thread: thread::attached(),
        device,
        context: 0,
        origin: Origin::Device,
    };
    match reserve_or_reclaim(account, bytes) {
        Ok(reservation) => {
            reservation.commit();
            Ok(())
        }
        Err(denial) => Err(account.deny(&denial, symbol)),
    }
}

/// Reserves bytes. If a limit denies them, memory that is kept unused and memory of dead processes is released first.
pub(super) fn reserve_or_reclaim(
    account: Account,
    bytes: u64,
) -> Result<Reservation<'static>, Denial> {
    let (process, device) = (account.process, account.device);
    account.ledger().reserve(bytes).or_else(|denial| {
        if reclaim::give_up_idle(process, device)
            && let Ok(reservation) = account.ledger().reserve(bytes)
        {
            return Ok(reservation);
        }
        let segments = process.registration.segments();
        if denial.limit == Limit::Process || reap(segments, clock::now()) == 0 {
            return Err(denial);
        }
        account.ledger().reserve(bytes)
    })
}

/// Forwards an allocation that has no account. It is denied if the process has lost its limit while it ran.
pub fn unaccounted(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    if managed_process::is_limit_lost() {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    real.call()
}

/// Forwards a call whose memory is counted and not charged, and adds its record.
pub fn count(
    real: Real<'_, impl FnOnce() -> CUresult>,
    kind: Kind,
    bytes: impl FnOnce() -> u64,
    key: impl FnOnce() -> Option<u64>,
) -> CUresult {
    count_in(real, of_current_device(), kind, bytes, key)
}

/// Does the same as [`count`], in the given account.
pub fn count_in(
    real: Real<'_, impl FnOnce() -> CUresult>,
    account: Option<Account>,
    kind: Kind,
    bytes: impl FnOnce() -> u64,
    key: impl FnOnce() -> Option<u64>,
) -> CUresult {
    real.call()?;
    if let Some(account) = account {
        account.keep(key().unwrap_or(0), bytes(), kind);
    }
    Ok(())
}

/// Forwards a free of one kind of memory: the record is removed first, and the bytes are released afterwards.
#[inline(always)]
pub fn free(real: Real<'_, impl FnOnce() -> CUresult>, key: u64, kind: Kind) -> CUresult {
    free_if(
        real,
        key,
        move |record| record::is(record, kind),
        |_, _| || {},
    )
}

/// Forwards a free of memory from any linear allocation call. Calls `before` with the record before the driver frees, and
/// its result once the driver has freed. The result is dropped if the driver refuses.
#[inline(always)]
pub fn free_linear<After: FnOnce()>(
    real: Real<'_, impl FnOnce() -> CUresult>,
    key: u64,
    before: impl FnOnce(&'static ManagedProcess, &Record) -> After,
) -> CUresult {
    free_if(real, key, record::is_linear, before)
}

#[inline(always)]
fn free_if<After: FnOnce()>(
    real: Real<'_, impl FnOnce() -> CUresult>,
    key: u64,
    fits: impl Fn(&Record) -> bool + Copy,
    before: impl FnOnce(&'static ManagedProcess, &Record) -> After,
) -> CUresult {
    let Some(process) = real.process() else {
        return real.call();
    };
    let thread = real.thread();
    let live = &process.memory.allocations;
    let record = match live.take(key, fits) {
        Some(record) => record,
        None => match begin_without_record(process, key, &fits) {
            Begun::Tracked(record) => record,
            begun => {
                let taken = take_of_graph(process, key);
                let has_begun = matches!(begun, Begun::Untracked(_));
                let _uncancelled = (taken.is_some() || has_begun).then(Uncancelled::enter);
                let answer = real.call();
                end_without_record(process, key, begun, taken, answer.is_ok());
                return answer;
            }
        },
    };
    let record = &record;
    let taken = Taken { live, key, record };
    let after = before(process, record);
    if record::is(record, Kind::Swappable) {
        match backing::free(real, process, key, *record) {
            Some(result) => result?,
            None => {
                mem::forget(taken);
                return Ok(());
            }
        }
    } else {
        real.call()?;
    }
    mem::forget(taken);
    after();
    give_back(process, thread, record);
    Ok(())
}

/// A record that was removed before the driver frees. Dropping it adds it again: the driver has refused, or the
/// application has left the call by unwinding.
struct Taken<'a> {
    live: &'a AllocationMap,
    key: u64,
    record: &'a Record,
}

impl Drop for Taken<'_> {
    #[cold]
    fn drop(&mut self) {
        self.live.put_elsewhere(self.key, *self.record);
    }
}

/// Begins a free of memory that has no record. Another thread may have taken it out for the end of a context.
#[cold]
#[inline(never)]
fn begin_without_record<'p>(
    process: &'p ManagedProcess,
    key: u64,
    fits: &dyn Fn(&Record) -> bool,
) -> Begun<'p> {
    let memory = &process.memory;
    let take = || memory.allocations.take(key, fits);
    memory.untracked_frees.begin(key, take)
}

/// Ends such a free.
#[cold]
#[inline(never)]
fn end_without_record(
    process: &ManagedProcess,
    key: u64,
    begun: Begun<'_>,
    of_graph: Option<(usize, u64)>,
    is_freed: bool,
) {
    if let Some(taken) = of_graph.filter(|_| !is_freed) {
        process.memory.graphs.put_back(key, taken);
    }
    if let Begun::Untracked(free) = begun
        && let Some(record) = free.end(is_freed)
    {
        if is_freed {
            release_record(process, &record);
        } else {
            process.memory.allocations.put_elsewhere(key, record);
        }
    }
}

/// Removes an allocation of a graph. Returns `None` if no graph has allocated the address.
#[cold]
#[inline(never)]
fn take_of_graph(process: &ManagedProcess, address: u64) -> Option<(usize, u64)> {
    let graphs = &process.memory.graphs;
    if graphs.any() {
        graphs.take(address)
    } else {
        None
    }
}

/// Removes a reference to physical memory, and uncharges memory without references.
pub fn let_go(process: &ManagedProcess, id: Id) {
    for record in process.memory.physical.let_go(id) {
        release_record(process, &record);
    }
}

/// Uncharges or uncounts the bytes of a record.
pub fn release_record(process: &ManagedProcess, record: &Record) {
    give_back(process, thread::attached(), record);
}

#[inline(always)]
fn give_back(process: &ManagedProcess, thread: &Thread, record: &Record) {
    let bytes = record::bytes(record);
    let Some(device) = process.devices.get(usize::from(record::ordinal(record))) else {
        return;
    };
    let counters = || process.registration.count(device.entry);
    match record::counted(record) {
        Counted::Ledger => {
            device.ledger.release(bytes);
            if record::is(record, Kind::Managed) {
                process.memory.managed.fetch_sub(1, Relaxed);
            }
            thread::add(&thread.tally(device.ordinal).frees, 1);
        }
        Counted::Pinned => _ = counters().host_pinned_bytes.fetch_sub(bytes, Relaxed),
        Counted::Imported => {
            process.memory.imported.fetch_sub(bytes, Relaxed);
            counters().imported_bytes.fetch_sub(bytes, Relaxed);
        }
    }
}
