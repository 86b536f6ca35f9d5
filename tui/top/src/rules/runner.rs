//! The runner of rules' actions, in the background: programs run in a thread, a few at a time, each for a bounded time.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use shm_layout::SegmentDir;
use tokio::sync::mpsc::UnboundedSender;

use crate::operator::{News, Operator, Task};
use crate::rules::action::RuleAction;
use gpushare_base::text::plain::plain;
use gpushare_control::Installation as _;
use gpushare_control::audit::{AuditLog, Place, Record};

/// Maximum number of programs that run at once.
const RUNNING: usize = 4;
/// Maximum number of programs that wait; further ones are not started.
const WAITING: usize = 16;
/// Time between two checks of the running programs.
const LOOK: Duration = Duration::from_millis(50);
/// Time left for running programs when the dashboard ends.
const END: Duration = Duration::from_secs(1);

/// The handle of the thread. Dropping it ends the running programs.
#[derive(Debug)]
pub struct Runner {
    programs: Option<SyncSender<Box<RuleAction>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The parts of an action that need the terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Set to ring the bell.
    pub bell: bool,
    /// The text of a desktop notification.
    pub notify: Option<String>,
    /// The sentence to show in the last line.
    pub said: Option<String>,
}

impl Runner {
    /// Starts the thread; programs are recorded in the log of the segments in `dir`.
    pub fn start(dir: PathBuf, news: UnboundedSender<News>) -> Self {
        let (programs, inbox) = mpsc::sync_channel(WAITING);
        let over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&over);
        let spawned = thread::Builder::new()
            .name("alerts".into())
            .spawn(move || run(&inbox, &theirs, &dir, &news));
        Self {
            programs: Some(programs),
            over,
            thread: spawned.ok(),
        }
    }

    /// Runs an action, except the parts that need the terminal, which it returns. Nothing is changed if `may_edit` is
    /// false.
    pub fn act(&self, action: RuleAction, operator: &Operator, may_edit: bool) -> Signs {
        let mut signs = Signs {
            bell: action.bell,
            notify: action.notify.then(|| plain(&action.sentence).into_owned()),
            said: None,
        };
        let not_done = |why: &str| Some(format!("rule {}: {why}", action.rule));
        match &action.edit {
            None => {}
            Some(_) if !may_edit => signs.said = not_done("its remedy is not made: read-only"),
            Some(Err(why)) => signs.said = not_done(&format!("its remedy is not made: {why}")),
            Some(Ok(request)) => {
                let task = Task::Remedy(action.rule.clone(), request.clone());
                signs.said = operator.send(task).err();
            }
        }
        if action.command.is_some() {
            let programs = self.programs.as_ref();
            match programs.map(|programs| programs.try_send(Box::new(action.clone()))) {
                Some(Ok(())) => {}
                Some(Err(TrySendError::Full(_))) => {
                    signs.said = not_done("its program is not started: too many wait already");
                }
                None | Some(Err(TrySendError::Disconnected(_))) => {
                    signs.said =
                        not_done("its program cannot be started: the thread for it has ended");
                }
            }
        }
        signs
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.programs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Running {
    rule: String,
    child: Child,
    ends: Instant,
}

fn run(
    inbox: &Receiver<Box<RuleAction>>,
    over: &AtomicBool,
    dir: &Path,
    news: &UnboundedSender<News>,
) {
    let mut running: Vec<Running> = Vec::new();
    loop {
        let came = match running.len() {
            0 => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            RUNNING.. => {
                thread::sleep(LOOK);
                Err(RecvTimeoutError::Timeout)
            }
            _ => inbox.recv_timeout(LOOK),
        };
        if over.load(Ordering::Relaxed) {
            break;
        }
        match came {
            Ok(action) => running.extend(start(*action, dir, news)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        running.retain_mut(|one| !has_ended(one, news));
    }
    let end = Instant::now() + END;
    running
        .iter_mut()
        .for_each(|one| one.ends = one.ends.min(end));
    while !running.is_empty() {
        thread::sleep(LOOK);
        running.retain_mut(|one| !has_ended(one, news));
    }
}

/// Starts the program of an action and records it.
fn start(action: RuleAction, dir: &Path, news: &UnboundedSender<News>) -> Option<Running> {
    let wanted = action.command.as_ref()?;
    let (program, arguments) = wanted.words.split_first()?;
    let started = Command::new(program)
        .args(arguments)
        .envs(action.facts.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A process group of its own, so that its children end with it and ^C in the dashboard does not reach it.
        .process_group(0)
        .spawn();
    let refusal = started
        .as_ref()
        .err()
        .map(|error| format!("{program} cannot be started: {error}"));
    let logged = record(&action, &wanted.words, refusal.clone(), dir);
    let trouble = refusal.or_else(|| {
        logged
            .err()
            .map(|error| format!("the audit log cannot be written: {error}"))
    });
    if let Some(why) = trouble {
        tell(news, &action.rule, &why);
    }
    let child = started.ok()?;
    Some(Running {
        rule: action.rule,
        child,
        ends: Instant::now() + wanted.limit,
    })
}

fn record(
    action: &RuleAction,
    words: &[String],
    refusal: Option<String>,
    dir: &Path,
) -> std::io::Result<()> {
    let dir = SegmentDir::at(dir);
    let new = format!("command {}", words.join(" "));
    let record = Record {
        reason: Some(action.reason.clone()),
        ..Record::of_action(Place::Tui, new, action.target.clone(), action.started)
    };
    match AuditLog::of(&dir).append(&record.refused(refusal)) {
        Err(_) if !dir.is_log_ours() => Ok(()),
        appended => appended,
    }
}

fn has_ended(one: &mut Running, news: &UnboundedSender<News>) -> bool {
    match one.child.try_wait() {
        Ok(None) if Instant::now() < one.ends => false,
        Ok(None) => {
            let pid = i32::try_from(one.child.id()).ok().and_then(Pid::from_raw);
            // The child is not reaped yet, so its pid is still its own.
            let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
            let _ = one.child.wait();
            tell(news, &one.rule, "its program took too long and was ended");
            true
        }
        Ok(Some(status)) => {
            if !status.success() {
                tell(news, &one.rule, &format!("its program {}", ended(status)));
            }
            true
        }
        Err(error) => {
            tell(news, &one.rule, &format!("its program is lost: {error}"));
            true
        }
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    }
}

fn tell(news: &UnboundedSender<News>, rule: &str, what: &str) {
    // The receiver is gone while the dashboard closes.
    let _ = news.send(News::Warning(format!("rule {rule}: {what}")));
}
