//! `gpushare trace start`: starts traces, and with `--for` waits and ends them.

use std::io::Write;
use std::time::Duration;

use shm_layout::trace::{self, DEFAULT_RECORDS, RECORDS};
use shm_layout::{SegmentDir, Segments, clock, snapshot};
use tokio::runtime::Runtime;

use super::{Place, stop};
use crate::signals::Ends;
use crate::{Done, note};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::units;
use gpushare_control::audit;
use gpushare_control::targets::{Chosen, Target};
use gpushare_control::trace::begin;

/// Start recording the driver calls of running processes
///
/// Each process gets a buffer of its own beside the segments. When the buffer is full, later records
/// are dropped and counted; counts and times per call continue. An earlier trace of the same process
/// is overwritten.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// Room for this many records, 1000 to 4000000 [default: 262144, in 8 MiB]
    #[arg(long, value_name = "N", conflicts_with = "buffer")]
    records: Option<String>,
    /// Size of the buffer in bytes instead, such as 64MiB; a record has 32 bytes
    #[arg(long, value_name = "SIZE")]
    buffer: Option<String>,
    /// Wait this long or until Ctrl-C, then stop the trace
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    /// Reason for the edit, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let target: Target = args.target.parse().map_err(Failure::usage)?;
    let records = records(args)?;
    let time = args.duration.as_deref().map(duration).transpose()?;
    let place = Place::to_edit()?;
    let chosen = target.resolve(&place.sample)?;
    // Watched before the first trace begins, so that a signal leaves no trace running.
    let ends = time.map(|_| Ends::watch()).transpose()?;
    let one = chosen.len() == 1;
    let mut started = Vec::new();
    for chosen in chosen {
        match begin(
            &place.dir,
            &chosen,
            records,
            args.reason.clone(),
            audit::Place::Ctl,
        ) {
            Ok(sentence) => {
                writeln!(out, "{sentence}")?;
                started.push(chosen);
            }
            Err(failure) if one => return Err(failure),
            Err(failure) => note(&failure.sentence),
        }
    }
    if started.is_empty() {
        return Err(Failure::failed("no trace was started"));
    }
    if let (Some(time), Some(ends)) = (time, ends) {
        out.flush()?;
        wait(ends, &place.dir, &started, time);
        for chosen in &started {
            stop::one(&place.dir, chosen, None, out)?;
        }
    }
    Ok(Exit::Done)
}

/// Returns the number of records for the buffer.
fn records(args: &Args) -> Result<u32, Failure> {
    let (least, most) = (u64::from(*RECORDS.start()), u64::from(*RECORDS.end()));
    if let Some(text) = &args.records {
        let number = units::parse_integer(
            text,
            i64::try_from(least).unwrap_or(0),
            i64::try_from(most).unwrap_or(i64::MAX),
        )
        .map_err(|error| Failure::usage(format!("--records: {error}")))?;
        return Ok(u32::try_from(number).unwrap_or(u32::MAX));
    }
    let Some(text) = &args.buffer else {
        return Ok(DEFAULT_RECORDS);
    };
    let bytes =
        units::parse_size(text).map_err(|error| Failure::usage(format!("--buffer: {error}")))?;
    let record = trace::size(1) - trace::size(0);
    let fits = bytes.saturating_sub(trace::size(0)) / record;
    if !(least..=most).contains(&fits) {
        return Err(Failure::usage(format!(
            "--buffer: {text} is out of range; must be between {} and {}",
            units::human_size(trace::size(*RECORDS.start())),
            units::human_size(trace::size(*RECORDS.end()))
        )));
    }
    Ok(u32::try_from(fits).unwrap_or(u32::MAX))
}

fn duration(text: &str) -> Result<Duration, Failure> {
    match units::parse_duration(text) {
        Ok(0) => Err(Failure::usage(
            "--for: 0 would trace nothing; give a time such as 30s",
        )),
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(error) => Err(Failure::usage(format!("--for: {error}"))),
    }
}

/// Waits until the time is over, a signal asks for the end, or no traced process is left.
fn wait((runtime, mut ends): (Runtime, Ends), dir: &SegmentDir, traced: &[Chosen], time: Duration) {
    runtime.block_on(async {
        let over = async {
            let deadline = tokio::time::Instant::now() + time;
            while tokio::time::Instant::now() < deadline && anybody_left(dir, traced) {
                let next = tokio::time::Instant::now() + Duration::from_millis(200);
                tokio::time::sleep_until(next.min(deadline)).await;
            }
        };
        tokio::select! {
            () = over => {}
            _ = ends.come() => {}
        }
    });
}

fn anybody_left(dir: &SegmentDir, traced: &[Chosen]) -> bool {
    Segments::open_viewer(&dir.path).is_ok_and(|segments| {
        let living = snapshot(&segments, clock::now()).processes;
        traced.iter().any(|chosen| {
            living.iter().any(|process| {
                process.slot == chosen.slot && process.alive != shm_layout::Liveness::Dead
            })
        })
    })
}
