//! Many machines: one line each, and a dashboard of each.
//!
//! Opening a machine runs `gpushare-top` there, over ssh and in this terminal. So the keys, the rules about edits and
//! the audit log are that machine's own. Nothing here waits for a machine: [`Fleet`] has the last answer of each.

use std::io::{self, Write};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Result, bail};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind};
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::options::Format;
use super::run::{End, FRAME, LOST, Signals};
use super::terminal::{self, hangup};
use super::view::Look;
use super::view::hosts::{self as view, Line};
use gpushare_base::text::exit::Exit;
use gpushare_base::text::plain::Plain;
use gpushare_base::text::units::short_size;
use gpushare_observe::source::fleet::{Fleet, Host, HostStatus, MOST, RemoteSummary, WAYS};
use gpushare_sample::SCHEMA_VERSION;
use gpushare_sample::keys::object;

/// Age at which an answer is no longer shown.
const STALE: Duration = Duration::from_secs(10);
/// Time that a machine has to answer when all are printed once.
const PATIENCE: Duration = Duration::from_secs(10);

object! {
    /// The document of `--once --format json HOST…`.
    pub Document(hosts: Vec<(&Host, HostStatus)>) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        hosts: Vec<HostReport> = hosts.iter().map(|(host, status)| HostReport::of(host, status)).collect(), "The machines, as they were named.";
    }
}

object! {
    HostReport(host: &Host, status: &HostStatus) {
        host: String = host.name(), "Its name.";
        wrong: Option<String> = wrong(status), "Why it says nothing; null where it does. The other keys are 0 then.";
        gpus: usize = of(status, |told| told.gpus), "GPUs and MIG instances.";
        busy: usize = of(status, |told| told.busy), "Those whose lock is held, or that compute.";
        processes: usize = of(status, |told| told.processes), "Processes on them.";
        waiting: usize = of(status, |told| told.waiting), "Processes that wait for a lock.";
        denials: u64 = of(status, |told| told.denials), "Allocations refused since their processes began.";
        warnings: usize = of(status, |told| told.warnings), "Alerts of the severity warning.";
        used_bytes: u64 = of(status, |told| told.used_bytes), "Memory in use.";
        total_bytes: u64 = of(status, |told| told.total_bytes), "Memory there is.";
        alert: Option<String> = of(status, |told| told.worst.clone()), "The first of its alerts.";
    }
}

fn of<T: Default>(status: &HostStatus, get: impl Fn(&RemoteSummary) -> T) -> T {
    match status {
        HostStatus::Here(told, _) => get(told),
        _ => T::default(),
    }
}

fn wrong(status: &HostStatus) -> Option<String> {
    match status {
        HostStatus::Asked => Some("it has not answered yet".to_owned()),
        HostStatus::Lost(why) => Some(why.clone()),
        HostStatus::Here(_, at) if at.elapsed() > STALE => {
            Some(format!("it says nothing for {} s", at.elapsed().as_secs()))
        }
        HostStatus::Here(..) => None,
    }
}

/// Parses the machines of a command line.
pub fn read(names: &[String]) -> Result<Vec<Host>, String> {
    if names.len() > MOST {
        return Err(format!(
            "{} machines are too many at a time; name at most {MOST}",
            names.len()
        ));
    }
    names.iter().map(|name| Host::read(name)).collect()
}

fn line(host: &Host, status: &HostStatus) -> Line {
    let wrong = wrong(status);
    let told = of(status, Clone::clone);
    let memory = format!(
        "{} of {}",
        short_size(told.used_bytes),
        short_size(told.total_bytes)
    );
    let numbers = [told.gpus, told.busy, told.processes, told.waiting];
    let [gpus, busy, processes, waiting] = numbers.map(|number| number.to_string());
    let (denials, warnings) = (told.denials.to_string(), told.warnings.to_string());
    Line {
        name: host.name(),
        cells: [gpus, busy, processes, waiting, denials, warnings, memory],
        lost: wrong.is_some(),
        warns: told.warnings > 0,
        note: wrong.or(told.worst).unwrap_or_default(),
    }
}

fn lines(fleet: &Fleet) -> Vec<Line> {
    let machines = fleet.look();
    machines
        .iter()
        .map(|(host, status)| line(host, status))
        .collect()
}

/// Prints all machines once, when each has answered or its time is over. Returns [`Exit::Failed`] if one is missing.
pub fn print(hosts: Vec<Host>, pace: Duration, format: Format) -> Result<Exit> {
    let fleet = Fleet::watch(hosts, pace)?;
    let until = Instant::now() + PATIENCE;
    while !fleet.is_settled() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let machines = fleet.look();
    let missing = machines.iter().any(|(_, status)| wrong(status).is_some());
    let mut out = io::stdout().lock();
    match format {
        Format::Csv => bail!("machines are printed as a table or as JSON; give --format json"),
        Format::Json => {
            serde_json::to_writer(Plain::json(&mut out), &Document::of(machines))?;
            writeln!(out)?;
        }
        Format::Table => {
            let mut out = Plain::new(&mut out);
            writeln!(
                out,
                "{:<24} {:>4} {:>4} {:>5} {:>4} {:>6} {:>6} {:>16}",
                "HOST", "GPUS", "BUSY", "PROCS", "WAIT", "DENY", "ALERTS", "MEMORY"
            )?;
            for (host, status) in &machines {
                let Line {
                    name,
                    cells: [gpus, busy, processes, waiting, denials, warnings, memory],
                    note,
                    lost,
                    ..
                } = line(host, status);
                // Control characters from other machines must not leave their line.
                let note = gpushare_base::text::plain::plain(&note);
                match lost {
                    true => writeln!(out, "{name:<24} {note}")?,
                    false => writeln!(out, "{}", format!("{name:<24} {gpus:>4} {busy:>4} {processes:>5} {waiting:>4} {denials:>6} {warnings:>6} {memory:>16}  {note}").trim_end())?,
                }
            }
            out.flush()?;
        }
    }
    Ok(if missing { Exit::Failed } else { Exit::Done })
}

/// The action that a key asks for.
enum Next {
    Stay,
    Quit,
    Enter,
}

/// The list of machines on the screen.
struct Board {
    fleet: Fleet,
    hosts: Vec<Host>,
    selected: usize,
    said: String,
}

impl Board {
    fn key(&mut self, key: KeyEvent) -> Next {
        self.said.clear();
        let last = self.hosts.len().saturating_sub(1);
        match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Char('q') | KeyCode::Esc, false) | (KeyCode::Char('c'), true) => {
                return Next::Quit;
            }
            (KeyCode::Down | KeyCode::Char('j'), _) => {
                self.selected = (self.selected + 1).min(last)
            }
            (KeyCode::Up | KeyCode::Char('k'), _) => {
                self.selected = self.selected.saturating_sub(1)
            }
            (KeyCode::Home, _) => self.selected = 0,
            (KeyCode::End, _) => self.selected = last,
            (KeyCode::Char('r'), false) => self.fleet.again(self.selected),
            (KeyCode::Enter | KeyCode::Right, _) => return Next::Enter,
            _ => {}
        }
        Next::Stay
    }
}

/// Shows the machines until the user quits or a signal ends the program.
pub fn run(hosts: Vec<Host>, pace: Duration, look: &Look, read_only: bool) -> Result<End> {
    let fleet = Fleet::watch(hosts.clone(), pace)?;
    let board = Board {
        fleet,
        hosts,
        selected: 0,
        said: String::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(show(board, look, read_only))
}

async fn show(mut board: Board, look: &Look, read_only: bool) -> Result<End> {
    let mut signals = Signals::new()?;
    let mut hangup = hangup::watch()?;
    'screen: loop {
        let Some((mut screen, mut terminal)) = terminal::take()? else {
            return Ok(LOST);
        };
        let mut ticks = interval(2 * FRAME);
        let mut next_frame = Instant::now();
        let mut dirty = true;
        loop {
            let event = tokio::select! {
                biased;
                _ = &mut hangup => return Ok(LOST),
                number = Signals::deadly(&mut signals.deadly) => return Ok(End::of(number)),
                _ = signals.stop.recv() => { screen.suspend()?; None }
                _ = signals.go_on.recv() => { screen.resume()?; None }
                () = sleep_until(next_frame), if dirty => {
                    if screen.is_ready() {
                        let lines = lines(&board.fleet);
                        let drawn = screen.draw(|frame| {
                            view::draw(frame, frame.area, &lines, board.selected, &board.said, look);
                        });
                        if drawn.is_err() {
                            return Ok(LOST);
                        }
                        dirty = false;
                    }
                    next_frame = Instant::now() + FRAME;
                    continue;
                }
                event = terminal.next() => match event {
                    None | Some(Err(_)) => return Ok(LOST),
                    Some(Ok(event)) => Some(event),
                },
                _ = ticks.tick() => { dirty = true; continue }
            };
            dirty = true;
            let next = match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => board.key(key),
                Some(Event::Mouse(mouse)) => match mouse.kind {
                    MouseEventKind::ScrollDown => board.key(KeyCode::Down.into()),
                    MouseEventKind::ScrollUp => board.key(KeyCode::Up.into()),
                    _ => Next::Stay,
                },
                _ => Next::Stay,
            };
            match (next, board.hosts.get(board.selected)) {
                (Next::Quit, _) => return Ok(End::Quit),
                (Next::Enter, Some(Host::Url(..))) => {
                    "only machines that ssh reaches can be opened".clone_into(&mut board.said)
                }
                (Next::Enter, Some(Host::Ssh(name))) => {
                    let name = name.clone();
                    terminal.end().await;
                    drop(screen);
                    match visit(&name, read_only, &mut signals).await {
                        Ok(0) => {}
                        Ok(code) => {
                            board.said =
                                format!("{name}: ssh or gpushare-top ended with code {code}")
                        }
                        Err(Left::Signal(number)) => return Ok(End::Signal(number)),
                        Err(Left::Failed(why)) => {
                            board.said = format!("ssh cannot be started: {why}")
                        }
                    }
                    continue 'screen;
                }
                _ => {}
            }
        }
    }
}

/// The reason why a visit was cut short.
enum Left {
    Signal(u8),
    Failed(io::Error),
}

/// A remote dashboard in this terminal. Dropping it kills its process.
struct Visit(Child);

impl Drop for Visit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the dashboard of another machine in this terminal, and returns its exit code.
async fn visit(name: &str, read_only: bool, signals: &mut Signals) -> Result<i32, Left> {
    let mut command = Command::new("ssh");
    command
        .arg("-t")
        .args(WAYS)
        .args(["--", name, "gpushare-top"]);
    if read_only {
        command.arg("--read-only");
    }
    let mut visit = Visit(command.spawn().map_err(Left::Failed)?);
    loop {
        if let Some(status) = visit.0.try_wait().map_err(Left::Failed)? {
            return Ok(status.code().unwrap_or(255));
        }
        tokio::select! {
            // ^C goes to the other machine.
            number = Signals::deadly(&mut signals.deadly) => if number != 2 { return Err(Left::Signal(number)) },
            () = sleep(Duration::from_millis(50)) => {}
        }
    }
}
