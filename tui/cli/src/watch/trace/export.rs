//! `gpushare trace export`: writes traces in formats that other programs read.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::Place;
use crate::{Done, note};
use gpushare_base::host::output;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_launch::traces::ring::edits;
use gpushare_launch::traces::{self, Account, Found, alnair, chrome, csv};
use shm_layout::text::PathText as _;
use shm_layout::variables;

/// Export traces for Perfetto, as CSV or as Alnair's logs, also while the program runs
#[derive(Debug, clap::Args)]
#[command(after_help = "Open the file at ui.perfetto.dev.")]
pub struct Args {
    /// pid, name:LABEL, group:G, user:U, all, or the path of a trace
    #[arg(value_name = "TARGET|FILE", default_value = "all")]
    subject: String,
    /// chrome: JSON that Perfetto loads. alnair: metrics.log and timeline.log. csv: a row for each record
    #[arg(long, value_enum, default_value = "chrome")]
    format: Format,
    /// Write to this file (alnair: directory); - is standard output [default: standard output; alnair: $PFLOG]
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// Form of Alnair's logs: new (since September 2022) or old (metrics.log and pf.log)
    #[arg(long, value_enum, default_value = "new", value_name = "FORM")]
    alnair_layout: alnair::Layout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Chrome,
    Alnair,
    Csv,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    // The output is checked before anything is read.
    let place = match args.format {
        Format::Alnair => Some(alnair_dir(args.output.as_deref())?),
        _ => file(args.output.as_deref(), std::io::stdout().is_terminal())?,
    };
    let looked = Place::look()?;
    let found = traces::choose(&args.subject, &looked.dir.path, &looked.sample, note)?;
    let write = |out: &mut dyn Write| match args.format {
        Format::Csv => csv::write(&found, &looked.sample, out),
        _ => chrome::write(&found, &looked.sample, &edits(&looked.dir), out),
    };
    let accounts = match (&place, args.format) {
        (Some(dir), Format::Alnair) => alnair::write(&found, dir, args.alnair_layout)?,
        (Some(file), _) => output::whole_file(file, write)?,
        // CSV cannot escape characters, so they are only changed for a terminal.
        (None, Format::Csv) if !std::io::stdout().is_terminal() => write(&mut std::io::stdout())?,
        (None, _) => write(out)?,
    };
    report(&accounts, &found, place.as_deref());
    Ok(Exit::Done)
}

/// Returns the directory that is named, or that Alnair's own library would use.
fn alnair_dir(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let dir = match named {
        Some(path) if path.as_os_str() == "-" => {
            return Err(Failure::usage(
                "--format alnair writes several files; name a directory with -o",
            ));
        }
        Some(path) => path.to_owned(),
        None => std::env::var_os(variables::PFLOG)
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from)
            .ok_or_else(|| {
                Failure::usage(format!(
                    "--format alnair writes into a directory; name it with -o or {}",
                    variables::PFLOG
                ))
            })?,
    };
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::usage(format!(
            "{} is not a directory; --format alnair writes several files into a directory",
            dir.shown()
        )));
    }
    Ok(dir)
}

/// Returns the file, or `None` for standard output.
fn file(named: Option<&Path>, terminal: bool) -> Result<Option<PathBuf>, Failure> {
    match named {
        Some(path) if path.as_os_str() == "-" => Ok(None),
        Some(path) => Ok(Some(path.to_owned())),
        None if terminal => Err(Failure::usage(
            "a trace is long: name a file with -o FILE, or use -o - to print it here anyway",
        )),
        None => Ok(None),
    }
}

/// Reports the traces that were written, and the records that are missing.
fn report(accounts: &[Account], found: &[Found], place: Option<&Path>) {
    for complaint in accounts.iter().filter_map(Account::complaint) {
        note(&complaint);
    }
    let Some(place) = place else { return };
    let records: u64 = accounts.iter().map(|account| account.records).sum();
    let of = match found {
        [one] => one.title(),
        several => format!("{} processes", several.len()),
    };
    note(&format!(
        "{records} records of {of} are in {}",
        place.shown()
    ));
}
