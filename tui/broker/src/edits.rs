//! Requested edits: they are checked, made and logged. Refused ones are logged too.

use shm_layout::broker::Broker;
use shm_layout::peer::Peer;
use shm_layout::text::PathText as _;
use shm_layout::wire::{Field, Message, Verb};
use shm_layout::{
    Change, Edit, EditError, Operator, Set, ShareEdit, SlotId, clock, snapshot, text,
};

use super::rights::{self, Caller};
use gpushare_base::host::procfs;
use gpushare_base::text::exit::Exit;
use gpushare_base::text::users::Users;
use gpushare_control::audit::{AuditLog, Book, Outcome, Record};
use gpushare_control::broker_client::{Answer, Ask};
use gpushare_control::change;
use gpushare_control::{EditFailure, EditRequest, sound};

/// Size in bytes at which a book of the log is rotated.
const LONG: u64 = 8 << 20;
/// Maximum size in bytes of an edit: all quotas of a process, with a reason.
const LONGEST: usize = 8 << 10;
/// Maximum length of the caller's target text in the log.
const TARGET: usize = 100;

/// Makes or refuses an edit and returns the reply. A refusal is logged if `told` has the number of earlier refusals that
/// were not logged.
pub fn make(
    broker: &Broker,
    log: &AuditLog,
    caller: &Caller,
    peer: &Peer,
    words: &str,
    told: impl FnOnce() -> Option<u64>,
) -> Message {
    if words.len() > LONGEST {
        return refusal(Exit::Failed, format!("an edit has {LONGEST} bytes at most"));
    }
    let ask: Ask = match serde_json::from_str(words) {
        Ok(ask) => ask,
        Err(error) => {
            return refusal(
                Exit::Failed,
                format!(
                    "the broker does not understand this edit ({error}); use the tools of its release"
                ),
            );
        }
    };
    // Others could otherwise have the log say that an administrator's edit is undone.
    let undoes = ask.undoes.filter(|_| caller.administrator);
    let request = requested(broker, caller, ask);
    let who = name_of(peer, caller.user);
    let mut record = Record::of(&request, caller.user, who, undoes);
    let administrator = caller.administrator;
    let book = |of_others| match administrator {
        true => Book::Edits,
        false => of_others,
    };
    let then = snapshot(broker.segments(), clock::now());
    let (done, unlogged) = match apply(broker, caller, &request) {
        Ok(edit) => {
            if administrator {
                hold(broker, &request.change);
            }
            record.old = Some(change::before(&edit.old, &then));
            if !matches!(request.change, Change::Label { .. }) {
                // A label is no setting, so it makes no generation.
                record.restore = Some(edit.old.clone());
                record.generation = Some(edit.generation);
            }
            (Ok(edit), write(log, book(Book::Users), &record))
        }
        Err((exit, why)) => {
            record.result = Outcome::Refused;
            let Some(untold) = told() else {
                return refusal(exit, why);
            };
            record.refusal = Some(match untold {
                0 => why.clone(),
                more => {
                    format!("{why}; {more} refusals of this user before it are not written down")
                }
            });
            if !administrator {
                record = record.in_short();
            }
            (Err((exit, why)), write(log, book(Book::Refusals), &record))
        }
    };
    answer(done, unlogged)
}

/// Returns the edit that a caller asks for, as far as the caller's rights go.
fn requested(broker: &Broker, caller: &Caller, ask: Ask) -> EditRequest {
    let whom = ask
        .change
        .slot()
        .and_then(|slot| Some((slot, broker.who(slot)?)));
    EditRequest {
        target: match &whom {
            // The log names the process by the registry and not by the caller's text.
            Some((_, (who, vouched))) => format!("{} {}", vouched.pid, who.label)
                .trim_end()
                .to_owned(),
            None => text::shown(&ask.target).chars().take(TARGET).collect(),
        },
        target_start_time: whom.as_ref().map(|(_, (_, vouched))| vouched.start_time),
        change: match caller.administrator {
            true => ask.change,
            false => rights::narrowed(broker, ask.change),
        },
        reason: ask.reason,
        place: ask.place,
        expected_generation: ask.expected_generation,
    }
}

/// Makes an edit, if the caller may. Returns the refusal's exit code and sentence.
fn apply(broker: &Broker, caller: &Caller, request: &EditRequest) -> Result<Edit, (Exit, String)> {
    permitted(broker, caller, request)?;
    let operator = broker.operator();
    let made = match &request.change {
        Change::Label { slot, label } => relabel(broker, &operator, *slot, label),
        change => operator.edit(request.expected_generation, change, clock::now()),
    };
    made.map_err(|error| {
        let failure = EditFailure::Edit {
            target: request.target.clone(),
            error,
        };
        (failure.exit(), failure.to_string())
    })
}

/// Records the time until which an administrator's pause holds a process.
fn hold(broker: &Broker, change: &Change) {
    let Change::ProcessShare {
        slot,
        share: ShareEdit { paused, .. },
    } = change
    else {
        return;
    };
    match paused {
        // An administrator's permanent pause is restored when a temporary one ends.
        Set::Keep | Set::For(None | Some(false), _) => {}
        Set::For(Some(true), until) => {
            broker.hold(*slot, broker.held_until(*slot).max(until.ns));
        }
        Set::To(true) => broker.hold(*slot, u64::MAX),
        Set::To(false) | Set::Inherit => broker.hold(*slot, 0),
    }
}

/// Replies to the caller: the edit's old values, or why it was refused.
fn answer(done: Result<Edit, (Exit, String)>, unlogged: Option<String>) -> Message {
    let edit = match done {
        Ok(edit) => edit,
        Err((exit, why)) => return refusal(exit, why),
    };
    let answer = Answer {
        generation: edit.generation,
        old: edit.old,
        unlogged: unlogged.map(|why| format!("the edit is in force but {why}")),
    };
    match serde_json::to_string(&answer) {
        Ok(words) => Message::new(Verb::Done).with(Field::Json, words),
        Err(error) => refusal(Exit::Failed, error.to_string()),
    }
}

/// Returns a refusal with an exit code.
pub fn refusal(exit: Exit, why: String) -> Message {
    Message::refused(why).with(Field::Exit, exit.code())
}

/// Changes a label after the operator's preview has checked it. Returns the old label.
fn relabel(
    broker: &Broker,
    operator: &Operator,
    slot: SlotId,
    label: &str,
) -> Result<Edit, EditError> {
    let change = Change::Label {
        slot,
        label: label.to_owned(),
    };
    let old = operator.preview(&change)?;
    broker.relabel(slot, label).ok_or(EditError::NoSuchTarget)?;
    Ok(Edit {
        generation: broker.generation(),
        old,
    })
}

fn permitted(
    broker: &Broker,
    caller: &Caller,
    request: &EditRequest,
) -> Result<(), (Exit, String)> {
    let failed = |error: EditFailure| (error.exit(), error.to_string());
    sound(request).map_err(failed)?;
    let gone = request
        .change
        .slot()
        .is_some_and(|slot| broker.who(slot).is_none());
    if gone {
        let target = request.target.clone();
        let error = EditError::NoSuchTarget;
        return Err(failed(EditFailure::Edit { target, error }));
    }
    if caller.administrator {
        return Ok(());
    }
    rights::check(broker, caller, &request.change)
        .map_err(|why| (Exit::NotPermitted, format!("{}: {why}", request.target)))
}

/// Returns the caller's name, and under `sudo` the name of the user who logged in, by the kernel's audit record.
fn name_of(peer: &Peer, user: u32) -> String {
    let users = Users::of_this_machine();
    let name = users.name(user);
    let login = procfs::text(format!("/proc/{}/loginuid", peer.pid)).unwrap_or_default();
    let login = login
        .trim()
        .parse()
        .ok()
        .filter(|uid| *uid != u32::MAX && *uid != user);
    match login.filter(|_| !peer.has_ended()) {
        Some(login) => format!("{name}({})", users.name(login)),
        None => name,
    }
}

/// Writes a line. Returns the error if that fails.
fn write(log: &AuditLog, book: Book, record: &Record) -> Option<String> {
    let rotated = log.rotate(book, LONG);
    let written = rotated.and_then(|()| log.append_to(book, record));
    let error = written.err()?;
    Some(format!(
        "{} could not be written: {error}",
        log.path().shown()
    ))
}
