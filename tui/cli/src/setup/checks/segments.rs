//! Checks of the segments: their existence, owner and content.

use std::path::Path;

use shm_layout::locate::SYSTEM_DIR;
use shm_layout::socket::SOCKET;
use shm_layout::text::PathText as _;
use shm_layout::{Liveness, OpenError, SegmentDir, Segments, Snapshot, clock, snapshot};

use super::{Finding, Patient};
use gpushare_base::text::losses;
use gpushare_base::text::refused::Refused;
use gpushare_control::Installation as _;
use shm_layout::variables;

/// Returns the findings, and the content of the segments if they can be read.
pub(super) fn check(patient: &Patient) -> (Vec<Finding>, Option<Snapshot>) {
    let dir = match &patient.dir {
        Ok(dir) => dir,
        Err(why) => {
            let advice = "see the message; gpushare init makes new ones";
            return (vec![Finding::fail("segments", why.clone(), advice)], None);
        }
    };
    let mut found = None;
    let mut findings = Vec::new();
    findings.extend(apart(dir).map(|found| {
        Finding::warn(
            "segments",
            found,
            "ask to be added to the group of gpushare serve; then log in again",
        )
    }));
    let carried = dir.check_file_system();
    match carried.and_then(|()| Segments::open_viewer(&dir.path)) {
        Ok(segments) => {
            findings.push(Finding::ok(
                "segments",
                format!(
                    "{} ({}, version {})",
                    dir.path.shown(),
                    dir.about(),
                    shm_layout::ABI_VERSION
                ),
            ));
            let snapshot = snapshot(&segments, clock::now());
            findings.extend(contents(&snapshot));
            found = Some(snapshot);
        }
        Err(OpenError::Missing { .. }) if dir.path.exists() && !may_write(&dir.path) => {
            findings.push(Finding::warn(
                "segments",
                format!(
                    "none in {}, and you may not create files there",
                    dir.path.shown()
                ),
                "set GPUSHARE_DIR to a directory of your own; programs run unmanaged meanwhile",
            ));
        }
        Err(OpenError::Missing { .. }) => {
            findings.push(Finding::ok(
                "segments",
                "none yet; the first program makes them",
            ));
        }
        Err(error) => findings.push(Finding::fail("segments", error.to_string(), advice(&error))),
    }
    (findings, found)
}

/// Returns true if permissions and file system allow to make segments in this directory.
pub fn may_write(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Returns true if the environment names a directory for the segments.
pub(super) fn named_dir() -> bool {
    std::env::var_os(variables::DIR).is_some_and(|dir| !dir.is_empty())
}

/// Returns a sentence if this user's programs are separate from the machine's installation, because the user may not write
/// it.
pub fn apart(dir: &SegmentDir) -> Option<String> {
    let system = Path::new(SYSTEM_DIR);
    let apart = !dir.is_brokered && !named_dir() && system.join(SOCKET).exists();
    apart.then(|| {
        format!(
            "{SYSTEM_DIR} has a broker that you may not use, so your programs use {}",
            dir.path.shown()
        )
    })
}

fn advice(error: &OpenError) -> &'static str {
    match error {
        OpenError::WrongVersion { .. } => {
            "end the programs of the other version, remove the directory, and use one version everywhere"
        }
        OpenError::Foreign { .. } | OpenError::Truncated { .. } => {
            "another program wrote this file: move it away; the next program makes a new one"
        }
        OpenError::StaleBoot { .. } => "nothing to do: the next program makes new ones",
        OpenError::NotReady { .. } => "try again in a moment; if it stays, remove the file",
        OpenError::OtherInstance { .. } => "nothing to do: the next program sets it aside",
        OpenError::Forgetful { .. } => "set GPUSHARE_DIR to a directory in /dev/shm or on a volume",
        OpenError::WrongOwner { .. } | OpenError::Unsafe { .. } => {
            "set GPUSHARE_DIR to a directory of your own"
        }
        OpenError::NoBroker { .. } => "systemctl restart gpushare, or gpushare serve as root",
        OpenError::NoSpace { .. } => "free some memory in that file system",
        _ => "see the message",
    }
}

fn contents(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings: Vec<Finding> = snapshot
        .warnings
        .iter()
        .map(|warning| {
            Finding::warn(
                "segments",
                warning.clone(),
                "if it stays, end all programs and remove the files",
            )
        })
        .collect();
    let brokered = snapshot.processes.iter().any(|one| one.vouched.is_some());
    findings.extend(slots(snapshot, brokered));
    findings.extend(processes(snapshot, brokered));
    if snapshot.violations > 0 {
        findings.push(Finding::fail(
            "lock",
            match brokered {
                true => format!(
                    "a program has written over whose turn it is: others go without turns ({} times)",
                    snapshot.violations
                ),
                false => format!("two holders of one lock were seen {} times", snapshot.violations),
            },
            match brokered {
                true => "gpushare ps names the users whose programs run; end the program that does it",
                false => "this is a defect of gpushare: please report it with the output of gpushare audit and ps --json",
            },
        ));
    }
    findings
}

/// Reports slots with words that neither their process nor the broker wrote.
fn slots(snapshot: &Snapshot, brokered: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let forged = snapshot.processes.iter().filter(|process| process.forged);
    let forged: Vec<String> = forged
        .map(|process| process.slot.index.to_string())
        .collect();
    if !forged.is_empty() {
        findings.push(Finding::fail(
            "segments",
            format!(
                "forged: slots {} say something else than the broker; a user's program writes over the state",
                forged.join(", ")
            ),
            "the broker repairs them within a second; if they come back, gpushare ps names the users whose programs run",
        ));
    }
    if !snapshot.damaged.is_empty() {
        let slots: Vec<String> = snapshot.damaged.iter().map(u16::to_string).collect();
        findings.push(Finding::fail(
            "segments",
            format!(
                "damaged: another program has overwritten slots {}; their figures are wrong",
                slots.join(", ")
            ),
            match brokered {
                true => "the broker and the programs put them right within a second; if they come back, gpushare ps names the users whose programs run",
                false => "end the programs and remove the state file; check which users can write to it",
            },
        ));
    }
    findings
}

/// Reports problems of processes, including those that have ended.
fn processes(snapshot: &Snapshot, brokered: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let dead = snapshot
        .processes
        .iter()
        .filter(|process| process.alive == Liveness::Dead)
        .count();
    if dead > 0 {
        findings.push(Finding::ok(
            "processes",
            format!("{dead} died; the next program or tool releases what they held"),
        ));
    }
    let keeperless = snapshot
        .processes
        .iter()
        .filter(|process| process.alive == Liveness::NoKeeper)
        .count();
    if keeperless > 0 {
        findings.push(Finding::warn(
            "processes",
            format!("{keeperless} have no keeper thread: they apply no edits"),
            "they may be stopped (SIGSTOP) or forbid threads; see gpushare ps",
        ));
    }
    let lost: Vec<String> = snapshot
        .processes
        .iter()
        .filter(|process| process.alive != Liveness::Dead)
        .filter_map(|process| {
            let loss = process.devices.iter().find_map(|on| on.loss)?;
            Some(format!(
                "{}: {}",
                process.identity.pid,
                losses::cause(loss.code)
            ))
        })
        .collect();
    if !lost.is_empty() {
        findings.push(Finding::warn(
            "processes",
            format!("lost their contexts: {}", lost.join(", ")),
            "end them and start them again; the alerts of gpushare-top say which of them may have caused it",
        ));
    }
    if snapshot.processes.iter().any(|process| process.invalid) {
        findings.push(Finding::warn(
            "processes",
            "a running program was started with a wrong GPUSHARE_* value",
            "gpushare ps shows it with the source invalid; start it with gpushare run, which checks first",
        ));
    }
    let refused = Refused {
        count: snapshot.unmanaged,
        last_ns: snapshot.unmanaged_ns,
        slots_used: snapshot.processes.len(),
    };
    if let Some(refusal) = refused.sentence(snapshot.time_ns) {
        findings.push(Finding::warn(
            "processes",
            refusal,
            Refused::remedy(brokered),
        ));
    }
    findings
}
