//! Calls that need device memory in no account: a context, the code of a module or a kernel, which the driver loads when it is
//! first needed, and its own data for streams, events and mappings.
//!
//! On a full device the driver refuses such a call, and programs end, because only allocations are expected to fail. So
//! the call waits like an allocation, and is made again.

use gpushare_abi::{
    errors::{CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult},
    types::{CUdevice, CUstream},
};
use shm_layout::{Interrupted, QueueTicket, clock};

use super::{
    account::{self, Account},
    allocate::wait_for_device,
    plenty::Plenty,
};
use crate::{
    driver::Symbol,
    eviction::{self, A_CONTEXT},
    hooks::Real,
    thread,
};

/// Number of times that a context which the driver calls unavailable is waited for.
const UNAVAILABLE: u32 = 3;
/// Bytes for which a call waits that needs an unknown number for code. If they are too few, it waits again.
const CODE: u64 = 64 << 20;
/// Divisor of the device's memory: a call waits for at most this part of it in no account.
const PART: u64 = 16;

/// Forwards a call that may load code, or needs other memory that is in no account.
pub fn load(real: Real<'_, impl FnOnce() -> CUresult + Copy>) -> CUresult {
    forward(&real)
}

/// Calls the driver, again once a full device has room.
#[inline(always)]
pub fn forward(real: &Real<'_, impl FnOnce() -> CUresult + Copy>) -> CUresult {
    InNoAccount::code(real.symbol()).call(|| real.again())
}

/// A call of the driver that needs memory in no account, such as a context or the code of a kernel.
pub(super) struct InNoAccount {
    symbol: Symbol,
    /// `None` for the calling thread's current device.
    device: Option<CUdevice>,
    bytes: u64,
    /// Number of times that `CUDA_ERROR_DEVICE_UNAVAILABLE` counts as a full device.
    unavailable: u32,
}

impl InNoAccount {
    /// Returns the call that creates a context on a device.
    #[inline(always)]
    pub fn context(symbol: Symbol, device: CUdevice) -> Self {
        Self {
            symbol,
            device: Some(device),
            bytes: A_CONTEXT,
            // The driver also says this of a full device, but of one in exclusive mode too (H100, 580.159.04).
            unavailable: UNAVAILABLE,
        }
    }

    /// Returns the call that loads code, or needs as little for something else.
    #[inline(always)]
    pub fn code(symbol: Symbol) -> Self {
        Self {
            symbol,
            device: None,
            bytes: CODE,
            unavailable: 0,
        }
    }

    /// Calls the driver. If the device has no room, waits until the call may have its bytes, like an allocation, and calls
    /// again: a call that was refused for want of memory has done nothing. A quota with less room does not prevent the wait.
    #[inline(always)]
    pub fn call(self, attempt: impl Fn() -> CUresult) -> CUresult {
        attempt().or_else(|error| self.again(error, &attempt))
    }

    #[cold]
    #[inline(never)]
    fn again(self, refusal: CUerror, attempt: &dyn Fn() -> CUresult) -> CUresult {
        let mut place = None;
        let mut unavailable = 0..self.unavailable;
        let mut plenty = Plenty::default();
        let mut answer = Err(refusal);
        while let Err(error) = answer
            && (error == CUDA_ERROR_OUT_OF_MEMORY
                || error == CUDA_ERROR_DEVICE_UNAVAILABLE && unavailable.next().is_some())
        {
            become_a_request().map_err(|_| error)?;
            let account = match self.device {
                Some(device) => account::of_device(device),
                None => account::of_current_device(),
            };
            let account = account.ok_or(error)?;
            if is_hopeless(account, &mut plenty) {
                return Err(error);
            }
            let waited = wait_in_no_account(account, self.bytes, place, self.symbol);
            place = Some(waited.map_err(|_| error)?);
            answer = attempt();
        }
        if let (Ok(()), Some(place)) = (answer, place) {
            place.complete();
        }
        answer
    }
}

/// Marks the calling thread as inside a request, if it is inside a query. A query that waits for memory is evicted and
/// restored like a request.
fn become_a_request() -> CUresult {
    let thread = thread::attached();
    if thread.is_asking() {
        thread.pass_suspension();
        if thread::is_suspended() {
            eviction::wait_until_resumed(thread)?;
        }
    }
    Ok(())
}

/// The wait of a submission that the driver had no memory for. Between two attempts it has no place in the queue: the
/// process may be evicted there, and its return needs the place.
#[derive(Default)]
pub struct SubmissionWait {
    left: Option<(Account, Interrupted)>,
    is_over: bool,
    plenty: Plenty,
}

impl SubmissionWait {
    /// Waits until the driver may have room for a submission to a stream. Returns false if the submission must not wait, or
    /// no longer.
    pub fn wait(&mut self, symbol: Symbol, stream: CUstream) -> bool {
        let Some(account) = account::of_stream(stream).filter(|_| !self.is_over) else {
            return false;
        };
        if is_hopeless(account, &mut self.plenty) {
            return false;
        }
        let again = |(account, wait): (Account, Interrupted)| {
            Box::new(account.ledger().enqueue_again(wait, clock::now()))
        };
        let place = self.left.take().map(again);
        let Ok(place) = wait_in_no_account(account, CODE, place, symbol) else {
            return false;
        };
        self.is_over = place.is_over(clock::now());
        self.left = Some((account, place.interrupt()));
        true
    }

    /// Counts the wait.
    pub fn end(self, granted: bool) {
        if let Some((account, wait)) = self.left {
            let ledger = account.ledger();
            ledger.end_interrupted(&wait, granted, clock::now());
        }
    }
}

/// Returns true if the driver refuses while much of the device is free: the call needs more than others could give it. A thread
/// that captures a stream does not ask the driver.
fn is_hopeless(account: Account, plenty: &mut Plenty) -> bool {
    let captures = &account.process().memory.captures;
    if captures.is_any_of(account.thread().number()) {
        return true;
    }
    plenty.lasts_for(account, 0)
}

/// Waits until the driver may have room for `bytes` that are in no account. They are reserved for the wait only.
fn wait_in_no_account(
    account: Account,
    bytes: u64,
    place: Option<Box<QueueTicket<'static>>>,
    symbol: Symbol,
) -> Result<Box<QueueTicket<'static>>, CUerror> {
    let room = account.ledger().room().unwrap_or(u64::MAX);
    let bytes = bytes.min(account.total_bytes() / PART).min(room);
    let room = wait_for_device(account.in_none(), bytes, place, symbol)?;
    room.place.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}
