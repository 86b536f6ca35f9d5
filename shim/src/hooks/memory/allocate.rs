//! The path that every allocation takes: reserve, the driver, remember; and where either has no room, wait for some.

use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};

use crate::books::record::Kind;
use crate::driver::Symbol;
use crate::real::Real;

use super::account::{self, Account};
use super::wait::{self, Room};

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
        return real.call();
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
            Err(CUDA_ERROR_OUT_OF_MEMORY) => room = wait::for_device(account, room, symbol)?,
            Err(error) => return Err(error),
        }
    }
}

#[cold]
#[inline(never)]
fn room_or_deny(account: Account, bytes: u64, symbol: Symbol) -> Result<Room, CUerror> {
    if let Some(denial) = wait::is_behind(account, bytes) {
        return wait::for_limit(account, denial, symbol);
    }
    match account::reserve_or_reclaim(account, bytes) {
        Ok(reservation) => Ok(Room::from(reservation)),
        Err(denial) => wait::for_limit(account, denial, symbol),
    }
}
