//! A job whose rhythm is measured.

use gpushare_sample::Who;

/// A job that is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The process.
    pub who: Who,
    /// Its name; with its pid where several jobs have one name.
    pub name: String,
    /// Its pid.
    pub pid: u32,
    /// Its priority.
    pub priority: i32,
    /// Its weight.
    pub weight: u32,
}
