//! Checks of the installation, with advice for each problem.
//!
//! Every check is a function that returns findings. It leaves nothing behind and changes no segment that others use: the
//! probes run in a directory of their own.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use shm_layout::SegmentDir;
use shm_layout::text::without_error_numbers;

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

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem.
    Ok,
    /// Works, with a limitation.
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
    /// The result of one check.
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
    /// Makes a finding of [`Level::Ok`].
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, &found.into(), None)
    }

    /// Makes a finding of [`Level::Warn`].
    pub fn warn(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Level::Warn, &found.into(), Some(fix.into()))
    }

    /// Makes a finding of [`Level::Fail`].
    pub fn fail(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Level::Fail, &found.into(), Some(fix.into()))
    }

    fn new(check: &'static str, level: Level, found: &str, fix: Option<String>) -> Self {
        let found = without_error_numbers(found).into_owned();
        Self {
            check,
            level,
            found,
            fix,
        }
    }
}

/// The subject of the checks.
pub struct Patient {
    /// Directory of the segments, or the reason why there is none.
    pub dir: Result<SegmentDir, String>,
    /// Library to preload, or the reason why there is none.
    pub library: Result<PathBuf, String>,
    /// The program to check, if one was named.
    pub program: Option<OsString>,
}

/// Runs all checks.
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
