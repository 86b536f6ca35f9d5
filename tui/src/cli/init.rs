//! `gpushare init`: makes the segments ahead of the first program.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use shm_layout::locate::SYSTEM_DIR;
use shm_layout::text::PathText as _;
use shm_layout::{Mode, Segments};

use super::{Done, segments};
use crate::edit::audit::{AuditLog, SYSTEM_LOGS};
use crate::text::exit::{Exit, Failure};

/// Make the shared segments: your own, or with --group one installation for the whole machine
///
/// Not needed for your own use: the first program started with gpushare run makes them. A second
/// init changes nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As root: make /run/gpushare, shared by the users of this group; only root can change its settings
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
    if dir.mode == Mode::System {
        writeln!(
            out,
            "{}: this machine has a system-wide installation; nothing to do",
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

fn system(group: &str, out: &mut dyn Write) -> Done {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::not_permitted(
            "only root can make a system-wide installation; use sudo, or omit --group to make your own",
        ));
    }
    let gid = group_number(group)?;
    let set_aside = Segments::init_system(Path::new(SYSTEM_DIR), Some(gid))?;
    segments::say_set_aside(set_aside.as_deref());
    make_log().map_err(|error| {
        Failure::failed(format!(
            "cannot create {SYSTEM_LOGS} for the audit log: {error}"
        ))
    })?;
    writeln!(
        out,
        "{SYSTEM_DIR}: ready for the members of {group}; edits are logged in {SYSTEM_LOGS}/audit.jsonl"
    )?;
    writeln!(
        out,
        "A reboot removes it: run this at every boot, as assets/systemd/gpushare-init.service does."
    )?;
    Ok(Exit::Done)
}

fn make_log() -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(SYSTEM_LOGS)?;
    AuditLog::of_the_system().open_to_append().map(drop)
}

/// The number of a group given by name or number.
fn group_number(group: &str) -> Result<u32, Failure> {
    if group.is_empty() {
        return Err(Failure::usage(
            "--group: the name is empty; give a name from /etc/group or a number",
        ));
    }
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let find = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(group))
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    };
    text.lines().find_map(find).ok_or_else(|| {
        Failure::no_such_target(format!(
            "there is no group {group}; create it with groupadd {group} and add its users"
        ))
    })
}
