//! `gpushare metrics`: writes the figures for Prometheus.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use shm_layout::text::PathText as _;

use crate::{Done, segments};
use gpushare_base::host::output;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::files::read_text;
use gpushare_observe::http;
use gpushare_observe::metrics::{Figures, Format};
use gpushare_observe::source::live::Live;

mod server;

pub use server::{Access, Server};

/// Write the figures for Prometheus, once or over HTTP
///
/// Memory, quotas, denials, launches, holds, waits and hand-offs of each process and device, groups and alerts: the keys
/// of gpushare-top --format json, as metrics. Every user of the machine can read what is served on a loopback address.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Serve http://ADDRESS/metrics (and /json) until stopped, for example on 127.0.0.1:9837
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["textfile", "openmetrics"])]
    listen: Option<SocketAddr>,
    /// Answer only clients that send the token in this file ("Authorization: Bearer …"); only its owner may be able to read it
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Replace this file with the page, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE", conflicts_with = "openmetrics")]
    textfile: Option<PathBuf>,
    /// Write OpenMetrics 1.0 instead of the text format 0.0.4
    #[arg(long)]
    openmetrics: bool,
    /// Do not ask NVML
    #[arg(long)]
    no_nvml: bool,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let mut live = Live::new(&dir.path, !args.no_nvml);
    if let Some(address) = args.listen {
        let server = Server::new(live, access(address, args.token_file.as_deref())?);
        let listener = http::listen(address)?;
        let address = listener.local_addr()?;
        writeln!(out, "serving http://{address}/metrics")?;
        out.flush()?;
        server.run(&listener)?;
        return Ok(Exit::Done);
    }
    live.settle(segments::NVML);
    let mut figures = Figures::default();
    figures.take(live.look()?);
    let format = match args.openmetrics {
        true => Format::Open,
        false => Format::Text,
    };
    let page = figures.page(format);
    match &args.textfile {
        Some(path) => output::whole_file(path, |out| Ok(out.write_all(page.as_bytes())?))?,
        None => out.write_all(page.as_bytes())?,
    }
    Ok(Exit::Done)
}

/// Returns the access rule of an address.
pub fn access(address: SocketAddr, token_file: Option<&Path>) -> Result<Access, Failure> {
    Access::of(address.ip(), token_file.map(token).transpose()?)
}

/// Minimum length of a token, so that it cannot be guessed.
const SHORTEST: usize = 16;

fn token(path: &Path) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::usage(format!("the token file {}: {why}", path.shown()));
    let meta = fs::metadata(path).map_err(|error| wrong(&error.to_string()))?;
    if meta.mode() & 0o077 != 0 {
        return Err(wrong("others can read or write it; chmod 600 it"));
    }
    if ![0, rustix::process::geteuid().as_raw()].contains(&meta.uid()) {
        return Err(wrong("it belongs to another user, who knows what is in it"));
    }
    let token = read_text(path).map_err(|error| wrong(&error.to_string()))?;
    match token.trim() {
        token if token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(token.to_owned())
        }
        _ => Err(wrong(&format!(
            "it must hold one word of at least {SHORTEST} letters and digits, as openssl rand -hex 32 writes"
        ))),
    }
}
