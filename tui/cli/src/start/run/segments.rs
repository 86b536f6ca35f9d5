//! The segments of a program that is about to start, with a check that they can count and enforce.
//!
//! They are made here, before the program starts, because a failure can still be reported: a directory without space or
//! permission, a file of another version, a table without a free slot.

use shm_layout::dir::Dir;
use shm_layout::text::PathText as _;
use shm_layout::{
    Liveness, MAX_PROCESSES, OpenError, SegmentDir, Segments, Snapshot, clock, snapshot,
};

use crate::segments;
use crate::setup::checks::may_write;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::refused::Refused;
use gpushare_control::Installation as _;

/// The result of the check.
pub struct Ready {
    /// Directory of the segments, if it is known.
    pub dir: Option<SegmentDir>,
    /// Reason why they cannot be used.
    pub unusable: Option<Failure>,
    /// Content of the segments.
    pub snapshot: Snapshot,
}

/// Makes the segments if they are missing, and checks them.
pub fn ready() -> Ready {
    let unusable = |dir, failure| Ready {
        dir,
        unusable: Some(failure),
        snapshot: Snapshot::default(),
    };
    let dir = match segments::dir_or_new() {
        Ok(dir) => dir,
        Err(failure) => return unusable(None, failure),
    };
    let carried = dir.check_file_system();
    match carried.and_then(|()| Segments::open_workload(&dir.path)) {
        Ok(segments) => {
            segments::say_set_aside(segments.set_aside());
            Ready {
                dir: Some(dir),
                unusable: None,
                snapshot: snapshot(&segments, clock::now()),
            }
        }
        Err(error) => {
            let failure = refusal(&dir, error);
            unusable(Some(dir), failure)
        }
    }
}

fn refusal(dir: &SegmentDir, error: OpenError) -> Failure {
    if dir.is_brokered {
        // With segments of its own, the program would be hidden from all others on the machine.
        return error.into();
    }
    let there = Dir::open(&dir.path).is_ok_and(|dir| dir.has("state"));
    if there || may_write(&dir.path) {
        return error.into();
    }
    Failure {
        exit: Exit::NotPermitted,
        sentence: format!(
            "there are no segments in {} and you may not write there; set GPUSHARE_DIR to a directory of your own",
            dir.path.shown()
        ),
    }
}

impl Ready {
    /// Returns the reason why there is no free slot for the program, if so. A slot may become free before it asks.
    pub fn full(&self) -> Option<Failure> {
        let living = self
            .snapshot
            .processes
            .iter()
            .filter(|process| process.alive != Liveness::Dead)
            .count();
        (living >= MAX_PROCESSES).then(|| {
            let dir = self.dir.as_ref();
            let is_brokered = dir.is_some_and(|dir| dir.is_brokered);
            Failure::failed(format!(
                "all {MAX_PROCESSES} slots in {} are taken; {}",
                dir.map_or_else(Default::default, |dir| dir.path.shown()),
                Refused::remedy(is_brokered)
            ))
        })
    }

    /// Returns the directory if nothing was set in the segments yet. A broker's segments are left out, because its unit
    /// applies the boot settings.
    pub fn are_new(&self) -> Option<&SegmentDir> {
        let dir = self.dir.as_ref().filter(|dir| !dir.is_brokered)?;
        (self.unusable.is_none() && self.snapshot.generation == 0).then_some(dir)
    }

    /// Returns true if an operator gave this group limits.
    pub fn defines(&self, group: &str) -> bool {
        self.snapshot
            .groups
            .iter()
            .any(|known| known.name == group && known.defined)
    }
}
