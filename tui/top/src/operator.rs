//! The operator: a thread that makes edits, waits until the processes apply them, and reports. The screen never waits
//! for it.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use shm_layout::text::PathText as _;
use shm_layout::trace::DEFAULT_RECORDS;
use shm_layout::{Change, SegmentDir};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use gpushare_base::host::launched::{self, Launched};
use gpushare_base::host::signal::{NotSent, Signalled};
use gpushare_base::text::edits::from_to;
use gpushare_control::audit::{AuditLog, Entry, History, Place, Record, unreadable};
use gpushare_control::change::summary;
use gpushare_control::measured::{Measured, Measurements};
use gpushare_control::targets::Chosen;
use gpushare_control::{
    ACKNOWLEDGEMENT, Applied, EditRequest, Editor, Installation as _, policy, trace,
};
use gpushare_observe::marks::Mark;
use gpushare_observe::source::live::Live;
use gpushare_sample::Who;

/// A task for the thread.
#[derive(Clone, Debug)]
pub enum Task {
    /// Make an edit.
    Edit(Box<EditRequest>),
    /// An edit that a rule of the settings makes, and the rule's name.
    Remedy(String, Box<EditRequest>),
    /// Take an edit back.
    Undo(Box<Entry>),
    /// Start or stop recording a process's calls.
    Trace(Chosen),
    /// Several tasks, one after the other, each independent of the others' results.
    All(Vec<Task>),
    /// Read how a process was started: the process, its pid, and its start time in the kernel's ticks.
    About(Who, u32, u64),
    /// Read the list of edits.
    ReadAudit,
    /// Find the newest edit that can be undone.
    ReadNewest,
    /// Write these files, which must not exist yet.
    Write(Vec<(PathBuf, Vec<u8>)>),
    /// Keep figures for advice.
    Keep(Box<Measured>),
    /// Send a signal to a process.
    Signal(Signalled),
}

/// The result of a task.
#[derive(Debug)]
pub enum News {
    /// The edit is in force; some processes may not have applied it yet.
    InForce {
        /// The target of the edit.
        target: String,
        /// The edit.
        applied: Applied,
    },
    /// The wait is over: all processes have applied it, or the time is up.
    Settled {
        /// The target of the edit.
        target: String,
        /// The edit.
        applied: Applied,
    },
    /// An edit was undone.
    Undone {
        /// The target of the edit.
        target: String,
        /// The values from before the edit that was undone.
        restored: Option<String>,
        /// The edit that restores them.
        applied: Applied,
    },
    /// A sentence about a task that succeeded.
    Done(String),
    /// A sentence about an edit that a rule of the settings made.
    Remedied(String),
    /// A hint.
    Note(String),
    /// A warning beside the result.
    Warning(String),
    /// The reason why nothing was changed.
    Refused(String),
    /// The facts about how a process was started.
    About(Who, Result<Launched, String>),
    /// The newest edit that can be undone, or why there is none.
    Newest(Result<Box<Entry>, String>),
    /// Marks that a recording has; none at its end.
    Marks(Vec<Mark>),
    /// The place of the list of edits, and the list.
    Audit(String, Result<History, String>),
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Operator {
    tasks: mpsc::Sender<Task>,
}

impl Operator {
    /// Starts the thread for the segments in `dir`. The thread ends when the handle is dropped.
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

    /// Hands a task to the thread; the result comes as [`News`].
    pub fn send(&self, task: Task) -> Result<(), String> {
        self.tasks
            .send(task)
            .map_err(|_| "the thread that edits has ended; restart gpushare-top".to_owned())
    }
}

/// Returns the list of edits.
pub fn read_audit(dir: &SegmentDir) -> News {
    let log = AuditLog::of(dir);
    let path = log.path().shown();
    let history = log.read().map_err(|error| unreadable(dir, &error));
    News::Audit(path, history)
}

/// Returns the newest edit that can be undone.
fn newest(dir: &SegmentDir) -> Result<Box<Entry>, String> {
    let edits = Editor::open(dir).undoable();
    let newest = edits.map_err(|failure| failure.to_string())?.into_iter();
    let entry = newest.map(Box::new).next();
    entry.ok_or_else(|| "there is no edit to undo".to_owned())
}

fn work(dir: &Path, task: Task, news: &UnboundedSender<News>) {
    // Looked at for each task: a broker may have started since.
    let dir = SegmentDir::at(dir);
    // The receiver is gone while the dashboard closes.
    let tell = |what| drop(news.send(what));
    match task {
        Task::ReadAudit => tell(read_audit(&dir)),
        Task::ReadNewest => tell(News::Newest(newest(&dir))),
        Task::About(who, pid, started) => tell(News::About(who, launched::look(pid, started))),
        Task::Edit(request) => edit(&dir, *request, &tell),
        Task::Remedy(rule, request) => {
            let target = request.target.clone();
            tell(match Editor::open(&dir).submit(*request) {
                Ok(applied) => {
                    let change = from_to(Some(&applied.before), &summary(&applied.new), "to");
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
        Task::Keep(measured) => {
            if let Err(error) = Measurements::of(&dir).add(&measured) {
                tell(News::Warning(format!(
                    "the figures could not be kept for advise: {error}"
                )));
            }
        }
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
            let editor = Editor::open(&dir);
            match editor.undo(&entry, Place::Tui, None) {
                Ok(applied) => tell(News::Undone {
                    target: entry.record.target.clone(),
                    restored: entry.record.old.clone(),
                    applied,
                }),
                Err(failure) => tell(News::Refused(failure.to_string())),
            }
            tell_set_aside(&editor, &tell);
            work(&dir.path, Task::ReadAudit, news);
        }
    }
}

/// Makes an edit and reports when it is in force.
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
    // Sent last, so that it stays in the last line.
    tell_set_aside(&editor, tell);
}

/// Sends a signal and writes it to the log.
fn send_signal(dir: &SegmentDir, signal: &Signalled, tell: &impl Fn(News)) {
    let sent = signal.send().map_err(NotSent::why);
    let record = Record::of_signal(Place::Tui, signal).refused(sent.as_ref().err().cloned());
    tell(match sent {
        Ok(sentence) => News::Done(sentence),
        Err(why) => News::Refused(why),
    });
    let log = AuditLog::of(dir);
    if let Err(error) = log.append(&record)
        && dir.is_log_ours()
    {
        let path = log.path().shown();
        tell(News::Warning(format!(
            "the signal is not recorded: {path} cannot be written: {error}"
        )));
    }
}

/// Does tasks one after the other and reports their refusals together.
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
    // Sent last, so that a refusal is not hidden by a success.
    if let Some(first) = refused.first() {
        let many = refused.len();
        tell(News::Refused(format!(
            "{many} of {count} were refused: {first}"
        )));
    }
}

/// Writes files that do not exist yet, and returns their names.
fn write(files: &[(PathBuf, Vec<u8>)]) -> Result<String, String> {
    let mut names = Vec::new();
    for (path, bytes) in files {
        let mut options = File::options();
        // Only the user reads what the screen showed; a link in the file's place is an error.
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(path);
        let written = file.and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| format!("{} cannot be written: {error}", path.shown()))?;
        names.push(path.shown().to_string());
    }
    Ok(names.join(" "))
}

/// Reports if opening the segments replaced earlier settings.
fn tell_set_aside(editor: &Editor, tell: &impl Fn(News)) {
    if let Some(sentence) = editor.set_aside() {
        tell(News::Warning(sentence));
    }
}

/// Clears a device's own policy, which would hide the policy for all devices.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_written_for_its_user_alone_and_never_over_another_or_through_a_link() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str| vec![(dir.path().join(name), b"new".to_vec())];
        write(&file("page.html")).expect("ours");
        let page = dir.path().join("page.html");
        let mode = fs::metadata(&page).expect("written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&page, "precious").expect("ours");
        symlink("page.html", dir.path().join("link.html")).expect("ours");
        symlink("nothing", dir.path().join("dangling.html")).expect("ours");
        for name in ["page.html", "link.html", "dangling.html"] {
            let why = write(&file(name)).expect_err("something is there");
            assert!(why.contains("cannot be written"), "{why}");
        }
        assert_eq!(fs::read(&page).expect("there"), b"precious");
        assert!(!dir.path().join("nothing").exists());
    }
}
