//! The command line of `gpushare-top`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::palette::When;

/// Who holds each GPU, who waits for it, how long and since when; and what each may do.
///
/// Without options it fills the terminal. ? lists the keys.
#[derive(Debug, Parser)]
#[command(name = "gpushare-top", version, max_term_width = 100)]
pub struct Options {
    /// Print one look and end.
    #[arg(long, conflicts_with = "batch")]
    pub once: bool,
    /// Print looks one after the other instead of filling the terminal.
    #[arg(short, long)]
    pub batch: bool,
    /// End after so many looks (with -b).
    #[arg(short = 'n', long, value_name = "N", requires = "batch")]
    pub looks: Option<u64>,
    /// Seconds between two looks.
    #[arg(short, long, value_name = "SEC")]
    pub delay: Option<f64>,
    /// How to print (with --once or -b).
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// End with code 3 when an alert is active (with --once).
    #[arg(long, requires = "once")]
    pub check: bool,
    /// Show only some processes: user=alice used>4G state=wait name~train, or just a word.
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Begin with this GPU; with --once or -b print only it.
    #[arg(long, value_name = "N")]
    pub gpu: Option<usize>,
    /// Change nothing, whatever is pressed.
    #[arg(long)]
    pub read_only: bool,
    /// Write every look to a file, for --replay.
    #[arg(long, value_name = "F")]
    pub record: Option<PathBuf>,
    /// Play a recording instead of looking at this machine.
    #[arg(long, value_name = "F", conflicts_with = "record")]
    pub replay: Option<PathBuf>,
    /// Do not ask NVML.
    #[arg(long)]
    pub no_nvml: bool,
    /// Draw with ASCII only.
    #[arg(long)]
    pub ascii: bool,
    /// When to use colours.
    #[arg(long, value_enum, value_name = "WHEN")]
    pub color: Option<When>,
    /// Read settings from this file instead of ~/.config/gpushare/top.toml.
    #[arg(long, value_name = "F")]
    pub config: Option<PathBuf>,
    /// End when the process that started it ends, even by SIGKILL.
    #[arg(long, hide = true)]
    pub tied: bool,
}

/// How looks are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document a look.
    Json,
    /// One row for each process and device.
    Csv,
}
