//! The ring of the last hour: a recording in parts, of which the oldest is removed as time goes on.
//!
//! A thread of its own writes it, so a disk that is slow, full or gone costs samples and not frames. A sample is taken
//! each second, or less often if writing would take more than a four-thousandth of a core. The files can be read by
//! their user alone (mode 0600, in a directory with mode 0700) and take at most [`MOST`] together.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, OFlags, flock};
use shm_layout::text::PathText as _;

use super::locked;
use super::replay::Recorder;
use gpushare_sample::{EditLine, EventLine, Sample};

/// Maximum size of all parts together, in bytes.
pub const MOST: u64 = 64 << 20;
/// Time that the ring covers, in milliseconds.
const SPAN_MS: i64 = 3_600_000;
/// Maximum length of a part, in milliseconds; the next constant bounds its size.
const PART_MS: i64 = 300_000;
const PART: u64 = MOST / 12;
/// Minimum time between two samples.
const PACE_NS: u64 = 1_000_000_000;
/// A sample may cost the time until the next one divided by this.
const SHARE: u64 = 4_000;
/// Maximum number of events kept between two samples: the newest.
const EVENTS: usize = 400;
/// The suffix of a part's name; the name begins with the part's start time.
const END: &str = ".gz";

/// The writer of the ring.
#[derive(Debug)]
pub struct Ring {
    dir: PathBuf,
    to: SyncSender<Sample>,
    shared: Arc<Shared>,
    due_ns: u64,
    /// The newest event of the previous sample.
    told: Option<u64>,
    /// The edits since the previous sample.
    edits: Vec<EditLine>,
}

#[derive(Debug, Default)]
struct Shared {
    pace_ns: AtomicU64,
    /// The reason why recording stopped.
    trouble: Mutex<Option<String>>,
}

/// Returns the directory of the ring for these segments: each host and each segment directory has its own.
pub fn place(segments: &Path) -> Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let home = home.context("neither XDG_STATE_HOME nor HOME is set")?;
    let host = super::live::host();
    let name = format!("{host}{}", segments.shown()).replace('/', "-");
    Ok(home.join("gpushare/last").join(name))
}

/// Returns the parts of the ring in a directory, oldest first.
pub fn parts(dir: &Path) -> Result<Vec<PathBuf>> {
    let shown = dir.shown();
    let all = fs::read_dir(dir)
        .with_context(|| format!("there is no recording of the last hour in {shown}"))?;
    let paths = all.flatten().map(|entry| entry.path());
    let mut parts: Vec<PathBuf> = paths.filter(|path| began(path).is_some()).collect();
    parts.sort_by_key(|path| began(path));
    if parts.is_empty() {
        bail!("there is no recording of the last hour in {shown}");
    }
    Ok(parts)
}

/// Returns the parts that reach beyond a moment, in milliseconds since 1970.
pub fn parts_from(dir: &Path, from_ms: i64) -> Result<Vec<PathBuf>> {
    let mut parts = parts(dir)?;
    let before = parts
        .iter()
        .filter(|path| began(path).is_some_and(|began| began <= from_ms));
    let before = before.count();
    parts.drain(..before.saturating_sub(1));
    Ok(parts)
}

/// Returns the start of a part, in milliseconds since 1970.
fn began(path: &Path) -> Option<i64> {
    path.file_name()?.to_str()?.strip_suffix(END)?.parse().ok()
}

impl Ring {
    /// Starts the ring in this directory; `None` if another dashboard records there already.
    pub fn start(dir: &Path) -> Result<Option<Self>> {
        let shown = dir.shown();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot make {shown}"))?;
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(dir.join("lock"));
        let lock = lock.with_context(|| format!("cannot write to {shown}"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // One sample waits while another is written; a third is left out.
        let (to, inbox) = sync_channel(1);
        let shared = Arc::<Shared>::default();
        let mut writer = Writer {
            dir: dir.to_owned(),
            part: None,
            shared: Arc::clone(&shared),
            _lock: lock,
        };
        thread::Builder::new()
            .name("ring".into())
            .spawn(move || writer.run(&inbox))?;
        Ok(Some(Self {
            dir: dir.to_owned(),
            to,
            shared,
            due_ns: 0,
            told: None,
            edits: Vec::new(),
        }))
    }

    /// Returns the directory of the ring.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds a sample; `earlier` are the events before those in it, newest first. Returns the reason once recording has
    /// stopped.
    pub fn add<'a>(
        &mut self,
        sample: &'a Sample,
        earlier: impl Iterator<Item = &'a EventLine>,
    ) -> Result<(), String> {
        if let Some(why) = locked(&self.shared.trouble).take() {
            return Err(why);
        }
        self.edits.extend_from_slice(&sample.edits);
        if sample.time_ns < self.due_ns && self.due_ns - sample.time_ns <= 60 * PACE_NS {
            return Ok(());
        }
        let events = sample.events.iter().rev().chain(earlier);
        let news = events.take_while(|event| self.told.is_none_or(|told| event.seq > told));
        let mut events: Vec<EventLine> = news.take(EVENTS).cloned().collect();
        events.reverse();
        self.told = events.last().map(|event| event.seq).or(self.told);
        let mut sample = sample.without_events();
        sample.events = events;
        sample.edits = std::mem::take(&mut self.edits);
        let pace = self.shared.pace_ns.load(Ordering::Relaxed).max(PACE_NS);
        self.due_ns = sample.time_ns.saturating_add(pace);
        // Full: the disk is slow. Closed: the thread has reported the reason.
        let _ = self.to.try_send(sample);
        Ok(())
    }
}

struct Writer {
    dir: PathBuf,
    /// The current part and its start time.
    part: Option<(Recorder, i64)>,
    shared: Arc<Shared>,
    /// The lock file; this process owns the ring while it is open.
    _lock: File,
}

impl Writer {
    fn run(&mut self, inbox: &Receiver<Sample>) {
        while let Ok(sample) = inbox.recv() {
            let start = Instant::now();
            if let Err(why) = self.write(&sample) {
                *locked(&self.shared.trouble) = Some(format!("{why:#}"));
                return;
            }
            let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.shared.pace_ns.store(
                took.saturating_mul(SHARE).min(15 * PACE_NS),
                Ordering::Relaxed,
            );
        }
    }

    fn write(&mut self, sample: &Sample) -> Result<()> {
        let now = sample.unix_ms;
        let ends = |(part, began): &(Recorder, i64)| {
            !(*began..*began + PART_MS).contains(&now) || part.bytes() > PART
        };
        if self.part.as_ref().is_none_or(ends) {
            self.part = None;
            prune(&self.dir, now)?;
            let path = self.dir.join(format!("{now:015}{END}"));
            self.part = Some((Recorder::create_private(&path)?, now));
        }
        match &mut self.part {
            Some((part, _)) => part.add(sample),
            None => Ok(()),
        }
    }
}

/// Removes parts that are older than an hour, and the oldest when the size limit is exceeded.
fn prune(dir: &Path, now_ms: i64) -> Result<()> {
    let mut parts = parts(dir).unwrap_or_default();
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
    let mut sum: u64 = parts.iter().map(size).sum();
    while let Some(oldest) = parts.first() {
        // A part reaches up to the start of the next one.
        let end = parts.get(1).and_then(|next| began(next)).unwrap_or(now_ms);
        let is_old = now_ms.saturating_sub(end) > SPAN_MS
            || began(oldest).is_none_or(|began| began > now_ms + 60_000);
        if !is_old && sum + PART <= MOST {
            break;
        }
        sum -= size(oldest).min(sum);
        fs::remove_file(oldest).with_context(|| format!("cannot remove {}", oldest.shown()))?;
        parts.remove(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;
    use crate::source::Source;
    use crate::source::replay::Replay;

    const S: u64 = 1_000_000_000;

    fn sample(second: u64) -> Sample {
        let mut sample = Sample {
            unix_ms: 1_000_000_000_000 + second as i64 * 1000,
            host: "gpu01".into(),
            ..Sample::default()
        };
        sample.time_ns = (second + 10_000) * S;
        sample
    }

    fn writer(dir: &Path) -> Writer {
        let lock = File::create(dir.join("lock")).unwrap();
        Writer {
            dir: dir.to_owned(),
            part: None,
            shared: Arc::default(),
            _lock: lock,
        }
    }

    fn played(dir: &Path) -> Vec<u64> {
        let mut replay = Replay::open_parts(parts(dir).unwrap()).unwrap();
        let mut times = Vec::new();
        while let Some(sample) = replay.next().unwrap() {
            times.push(sample.time_ns / S - 10_000);
        }
        times
    }

    #[test]
    fn it_keeps_the_last_hour_and_no_more_than_a_part_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        (0..9_000)
            .step_by(10)
            .for_each(|second| writer.write(&sample(second)).unwrap());
        let times = played(dir.path());
        assert_eq!(times.last(), Some(&8_990));
        assert!(
            (8_990 - 4_200..=8_990 - 3_600).contains(&times[0]),
            "{}",
            times[0]
        );
        assert!(
            times.windows(2).all(|two| two[1] == two[0] + 10),
            "without a gap between parts"
        );
        for part in parts(dir.path()).unwrap() {
            assert_eq!(
                fs::metadata(part).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }

    #[test]
    fn a_part_that_was_cut_does_not_hide_those_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        (0..900)
            .step_by(10)
            .for_each(|second| writer.write(&sample(second)).unwrap());
        drop(writer);
        let parts = parts(dir.path()).unwrap();
        let whole = fs::read(&parts[1]).unwrap();
        fs::write(&parts[1], &whole[..whole.len() / 2]).unwrap();
        let times = played(dir.path());
        assert_eq!((times[0], times.last()), (0, Some(&890)));
        assert!(times.len() < 90 && times.len() > 60, "{}", times.len());
    }

    #[test]
    fn one_goes_far_back_and_forth_through_all_parts() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        (0..2_000).for_each(|second| writer.write(&sample(second)).unwrap());
        let mut replay = Replay::open_parts(parts(dir.path()).unwrap()).unwrap();
        let [first, last] = replay.span().unwrap();
        assert_eq!((first.0 / S, last.0 / S), (10_000, 11_999));
        replay.start_at((10_000 + 1_000) * S).unwrap();
        assert_eq!(
            replay.next().unwrap().unwrap().time_ns / S,
            10_000 + 975,
            "with a run-up"
        );
        for second in [1_475, 75, 1_999] {
            replay.go_to((10_000 + second) * S).unwrap();
            assert_eq!(replay.next().unwrap().unwrap().time_ns / S, 10_000 + second);
        }
    }

    #[test]
    fn an_edit_between_two_samples_is_in_the_second() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = Ring::start(dir.path()).unwrap().expect("it is free");
        let edits = |ring: &Ring| {
            ring.edits
                .iter()
                .map(|edit| edit.generation)
                .collect::<Vec<_>>()
        };
        ring.add(&sample(1), iter::empty()).unwrap();
        let mut between = sample(1);
        between.time_ns += S / 4;
        between.edits.push(EditLine {
            generation: 7,
            ..EditLine::default()
        });
        ring.add(&between, iter::empty()).unwrap();
        assert_eq!(edits(&ring), [7], "it waits for the next sample");
        ring.add(&sample(2), iter::empty()).unwrap();
        assert_eq!(edits(&ring), [] as [u64; 0]);
    }

    #[test]
    fn a_second_dashboard_leaves_it_to_the_first_and_a_full_disk_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("ring");
        let mut ring = Ring::start(&dir).unwrap().expect("it is free");
        assert!(Ring::start(&dir).unwrap().is_none());
        ring.add(&sample(1), iter::empty()).unwrap();
        let written = || {
            parts(&dir).is_ok_and(|parts| {
                parts
                    .iter()
                    .any(|part| fs::metadata(part).is_ok_and(|meta| meta.len() > 100))
            })
        };
        gpushare_testbed::eventually("a sample is written", Duration::from_secs(60), written);
        // As if there were no room for another part.
        fs::remove_dir_all(&dir).unwrap();
        let mut second = 1_000;
        let mut told = None;
        gpushare_testbed::eventually("it says why it is over", Duration::from_secs(60), || {
            second += 1_000;
            told = ring.add(&sample(second), iter::empty()).err();
            told.is_some()
        });
        assert!(told.unwrap().contains("cannot record to"));
        drop(ring);
    }
}
