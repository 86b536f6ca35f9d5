//! `gpushare run --trace FILE`: traces the program and its children, and writes the file when the program has ended.
//!
//! The program is a child here, so that gpushare can write the file after it. Signals to gpushare are passed on, and the
//! program's exit code is returned. The program's environment asks for the trace, so that each process is traced from its
//! first call. In a system-wide installation only root may make a buffer. There, a process gets one as soon as it is found,
//! some milliseconds later.

use std::collections::HashSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use shm_layout::text::PathText as _;
use shm_layout::trace::{self, DEFAULT_RECORDS, TraceState};
use shm_layout::{ProcessView, SegmentDir, Segments, SlotId, clock, snapshot};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Done, note, segments};
use gpushare_base::host::output;
use gpushare_base::host::pids::HostPids;
use gpushare_base::host::procfs;
use gpushare_base::text::exit::Failure;
use gpushare_control::audit::Place;
use gpushare_control::targets::Chosen;
use gpushare_control::trace::begin;
use gpushare_launch::program::Launch;
use gpushare_launch::traces::{self, Account, chrome, ring};
use shm_layout::variables;

/// Maximum time for a process to start its trace itself.
const BY_ITSELF_NS: u64 = 100_000_000;
/// Interval between two searches for processes: before the first one uses the GPU, and afterwards.
const EAGER: Duration = Duration::from_millis(2);
const CALM: Duration = Duration::from_millis(25);

/// Runs the program to its end and exits with its code.
pub fn run(mut launch: Launch, file: &Path, dir: &SegmentDir) -> Done {
    // Standard output belongs to the program.
    if file.as_os_str() == "-" {
        return Err(Failure::usage(
            "--trace: - would mix the trace with the program's output; name a file",
        ));
    }
    // Checked first, so that an unwritable path does not waste a whole run.
    output::check(file)?;
    // The user's environment may already set the number of records.
    if std::env::var_os(variables::TRACE).is_none_or(|records| records.is_empty()) {
        launch.set(variables::TRACE, DEFAULT_RECORDS.to_string());
    }
    let failed = |error: io::Error| Failure::failed(format!("cannot watch for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let (status, traced) = runtime.block_on(watch(&launch, dir))?;
    // An error of the trace does not change the exit code, because the program's own result matters more.
    match write(file, dir, &traced) {
        Ok(()) => {}
        Err(failure) => note(&format!("no trace was written: {failure}")),
    }
    end_like(status)
}

async fn watch(
    launch: &Launch,
    dir: &SegmentDir,
) -> Result<(ExitStatus, HashSet<SlotId>), Failure> {
    let cannot = |error| Failure::failed(format!("cannot watch for signals: {error}"));
    let on = |kind| signal(kind).map_err(cannot);
    let (mut term, mut hangup) = (on(SignalKind::terminate())?, on(SignalKind::hangup())?);
    let (mut interrupt, mut quit) = (on(SignalKind::interrupt())?, on(SignalKind::quit())?);
    let (mut one, mut two) = (
        on(SignalKind::user_defined1())?,
        on(SignalKind::user_defined2())?,
    );
    let mut child = launch.spawn()?;
    let mut watcher = Watcher::new(&child, dir);
    loop {
        let pause = if watcher.traced.is_empty() {
            EAGER
        } else {
            CALM
        };
        let forwarded = tokio::select! {
            () = tokio::time::sleep(pause) => None,
            _ = term.recv() => Some(Signal::TERM),
            _ = hangup.recv() => Some(Signal::HUP),
            // If gpushare is in the terminal's foreground group, the program receives the terminal's signals directly.
            _ = interrupt.recv() => Some(Signal::INT).filter(|_| !in_foreground()),
            _ = quit.recv() => Some(Signal::QUIT).filter(|_| !in_foreground()),
            _ = one.recv() => Some(Signal::USR1),
            _ = two.recv() => Some(Signal::USR2),
        };
        if let Some(status) = child.try_wait()? {
            return Ok((status, watcher.traced));
        }
        if let Some(signal) = forwarded {
            // The child is not reaped yet, so no other process has its pid.
            let _ = kill_process(Pid::from_child(&child), signal);
        }
        watcher.look();
    }
}

/// Returns true if this process group receives the terminal's signals.
fn in_foreground() -> bool {
    let stat = procfs::text("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = procfs::stat_fields(&stat).into_iter().flatten().collect();
    fields.len() > 5 && fields[2] == fields[5]
}

/// A search for the program's processes that use the GPU.
struct Watcher<'d> {
    root: u32,
    dir: &'d SegmentDir,
    segments: Option<Segments>,
    pids: HostPids,
    /// Slots that were checked.
    known: HashSet<SlotId>,
    traced: HashSet<SlotId>,
}

impl<'d> Watcher<'d> {
    fn new(child: &Child, dir: &'d SegmentDir) -> Self {
        Self {
            root: child.id(),
            dir,
            segments: None,
            pids: HostPids::new(),
            known: HashSet::new(),
            traced: HashSet::new(),
        }
    }

    fn look(&mut self) {
        if self.segments.is_none() {
            self.segments = Segments::open_viewer(&self.dir.path).ok();
        }
        let Some(segments) = &self.segments else {
            return;
        };
        for process in snapshot(segments, clock::now()).processes {
            if self.known.contains(&process.slot) {
                continue;
            }
            if !self.is_of_the_program(&process) {
                self.known.insert(process.slot);
            } else if process.trace.progress.state == TraceState::On {
                self.known.insert(process.slot);
                self.traced.insert(process.slot);
            } else if clock::now().saturating_sub(process.registered_ns) > BY_ITSELF_NS {
                self.known.insert(process.slot);
                self.begin(&process);
            }
        }
    }

    fn begin(&mut self, process: &ProcessView) {
        let identity = &process.identity;
        let chosen = Chosen {
            slot: process.slot,
            start_time: identity.start_time,
            title: format!("{} {}", identity.pid, identity.label),
        };
        let reason = Some("gpushare run --trace".to_owned());
        match begin(self.dir, &chosen, DEFAULT_RECORDS, reason, Place::Ctl) {
            Ok(_) => {
                self.traced.insert(process.slot);
            }
            // It has started its trace itself in between.
            Err(_) if self.is_on(process.slot) => {
                self.traced.insert(process.slot);
            }
            Err(failure) => note(&failure.sentence),
        }
    }

    fn is_on(&self, slot: SlotId) -> bool {
        self.segments.as_ref().is_some_and(|segments| {
            let processes = snapshot(segments, clock::now()).processes;
            let is = |process: &ProcessView| {
                process.slot == slot && process.trace.progress.state == TraceState::On
            };
            processes.iter().any(is)
        })
    }

    /// Returns true if the process is the child or descends from it.
    fn is_of_the_program(&mut self, process: &ProcessView) -> bool {
        let mut pid = self.pids.resolve(&process.identity);
        for _ in 0..64 {
            match pid {
                Some(known) if known == self.root => return true,
                Some(known) => pid = parent_of(known),
                None => return false,
            }
        }
        false
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = procfs::text(format!("/proc/{pid}/stat")).ok()?;
    procfs::stat_fields(&stat)?.nth(1)?.parse().ok()
}

/// Writes the traces and removes the buffers.
fn write(file: &Path, dir: &SegmentDir, traced: &HashSet<SlotId>) -> Result<(), Failure> {
    if traced.is_empty() {
        return Err(Failure::failed("the program made no CUDA call"));
    }
    let sample = segments::sample_with_events(dir)?;
    let mut found = traces::all(&dir.path, &sample, note);
    found.retain(|found| {
        let slot = found.process.slot();
        slot.is_some_and(|slot| traced.contains(&slot))
    });
    let edits = ring::edits(dir);
    let accounts = output::whole_file(file, |out| chrome::write(&found, &sample, &edits, out))?;
    for complaint in accounts.iter().filter_map(Account::complaint) {
        note(&complaint);
    }
    let records: u64 = accounts.iter().map(|account| account.records).sum();
    note(&format!(
        "{records} records are in {}; open it at ui.perfetto.dev",
        file.shown()
    ));
    for slot in traced {
        // If it cannot be removed now, it is swept an hour later.
        let _ = trace::remove(&dir.path, *slot);
    }
    Ok(())
}

/// Exits with the program's code; after a signal with 128 plus its number, as in shells.
fn end_like(status: ExitStatus) -> ! {
    let code = status
        .code()
        .or_else(|| Some(128 + status.signal()?))
        .unwrap_or(1);
    std::process::exit(code)
}
