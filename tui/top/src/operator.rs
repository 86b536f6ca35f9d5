//! The thread that edits: it writes, waits until the workloads apply the edit, and reports; the screen never waits for it.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use shm_layout::text::PathText as _;
use shm_layout::trace::DEFAULT_RECORDS;
use shm_layout::{Change, Mode, SegmentDir};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use gpushare_base::host::launched::{self, Launched};
use gpushare_base::host::signal::{NotSent, Signalled};
use gpushare_base::text::edits::from_to;
use gpushare_control::audit::{AuditLog, Entry, History, Place, Record, unreadable};
use gpushare_control::change::summary;
use gpushare_control::targets::Chosen;
use gpushare_control::{ACKNOWLEDGEMENT, Applied, EditRequest, Editor, policy, trace};
use gpushare_observe::source::live::Live;
use gpushare_sample::Who;

/// What to do.
#[derive(Clone, Debug)]
pub enum Task {
    /// One edit.
    Edit(Box<EditRequest>),
    /// An edit that a rule of the settings makes, and the rule's name.
    Remedy(String, Box<EditRequest>),
    /// Take an edit back.
    Undo(Box<Entry>),
    /// Write down what a process calls.
    Trace(Chosen),
    /// One after the other, whatever becomes of each.
    All(Vec<Task>),
    /// Look how a process was started: which, its pid, and when it began in the kernel's ticks.
    About(Who, u32, u64),
    /// Read the list of edits.
    ReadAudit,
    /// Write these files, which must not be there yet.
    Write(Vec<(PathBuf, Vec<u8>)>),
    /// Send a signal to a process.
    Signal(Signalled),
}

/// How it went.
#[derive(Debug)]
pub enum News {
    /// The edit is in force; some may not have applied it yet.
    InForce {
        /// Its target.
        target: String,
        /// The edit.
        applied: Applied,
    },
    /// The wait is over: all have applied it, or the time is up.
    Settled {
        /// Its target.
        target: String,
        /// The edit.
        applied: Applied,
    },
    /// It is done, in a sentence.
    Done(String),
    /// A rule of the settings has made an edit, in a sentence.
    Remedied(String),
    /// Something good to know.
    Note(String),
    /// Something to know beside what was done.
    Warning(String),
    /// Nothing was changed, and why.
    Refused(String),
    /// How a process was started.
    About(Who, Result<Launched, String>),
    /// The list of edits and where it is kept.
    Audit(String, Result<History, String>),
}

/// The way to the thread.
#[derive(Debug)]
pub struct Operator {
    tasks: mpsc::Sender<Task>,
}

impl Operator {
    /// Starts the thread for the segments in `dir`. It ends when this is dropped.
    pub fn start(dir: PathBuf, news: UnboundedSender<News>) -> Self {
        let (tasks, inbox) = mpsc::channel();
        let spawned = thread::Builder::new()
            .name("operator".into())
            .spawn(move || {
                while let Ok(task) = inbox.recv() {
                    work(&dir, task, &news);
                }
            });
        // Without the thread the channel is closed, and every task is refused with a sentence.
        drop(spawned);
        Self { tasks }
    }

    /// Hands a task over; the answer comes as [`News`].
    pub fn send(&self, task: Task) -> Result<(), String> {
        self.tasks
            .send(task)
            .map_err(|_| "the thread that edits has ended; restart gpushare-top".to_owned())
    }
}

fn work(dir: &PathBuf, task: Task, news: &UnboundedSender<News>) {
    // Located anew each time: the segments may have been created since the start.
    let dir = shm_layout::locate_existing()
        .ok()
        .filter(|found| found.path == *dir)
        .unwrap_or(SegmentDir {
            path: dir.clone(),
            mode: Mode::User,
        });
    // There is no listener any more when the dashboard is closing.
    let tell = |what| drop(news.send(what));
    match task {
        Task::ReadAudit => {
            let log = AuditLog::of(&dir);
            let path = log.path().shown();
            let history = log.read().map_err(|error| unreadable(&dir, &error));
            tell(News::Audit(path, history));
        }
        Task::About(who, pid, started) => tell(News::About(who, launched::look(pid, started))),
        Task::Edit(request) => edit(&dir, *request, &tell),
        Task::Remedy(rule, request) => {
            let target = request.target.clone();
            tell(match Editor::open(&dir).submit(*request) {
                Ok(applied) => {
                    let (old, new) = (summary(&applied.old), summary(&applied.new));
                    let change = from_to(Some(&old), &new, "to");
                    News::Remedied(format!("rule {rule}: {target}: {change}"))
                }
                Err(failure) => {
                    News::Warning(format!("rule {rule}: its remedy is not made: {failure}"))
                }
            });
        }
        Task::Write(files) => tell(match write(&files) {
            Ok(names) => News::Note(format!("written: {names}")),
            Err(why) => News::Warning(why),
        }),
        Task::Signal(signal) => send_signal(&dir, &signal, &tell),
        Task::Trace(chosen) => {
            let began = trace::begin(&dir, &chosen, DEFAULT_RECORDS, None, Place::Tui);
            tell(match began {
                Ok(sentence) => News::Done(sentence),
                Err(failure) => News::Refused(failure.sentence),
            });
        }
        Task::All(tasks) => all(&dir, tasks, &tell),
        Task::Undo(entry) => {
            let target = entry.record.target.clone();
            let editor = Editor::open(&dir);
            match editor.undo(&entry, Place::Tui, None) {
                Ok(applied) => tell(News::Settled { target, applied }),
                Err(failure) => tell(News::Refused(failure.to_string())),
            }
            tell_set_aside(&editor, &tell);
            work(&dir.path, Task::ReadAudit, news);
        }
    }
}

/// Makes an edit and tells when it is in force.
fn edit(dir: &SegmentDir, request: EditRequest, tell: &impl Fn(News)) {
    let target = request.target.clone();
    let editor = Editor::open(dir);
    let everywhere = request.change.clone();
    let reason = request.reason.clone();
    match editor.submit(request) {
        Ok(applied) => {
            if let Err(why) = clear_own(&editor, &everywhere, dir, reason.as_deref()) {
                tell(News::Refused(why));
            }
            tell(News::InForce {
                target: target.clone(),
                applied: applied.clone(),
            });
            let applied = editor.wait(applied, ACKNOWLEDGEMENT);
            tell(News::Settled { target, applied });
        }
        Err(failure) => tell(News::Refused(failure.to_string())),
    }
    // Last, so that it is what stays to be read.
    tell_set_aside(&editor, tell);
}

/// Sends a signal and writes it into the log.
fn send_signal(dir: &SegmentDir, signal: &Signalled, tell: &impl Fn(News)) {
    let sent = signal.send().map_err(NotSent::why);
    let record = Record::of_signal(Place::Tui, signal).refused(sent.as_ref().err().cloned());
    tell(match sent {
        Ok(sentence) => News::Done(sentence),
        Err(why) => News::Refused(why),
    });
    // Where a broker serves the machine the log is the broker's, and root's.
    let log = AuditLog::of(dir);
    if let Err(error) = log.append(&record)
        && dir.mode == Mode::User
    {
        let path = log.path().shown();
        tell(News::Warning(format!(
            "the signal is not recorded: {path} cannot be written: {error}"
        )));
    }
}

/// Does tasks one after the other and tells their refusals as one.
fn all(dir: &SegmentDir, tasks: Vec<Task>, tell: &impl Fn(News)) {
    let count = tasks.len();
    let mut refused = Vec::new();
    for task in tasks {
        let (each, mut told) = unbounded_channel();
        work(&dir.path, task, &each);
        while let Ok(news) = told.try_recv() {
            match news {
                News::Refused(why) => refused.push(why),
                news => tell(news),
            }
        }
    }
    // Last, so that one refusal is not lost behind what went well.
    if let Some(first) = refused.first() {
        let many = refused.len();
        tell(News::Refused(format!(
            "{many} of {count} were refused: {first}"
        )));
    }
}

/// Writes files that are not there yet; their names.
fn write(files: &[(PathBuf, Vec<u8>)]) -> Result<String, String> {
    let mut names = Vec::new();
    for (path, bytes) in files {
        let file = File::options().write(true).create_new(true).open(path);
        let written = file.and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| format!("{} cannot be written: {error}", path.shown()))?;
        names.push(path.shown().to_string());
    }
    Ok(names.join(" "))
}

/// Says it if opening the segments set earlier settings aside.
fn tell_set_aside(editor: &Editor, tell: &impl Fn(News)) {
    if let Some(sentence) = editor.set_aside() {
        tell(News::Warning(sentence));
    }
}

/// A device's own policy hides the one for all devices, so it is cleared.
fn clear_own(
    editor: &Editor,
    everywhere: &Change,
    dir: &SegmentDir,
    reason: Option<&str>,
) -> Result<(), String> {
    if !matches!(everywhere, Change::Policy { device: None, .. }) {
        return Ok(());
    }
    let sample = Live::new(&dir.path, false)
        .look()
        .map_err(|error| error.to_string())?;
    let requests = policy::clear_own(everywhere, &sample, dir, &[], Place::Tui, reason);
    for request in requests.map_err(|failure| failure.sentence)? {
        let target = request.target.clone();
        editor
            .submit(request)
            .map_err(|failure| format!("the policy is in force for all but {target}: {failure}"))?;
    }
    Ok(())
}
