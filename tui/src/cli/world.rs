//! What every verb starts from: the segments' place, one look at everything, and an editor.

use std::io::Write;
use std::time::Duration;

use shm_layout::{Mode, OpenError, SegmentDir};

use crate::edit::targets;
use crate::edit::{Applied, EditRequest, Editor};
use crate::sample::{ProcessState, Sample};
use crate::source::live::Live;
use crate::text::exit::{Exit, Failure};

use super::note;

/// How long a look waits for NVML's first answer.
const NVML: Duration = Duration::from_secs(5);

/// The segments' directory; nothing is created. One that is not there yet is an empty one.
pub fn dir() -> Result<SegmentDir, Failure> {
    match shm_layout::locate_existing() {
        Err(OpenError::Missing { path }) => Ok(SegmentDir {
            path,
            mode: Mode::User,
        }),
        found => found.map_err(|error| cannot_open(&error)),
    }
}

/// The segments' directory, made when it is the user's own and missing.
pub fn dir_or_new() -> Result<SegmentDir, Failure> {
    shm_layout::locate().map_err(|error| cannot_open(&error))
}

/// One look at everything that lives. Who has died holds nothing any more, though its slot may wait
/// for the next program to give it back.
pub fn look(dir: &SegmentDir) -> Result<Sample, Failure> {
    let mut live = Live::new(&dir.path, true);
    live.settle(NVML);
    let mut sample = live.look().map_err(|error| cannot_open(&error))?;
    for warning in sample
        .warnings
        .iter()
        .filter(|warning| !warning.starts_with("NVML"))
    {
        note(warning);
    }
    sample
        .processes
        .retain(|process| process.state != ProcessState::Gone);
    Ok(sample)
}

/// A segment that cannot be used is a failure; missing rights have their own code.
pub fn cannot_open(error: &OpenError) -> Failure {
    let not_permitted = match error {
        OpenError::WrongOwner { .. } => true,
        OpenError::Io { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
        _ => false,
    };
    let exit = if not_permitted {
        Exit::NotPermitted
    } else {
        Exit::Failed
    };
    Failure {
        exit,
        sentence: error.to_string(),
    }
}

/// Does edits one by one and says how each went. The first refusal ends it.
pub fn apply_all(
    editor: &Editor,
    requests: Vec<EditRequest>,
    sample: &Sample,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let many = requests.len();
    for (done, request) in requests.into_iter().enumerate() {
        let target = request.target.clone();
        let applied = editor.apply(request).map_err(|failure| {
            let mut failure = Failure::from(failure);
            if many > 1 {
                failure.sentence = format!(
                    "{} ({done} of {many} edits were done before it)",
                    failure.sentence
                );
            }
            failure
        })?;
        report(&target, &applied, sample, out)?;
    }
    Ok(())
}

/// One line for a done edit: what changed, and who has not obeyed yet.
pub fn report(
    target: &str,
    applied: &Applied,
    sample: &Sample,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (old, new) = (
        crate::edit::StoredChange::from(&applied.old),
        crate::edit::StoredChange::from(&applied.new),
    );
    let obeyed = match (applied.acknowledged_by.len(), applied.missing.as_slice()) {
        (0, []) => "nobody runs there yet".to_owned(),
        (count, []) => format!("obeyed by all {count}"),
        (_, missing) => {
            let who: Vec<String> = missing
                .iter()
                .map(|slot| targets::title_of(sample, *slot))
                .collect();
            format!("not obeyed yet by {}", who.join(", "))
        }
    };
    writeln!(
        out,
        "{target}: {} (was: {}); generation {}, {obeyed}",
        new.summary(),
        old.summary(),
        applied.generation
    )?;
    if let Some(unlogged) = &applied.unlogged {
        note(unlogged);
    }
    Ok(())
}
