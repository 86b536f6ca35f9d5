//! The segments that a verb works on: their directory, and one sample of everything.

use std::path::Path;
use std::time::Duration;

use shm_layout::dir::{CONTROL, Dir};
use shm_layout::{OpenError, SegmentDir, Segments};

use super::note;
use gpushare_base::text::exit::Failure;
use gpushare_control::{Editor, set_aside};
use gpushare_observe::source::live::Live;
use gpushare_observe::source::nvml::Watch;
use gpushare_sample::{OF_NVML, ProcessState, Sample};

/// Maximum time that a sample waits for NVML's first answer.
pub const NVML: Duration = Duration::from_secs(5);

/// Returns the segments' directory without creating it. A missing directory counts as an empty one.
pub fn dir() -> Result<SegmentDir, Failure> {
    match shm_layout::locate_existing() {
        Err(OpenError::Missing { path }) => Ok(SegmentDir::at(&path)),
        found => Ok(found?),
    }
}

/// Returns the segments' directory, and creates it if it is the user's own and missing.
pub fn dir_or_new() -> Result<SegmentDir, Failure> {
    Ok(shm_layout::locate()?)
}

/// Takes one sample of everything that runs, without events.
pub fn sample(dir: &SegmentDir) -> Result<Sample, Failure> {
    look(&mut live(dir).without_events())
}

/// Takes one sample with events and edits.
pub fn sample_with_events(dir: &SegmentDir) -> Result<Sample, Failure> {
    look(&mut live(dir))
}

/// Returns the source of samples, after it has waited for NVML's first answer for at most [`NVML`].
pub fn live(dir: &SegmentDir) -> Live {
    settled(Live::new(&dir.path, true))
}

fn settled(live: Live) -> Live {
    live.settle(NVML);
    live
}

/// Takes the next sample. Dead processes are left out, because they hold nothing, though their slots may not be free yet.
pub fn look(live: &mut Live) -> Result<Sample, Failure> {
    let mut sample = live.look()?;
    for warning in sample
        .warnings
        .iter()
        .filter(|warning| !warning.starts_with(OF_NVML))
    {
        note(warning);
    }
    sample
        .processes
        .retain(|process| process.state != ProcessState::Gone);
    Ok(sample)
}

/// Reports that settings of earlier segments were found and are not in force.
pub fn say_set_aside(file: Option<&Path>) {
    if let Some(file) = file {
        note(&set_aside(file));
    }
}

/// Takes one sample for an edit. Settings of earlier segments are set aside first, because an edit does not affect them. No
/// segments are made if there are none. Traffic and errors of the devices are not asked for, which takes NVML 40 ms.
pub fn sample_to_edit(dir: &SegmentDir) -> Result<Sample, Failure> {
    let other = matches!(
        Segments::open_viewer(&dir.path),
        Err(OpenError::Missing { .. } | OpenError::OtherInstance { .. })
    );
    if other && Dir::open(&dir.path).is_ok_and(|dir| dir.has(CONTROL)) {
        editor(dir);
    }
    let live = settled(Live::with(&dir.path, Watch::once(&dir.path)));
    look(&mut live.without_events())
}

/// Opens the segments for editing, and reports earlier settings that this set aside.
pub fn editor(dir: &SegmentDir) -> Editor {
    let editor = Editor::open(dir);
    if let Some(sentence) = editor.set_aside() {
        note(&sentence);
    }
    editor
}
