//! `gpushare mps stop`.

use std::io::Write;
use std::time::Duration;

use shm_layout::SegmentDir;

use super::status::{Server, clients};
use crate::{Done, segments};
use gpushare_base::host::mps::{Control, PATIENCE, Place, State};
use gpushare_base::text::exit::{Exit, Failure};

/// Stop the MPS control daemon of this directory, and its servers
///
/// While programs run under it that is refused, and they are named.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stop it even while programs run under it; their work on the GPU may fail
    #[arg(long)]
    force: bool,
}

/// Maximum time for the daemon and the servers to end.
const END: Duration = Duration::from_secs(5);

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let off = format!("MPS does not run for {}", dir.path.display());
    let Some(place) = Place::existing(&dir.path)? else {
        writeln!(out, "{off}")?;
        return Ok(Exit::Done);
    };
    let pid = match place.state(PATIENCE) {
        State::Off => {
            writeln!(out, "{off}")?;
            return Ok(Exit::Done);
        }
        State::On { pid, servers } => {
            if !args.force {
                refuse_with_clients(&dir, &place, servers)?;
            }
            pid
        }
        State::Silent { pid, why } if !args.force => {
            return Err(Failure::failed(format!(
                "control daemon {pid} does not answer, so its clients are unknown: {why}; --force stops it without \
                 asking for them"
            )));
        }
        State::Silent { pid, .. } => pid,
    };
    let control = Control::of(&place)?;
    let mut said = control.ask(&place, "quit", END);
    if !place.gone(pid, END) {
        // Programs may have joined since the first check, so the servers are checked again.
        if !args.force
            && let State::On { servers, .. } = place.state(PATIENCE)
        {
            refuse_with_clients(&dir, &place, servers)?;
        }
        said = control.ask(&place, "quit -t 0", END);
    }
    if place.gone(pid, END) {
        writeln!(
            out,
            "MPS no longer runs for {}: control daemon {pid} has ended",
            dir.path.display()
        )?;
        return Ok(Exit::Done);
    }
    let said = said.map_or_else(|why| why, |answer| format!("it said: {}", answer.words()));
    Err(Failure::failed(format!(
        "control daemon {pid} of MPS does not end ({said}); end it with kill {pid}"
    )))
}

fn refuse_with_clients(dir: &SegmentDir, place: &Place, servers: Vec<u32>) -> Result<(), Failure> {
    let servers = clients(dir, place, servers).map_err(|why| {
        Failure::failed(format!(
            "the clients of MPS are unknown: {why}; --force stops it without asking for them"
        ))
    })?;
    let running: Vec<String> = servers.iter().flat_map(Server::titles).collect();
    if running.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "MPS is not stopped, because programs run under it: {}; end them first, or let --force end their use of the GPU",
        running.join(", ")
    )))
}
