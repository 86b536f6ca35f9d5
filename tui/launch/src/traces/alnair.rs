//! A trace in the format of Alnair's profiler: `metrics.log` and `timeline.log` in the directory of `PFLOG`, or
//! `metrics.log` and `pf.log` in the format from before September 2022.
//!
//! The layout itself is defined in `shm_layout::trace::alnair`. The format cannot express a line end in a name, so names
//! are escaped as on a terminal.

use std::fs;
use std::path::{Path, PathBuf};

use shm_layout::text::PathText as _;
use shm_layout::trace::{Kind, Reader, alnair};

use super::{Account, Found};
use gpushare_base::host::output;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;

/// The two forms of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// Counts and times for each call; one line for each record.
    New,
    /// One summary of the process; three lines for each record.
    Old,
}

/// Writes each trace into the directory, or into one below it for each process where there are several.
pub fn write(traces: &[Found], dir: &Path, layout: Layout) -> Result<Vec<Account>, Failure> {
    let one = traces.len() == 1;
    traces
        .iter()
        .map(|found| {
            let place = if one {
                dir.to_owned()
            } else {
                dir.join(found.process.shown_pid().to_string())
            };
            fs::create_dir_all(&place).map_err(|error| cannot(&place, &error))?;
            write_one(found, &place, layout)
        })
        .collect()
}

fn cannot(place: &Path, error: &std::io::Error) -> Failure {
    Failure {
        exit: match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                Exit::NotPermitted
            }
            _ => Exit::Failed,
        },
        sentence: format!("{} cannot be created: {error}", place.shown()),
    }
}

fn write_one(found: &Found, place: &Path, layout: Layout) -> Result<Account, Failure> {
    let reader = found.read()?;
    let mut account = Account::new(found, &reader);
    let metrics = match layout {
        Layout::New => {
            let stats = reader.stats();
            let named: Vec<_> = stats.iter().map(|stat| (plain(stat.name), stat)).collect();
            let calls = named.iter();
            alnair::metrics(calls.map(|(name, stat)| (name.as_ref(), stat.count, stat.total_ns)))
        }
        Layout::Old => summary(found, &reader),
    };
    let header = reader.header();
    output::whole_file(&timeline(place, layout), |out| {
        for record in reader.records().filter(|record| record.kind == Kind::Call) {
            let Some(call) = record.name else { continue };
            let call = plain(call);
            let (name, start) = (alnair::name(&call), header.realtime_of(record.start_ns));
            let line = match layout {
                Layout::New => alnair::timeline_line(name, start, record.duration_ns),
                Layout::Old => alnair::old::timeline(name, start, record.duration_ns),
            };
            out.write_all(line.as_bytes())?;
            account.records += 1;
        }
        Ok(())
    })?;
    output::whole_file(&place.join("metrics.log"), |out| {
        Ok(out.write_all(metrics.as_bytes())?)
    })?;
    Ok(account)
}

fn timeline(place: &Path, layout: Layout) -> PathBuf {
    place.join(match layout {
        Layout::New => "timeline.log",
        Layout::Old => "pf.log",
    })
}

fn summary(found: &Found, reader: &Reader) -> String {
    let (mut kernels, mut kernel_ns) = (0_u64, 0_u64);
    for stat in reader.stats() {
        if alnair::name(stat.name).starts_with("cuLaunch") && !stat.name.contains("HostFunc") {
            kernels = kernels.saturating_add(stat.count);
            kernel_ns = kernel_ns.saturating_add(stat.total_ns);
        }
    }
    let used = found
        .process
        .devices
        .iter()
        .fold(0_u64, |sum, holding| sum.saturating_add(holding.used));
    alnair::old::metrics(reader.header().pid, kernels, used, kernel_ns)
}
