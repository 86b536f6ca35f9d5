//! The command line of `gpushare-top`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::keys::press::Press;
use super::palette::When;
use super::theme::{self, Theme};
use super::web;

/// A theme, or the terminal's own colours. The alias hides the `Option`, because clap treats an option in an option as
/// a value that may be left out.
type Colours = Option<Theme>;

fn parse_theme(name: &str) -> Result<Colours, String> {
    theme::find(name)
}

/// Parses a size such as `120x40`.
fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('x')
        .and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    match parsed {
        Some((width @ 20..=500, height @ 5..=200)) => Ok((width, height)),
        _ => Err("write columns x rows, for example 120x40".into()),
    }
}

/// Show which process holds each GPU, which wait, and for how long; edit quotas and policies.
///
/// Without options it fills the terminal. ? lists the keys.
#[derive(Debug, Parser)]
#[command(
    name = "gpushare-top",
    version,
    max_term_width = 100,
    after_help = "Example: gpushare-top --filter state=wait"
)]
pub struct Options {
    /// Other machines, one line each, instead of this one: as ssh takes them, or http://HOST:PORT of gpushare metrics --listen.
    #[arg(value_name = "HOST", conflicts_with_all = ["batch", "record", "replay", "gpu", "filter", "fields", "check", "no_nvml"])]
    pub hosts: Vec<String>,
    /// Print one snapshot and exit.
    #[arg(long, conflicts_with = "batch")]
    pub once: bool,
    /// Print snapshots one after the other instead of filling the terminal.
    #[arg(short, long)]
    pub batch: bool,
    /// Exit after this many snapshots (with -b).
    #[arg(
        short = 'n',
        long,
        alias = "looks",
        value_name = "N",
        requires = "batch"
    )]
    pub snapshots: Option<u64>,
    /// Seconds between two snapshots; without it 0.25, or longer, up to 2, where looking and drawing would take more than a
    /// four-hundredth of a core.
    #[arg(short, long, value_name = "SEC")]
    pub delay: Option<f64>,
    /// How to print (with --once or -b).
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Exit with code 3 when an alert is active (with --once).
    #[arg(long, requires = "once")]
    pub check: bool,
    /// Show only some processes: user=alice used>4G state=wait name~train, or just a word.
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Show these columns, in this order: pid,name,used,wait.
    #[arg(long, value_name = "COLUMNS")]
    pub fields: Option<String>,
    /// Start with this GPU; with --once or -b print only it.
    #[arg(long, value_name = "N")]
    pub gpu: Option<usize>,
    /// Read-only: no key changes anything.
    #[arg(long)]
    pub read_only: bool,
    /// Write every snapshot to a file, for --replay; at 512 MiB it begins anew and keeps the last one as F.1.
    #[arg(long, value_name = "F")]
    pub record: Option<PathBuf>,
    /// Play a recording instead of watching this machine; last is the last hour, which is always recorded.
    #[arg(long, value_name = "F", conflicts_with = "record")]
    pub replay: Option<PathBuf>,
    /// Start at this moment of it: 03:00, "2026-01-31 03:00", -10m (before its end) or +90s.
    #[arg(
        long,
        value_name = "TIME",
        requires = "replay",
        allow_hyphen_values = true
    )]
    pub at: Option<String>,
    /// Write one moment to a file that ends in .txt, .json, .svg or .html, and exit.
    #[arg(long, value_name = "F", conflicts_with_all = ["once", "batch", "screencast"])]
    pub export: Option<PathBuf>,
    /// Write the recording as an animated SVG, and exit. It shows made-up names of the machine and of the segments' directory.
    #[arg(long, value_name = "F", requires = "replay", conflicts_with_all = ["once", "batch"])]
    pub screencast: Option<PathBuf>,
    /// Press keys in the screencast: 4s=x,6s=Enter or, with words for the viewer, 4s=x:why is it slow, or words alone, 9s=:it
    /// runs. No edit is made: the recording shows what followed.
    #[arg(
        long,
        value_name = "TIME=KEY",
        requires = "screencast",
        value_delimiter = ','
    )]
    pub press: Vec<Press>,
    /// Show it in a browser instead, read-only, and print the page's address, which has a token. ADDR is a port, an address, or
    /// both; without one only this machine can reach it.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1", value_parser = web::address,
        conflicts_with_all = ["hosts", "once", "batch", "record", "export", "screencast"])]
    pub web: Option<SocketAddr>,
    /// Columns and rows of what --export and --screencast write.
    #[arg(long, value_name = "WxH", value_parser = size, default_value = "120x40")]
    pub size: (u16, u16),
    /// Do not record the last hour.
    #[arg(long)]
    pub no_ring: bool,
    /// Play it so many times as fast as it was made.
    #[arg(long, value_name = "X", requires = "replay")]
    pub speed: Option<f64>,
    /// Do not ask NVML.
    #[arg(long)]
    pub no_nvml: bool,
    /// Draw with ASCII only.
    #[arg(long)]
    pub ascii: bool,
    /// When to use colours.
    #[arg(long, value_enum, value_name = "WHEN")]
    pub color: Option<When>,
    /// The colours: default, gruvbox, nord, dracula, solarized, catppuccin, colour-blind, high-contrast, mono, …
    #[arg(long, value_name = "NAME", value_parser = parse_theme)]
    pub theme: Option<Colours>,
    /// Print a settings file with every setting and key, and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Read settings from this file instead of ~/.config/gpushare/top.toml.
    #[arg(long, value_name = "F")]
    pub config: Option<PathBuf>,
    /// End when the process that started it ends, even by SIGKILL.
    #[arg(long, hide = true)]
    pub tied: bool,
}

/// The format of printed snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document for each snapshot.
    Json,
    /// One row for each process and device.
    Csv,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_columns_and_rows() {
        assert_eq!(size("120x40"), Ok((120, 40)));
        assert!(size("120").is_err() && size("0x0").is_err() && size("axb").is_err());
    }

    #[test]
    fn every_theme_is_taken_from_the_command_line() {
        for name in super::theme::names() {
            let options = Options::try_parse_from(["gpushare-top", "--theme", name]).unwrap();
            assert_eq!(options.theme, Some(super::theme::find(name).unwrap()));
        }
        let error = Options::try_parse_from(["gpushare-top", "--theme", "monokai"]).unwrap_err();
        assert!(error.to_string().contains("there is no theme"), "{error}");
    }
}
