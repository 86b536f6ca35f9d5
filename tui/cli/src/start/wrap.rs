//! `gpushare wrap` and `gpushare unwrap`: make an executable always start under gpushare, and restore it.

use std::io::Write;
use std::path::PathBuf;

use crate::Done;
use shm_layout::text::PathText as _;

use gpushare_base::text::exit::{Exit, Failure};
use gpushare_launch::program::Settings;
use gpushare_launch::wrapping;

/// Make an executable always start through gpushare run, with these options
///
/// The program is renamed to gpushare-wrapped.NAME in the same directory; gpushare unwrap restores it unchanged. A
/// link is replaced itself, and the file that it names stays as it is. If gpushare itself is removed later, the program
/// starts without it; with a limit it starts only if it was wrapped with --best-effort.
#[derive(Debug, clap::Args)]
pub struct WrapArgs {
    /// The executable
    exe: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

/// Remove the wrapper from an executable
#[derive(Debug, clap::Args)]
pub struct UnwrapArgs {
    /// The executable
    exe: PathBuf,
}

pub fn wrap(args: &WrapArgs, out: &mut dyn Write) -> Done {
    // Checked now, because a wrong value would otherwise fail at every start.
    args.settings.variables()?;
    let own = std::env::current_exe().map_err(|error| {
        Failure::failed(format!(
            "cannot find gpushare's own executable for the wrapper: {error}"
        ))
    })?;
    let hidden = wrapping::wrap(&args.exe, &own, &args.settings)?;
    writeln!(
        out,
        "{} now starts through gpushare run; the original program is {}",
        args.exe.shown(),
        hidden.shown()
    )?;
    Ok(Exit::Done)
}

pub fn unwrap(args: &UnwrapArgs, out: &mut dyn Write) -> Done {
    let exe = wrapping::unwrap(&args.exe)?;
    writeln!(out, "{} is no longer wrapped", exe.shown())?;
    Ok(Exit::Done)
}
