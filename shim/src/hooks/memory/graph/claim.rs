//! The memory claimed for an upload or a launch of an executable graph: charged before the driver is called, and
//! released if it refuses.

use std::sync::Arc;

use gpushare_abi::{
    errors::{CUerror, CUresult},
    types::CUgraphExec,
};
use shm_layout::Reservation;

use crate::{
    driver::Symbol,
    hooks::memory::account,
    managed_process::{self, ManagedProcess},
    tracking::graph::{plan::Need, pool::Claim},
};

/// The claims of a launch on all its devices. They are released when dropped, unless they were completed.
pub struct Claims {
    process: &'static ManagedProcess,
    need: Arc<Need>,
    launches: bool,
    claims: Vec<(u8, Claim, Option<Reservation<'static>>)>,
}

/// Charges the memory that a launch needs beyond what its devices keep for graphs, or denies the launch.
pub fn claim(
    symbol: Symbol,
    exec: CUgraphExec,
    stream: usize,
    launches: bool,
) -> Result<Option<Claims>, CUerror> {
    let Some(process) = managed_process::current().filter(|process| process.memory.graphs.any())
    else {
        return Ok(None);
    };
    let need = process.memory.graphs.need_of(exec);
    need.map(|need| Claims::make(process, need, symbol, stream, launches))
        .transpose()
}

impl Claims {
    /// Charges the needed memory, or denies it.
    pub fn make(
        process: &'static ManagedProcess,
        need: Arc<Need>,
        symbol: Symbol,
        stream: usize,
        launches: bool,
    ) -> Result<Self, CUerror> {
        let mut claims = Self {
            process,
            launches,
            claims: Vec::new(),
            need: Arc::clone(&need),
        };
        for part in &need.parts {
            let claim = process.memory.graphs.claim(stream, part, launches);
            let more = claim.more;
            claims.claims.push((part.ordinal, claim, None));
            if more > 0
                && let Some(account) = account::of_device(part.ordinal.into())
                && let Some((.., reservation)) = claims.claims.last_mut()
            {
                *reservation = Some(account.for_graphs().reserve(more, symbol)?);
            }
        }
        Ok(claims)
    }

    /// Completes the claims with the driver's result.
    pub fn complete(mut self, answer: CUresult) {
        if answer.is_err() {
            return;
        }
        for (ordinal, claim, reservation) in self.claims.drain(..) {
            reservation.map(Reservation::commit);
            let mut book = self.process.memory.graphs.lock();
            book.pool(ordinal).keep(&claim);
        }
        if !self.launches {
            return;
        }
        for address in &self.need.frees {
            self.process.memory.graphs.take(*address);
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        let mut book = self.process.memory.graphs.lock();
        for (ordinal, claim, _) in &self.claims {
            book.pool(*ordinal).give_up(claim);
        }
    }
}
