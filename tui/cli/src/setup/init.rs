//! `gpushare init`: makes the segments before the first program starts.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use shm_layout::text::PathText as _;

use crate::{Done, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::groups;
use gpushare_control::SYSTEM_LOGS;

/// Make your own shared segments; with --group set up a broker for all users of the machine
///
/// Not needed for your own use: the first program started with gpushare run makes them. A second
/// init changes nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As root: install and start gpushare.service, which runs gpushare serve for the users of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    match &args.group {
        Some(group) => system(group, out),
        None => user(out),
    }
}

fn user(out: &mut dyn Write) -> Done {
    let dir = segments::dir_or_new()?;
    if dir.is_brokered {
        writeln!(
            out,
            "{}: this machine has a broker; nothing to do",
            dir.path.shown()
        )?;
        return Ok(Exit::Done);
    }
    let operator = shm_layout::Operator::open(&dir.path)?;
    segments::say_set_aside(operator.segments().set_aside());
    writeln!(
        out,
        "{}: ready; start programs with gpushare run -- CMD",
        dir.path.shown()
    )?;
    Ok(Exit::Done)
}

/// Unit that starts a broker, from assets.
const UNIT: &str = include_str!("../../../../assets/systemd/gpushare.service");
/// Socket unit for metrics, which an administrator can enable.
const SOCKET: &str = include_str!("../../../../assets/systemd/gpushare-metrics.socket");
/// Directory of the units.
const UNITS: &str = "/etc/systemd/system";

/// Returns the directory that hides the program from the unit, whose service would fail at every start, if there is one.
fn hidden_by(program: &Path) -> Option<&'static str> {
    let is_above = |place: &&str| {
        let real = fs::canonicalize(place);
        program.starts_with(place) || real.is_ok_and(|real| program.starts_with(real))
    };
    ["/home", "/root", "/run/user"].into_iter().find(is_above)
}

fn system(group: &str, out: &mut dyn Write) -> Done {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::not_permitted(
            "only root can set up a machine; use sudo, or omit --group to make your own segments",
        ));
    }
    groups::number(group)?;
    if group
        .chars()
        .any(|c| c.is_whitespace() || "\"'\\$%".contains(c))
    {
        return Err(Failure::usage(
            "--group: give a name of letters, digits and dashes, or a number",
        ));
    }
    let program = std::env::current_exe()?;
    if !sd_notify::booted().unwrap_or(false) {
        return Err(Failure::failed(format!(
            "systemd does not run here; have {} serve --group {group} started at every boot by what does",
            program.shown()
        )));
    }
    if let Some(place) = hidden_by(&program) {
        return Err(Failure::failed(format!(
            "{} is below {place}, which gpushare.service cannot see (ProtectHome=yes); install gpushare elsewhere, in /usr/local/bin \
             for instance",
            program.shown()
        )));
    }
    let unit = Path::new(UNITS).join("gpushare.service");
    let text = UNIT
        .replace("/usr/bin/gpushare", &program.display().to_string())
        .replace("--group gpushare", &format!("--group {group}"));
    let socket = Path::new(UNITS).join("gpushare-metrics.socket");
    for (path, text) in [(&unit, text.as_str()), (&socket, SOCKET)] {
        fs::write(path, text)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.shown())))?;
    }
    for words in [
        &["daemon-reload"][..],
        &["enable", "gpushare.service"],
        // A running broker may serve another group, so it is restarted. Programs continue.
        &["restart", "gpushare.service"],
    ] {
        let done = Command::new("systemctl").args(words).status();
        if !done.is_ok_and(|status| status.success()) {
            return Err(Failure::failed(format!(
                "systemctl {} failed; journalctl -u gpushare says why",
                words.join(" ")
            )));
        }
    }
    writeln!(out, "{}: started, and will be at every boot", unit.shown())?;
    writeln!(
        out,
        "The members of {group} have their programs managed; edits are logged in {SYSTEM_LOGS}/audit.jsonl"
    )?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_home_is_hidden_from_its_own_unit() {
        for (program, place) in [
            ("/home/alice/bin/gpushare", Some("/home")),
            ("/root/gpushare", Some("/root")),
            ("/run/user/1000/gpushare", Some("/run/user")),
            ("/usr/bin/gpushare", None),
            ("/homes/bin/gpushare", None),
        ] {
            assert_eq!(hidden_by(Path::new(program)), place, "{program}");
        }
    }
}
