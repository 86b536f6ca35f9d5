//! What would go wrong here, and how to fix it.
//!
//! Every check is a function that returns findings; nothing it does outlives it, and none of them
//! changes a segment that others use: the probes run in a directory of their own.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use shm_layout::SegmentDir;

use gpushare_sample::keys::{Keys, object};

mod broker;
mod coverage;
mod driver;
mod install;
mod interposition;
mod machine;
mod mps;
mod program;
mod segments;
mod unreached;

pub use segments::{apart, may_write};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, with a limit worth knowing.
    Warn,
    /// Does not work.
    Fail,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        })
    }
}

object! {
    /// One thing looked at.
    #[derive(Eq)]
    pub Finding {
        check: &'static str, "What was checked, in a word.";
        level: Level, "ok, warn (it works, with a limit) or fail (it does not work).";
        found: String, "What was found.";
        fix: Option<String>, "What to do about it; null if there is nothing to do.";
    }
}

impl Keys for Level {}

impl Finding {
    /// See [`Level`].
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            found: found.into(),
            fix: None,
        }
    }

    /// See [`Level`].
    pub fn warn(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Warn,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }

    /// See [`Level`].
    pub fn fail(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Fail,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }
}

/// What the checks look at.
pub struct Patient {
    /// The segments' directory, or why there is none.
    pub dir: Result<SegmentDir, String>,
    /// The library to preload, or why there is none.
    pub library: Result<PathBuf, String>,
    /// The program to check, if one was named.
    pub program: Option<OsString>,
}

/// Looks at everything.
pub fn examine(patient: &Patient) -> Vec<Finding> {
    let mut findings = install::check(patient);
    findings.extend(program::check(patient));
    findings.extend(machine::check(patient));
    findings.extend(broker::check(patient));
    let (segments, snapshot) = segments::check(patient);
    findings.extend(segments);
    if patient.dir.is_ok() {
        findings.extend(unreached::check(snapshot.as_ref()));
    }
    findings.extend(driver::check(patient));
    findings.extend(mps::check(patient, snapshot.as_ref()));
    findings
}
