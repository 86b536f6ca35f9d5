//! The figures that were measured on this machine: what jobs did under the settings that were tried, a line for each search of
//! `gpushare tune` and for each edit of a policy in the dashboard.
//!
//! The file lies beside the audit log. Advice takes its costs from there, for the same jobs on the same device.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use shm_layout::dir::Dir;
use shm_layout::{LockPolicy, SegmentDir};

use crate::installation::Installation as _;

/// Name of the file, and of the one that keeps older lines.
const NAME: &str = "measured.jsonl";
const EARLIER: &str = "measured.jsonl.1";
/// Size from which a new file is begun.
const MOST: u64 = 256 << 10;
/// Mode of the file: writable by the owner, readable by the group.
const BITS: u32 = 0o640;

/// The figures of jobs under some settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The time of the measurement, RFC 3339 in UTC.
    pub time: String,
    /// The device.
    pub uuid: String,
    /// The names of the jobs.
    pub jobs: Vec<String>,
    /// The settings that were tried.
    pub settings: Vec<Tried>,
}

/// The figures of each job under one setting, in the order of [`Measured::jobs`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The policy.
    pub policy: LockPolicy,
    /// Launches in a second.
    pub rates: Vec<f64>,
    /// The 99th percentile of the times for which the device kept it waiting in a step.
    pub p99_ns: Vec<Option<u64>>,
}

/// The figures of one job under the policy in force and under another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Position of the job's name in the list that was asked for.
    pub job: usize,
    /// Launches in a second, under the one policy and under the other.
    pub rates: (f64, f64),
    /// The 99th percentiles of the steps, likewise.
    pub p99_ns: (Option<u64>, Option<u64>),
}

/// The file.
#[derive(Clone, Debug)]
pub struct Measurements {
    dir: PathBuf,
}

impl Measurements {
    /// Returns the file of these segments, which may not exist yet.
    pub fn of(dir: &SegmentDir) -> Self {
        Self { dir: dir.logs() }
    }

    /// Appends a line.
    pub fn add(&self, measured: &Measured) -> io::Result<()> {
        let dir = Dir::open(&self.dir)?;
        let is_long = |file: &std::fs::File| file.metadata().is_ok_and(|meta| meta.len() >= MOST);
        if dir.read(NAME).is_ok_and(|file| is_long(&file)) {
            dir.rename(NAME, EARLIER)?;
        }
        let mut line = serde_json::to_vec(measured)?;
        line.push(b'\n');
        // With O_APPEND, one write puts the whole line behind those of other writers.
        dir.append(NAME, BITS)?.write_all(&line)
    }

    /// Returns the lines, newest first. Lines that cannot be read are left out.
    pub fn read(&self) -> Vec<Measured> {
        let text = self.text().unwrap_or_default();
        let lines = text.lines().rev();
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    fn text(&self) -> io::Result<String> {
        let mut text = String::new();
        let file = Dir::open(&self.dir)?.read(NAME)?;
        file.take(2 * MOST).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Compares what jobs of these names did on a device under two policies, by the newest line that has both; `None` if there is
/// none.
pub fn compare(
    lines: &[Measured],
    uuid: &str,
    names: &[&str],
    now: &LockPolicy,
    other: &LockPolicy,
) -> Option<Vec<Compared>> {
    let sorted = |names: &mut dyn Iterator<Item = &str>| {
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    let wanted = sorted(&mut names.iter().copied());
    lines.iter().find_map(|line| {
        let same = line.uuid == uuid && sorted(&mut line.jobs.iter().map(String::as_str)) == wanted;
        let under =
            |policy: &LockPolicy| line.settings.iter().find(|tried| tried.policy == *policy);
        let (now, other) = under(now).zip(under(other)).filter(|_| same)?;
        let job = |(job, name): (usize, &&str)| {
            let at = line.jobs.iter().position(|known| known == name)?;
            Some(Compared {
                job,
                rates: (*now.rates.get(at)?, *other.rates.get(at)?),
                p99_ns: (*now.p99_ns.get(at)?, *other.p99_ns.get(at)?),
            })
        };
        names.iter().enumerate().map(job).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm_layout::Order;

    #[test]
    fn the_newest_line_about_the_same_jobs_and_policies_is_compared() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Measurements::of(&SegmentDir::at(folder.path()));
        assert_eq!(file.read(), []);
        let fair = LockPolicy::default();
        let urgent = LockPolicy {
            order: Order::Priority,
            ..fair
        };
        let tried = |policy, rate: f64| Tried {
            policy,
            rates: vec![rate, 10.0],
            p99_ns: vec![Some(5_000), None],
        };
        for rate in [50.0, 80.0] {
            let line = Measured {
                time: "2026-01-01T00:00:00Z".into(),
                uuid: "GPU-1".into(),
                jobs: vec!["serve".into(), "batch".into()],
                settings: vec![tried(fair, 40.0), tried(urgent, rate)],
            };
            file.add(&line).expect("it is written");
        }
        let lines = file.read();
        let found = compare(&lines, "GPU-1", &["batch", "serve"], &fair, &urgent);
        let found = found.expect("both were tried");
        assert_eq!(found[1].rates, (40.0, 80.0), "the newest");
        assert_eq!(found[1].p99_ns, (Some(5_000), Some(5_000)));
        assert_eq!(found[0].rates, (10.0, 10.0));
        let none =
            |uuid, names: &[&str], other| compare(&lines, uuid, names, &fair, other).is_none();
        assert!(none("GPU-2", &["batch", "serve"], &urgent));
        assert!(none("GPU-1", &["serve"], &urgent));
        let other = LockPolicy {
            sync_skips: 3,
            ..fair
        };
        assert!(none("GPU-1", &["batch", "serve"], &other));
    }
}
