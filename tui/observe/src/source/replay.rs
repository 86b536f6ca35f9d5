//! Recordings: gzip files with a header line and one JSON sample per line; `zcat` reads them too.
//!
//! `gpushare-top --record F` writes a recording, `--replay F` plays it at its original pace. Each sample is flushed, so
//! a recording that ends anywhere (a full disk, a killed recorder) plays up to its end. A few samples at a time form
//! one gzip member; reading can start at the beginning of each member.

mod lines;
mod recorder;

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use shm_layout::text::PathText as _;

use super::Source;
use gpushare_base::text::files;
use gpushare_sample::{Origin, Sample};
use lines::Lines;
pub use recorder::Recorder;
use recorder::{Header, VERSION};

/// The longest pause of a replay, however long the recorder slept.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Time before a moment of which the samples are needed to show it: the shares and percentiles are those of this time.
pub const RUN_UP_NS: u64 = 25_000_000_000;
/// Maximum number of JSON values in a line. A sample of a full machine has a tenth of it; three bytes of a line may
/// become a kilobyte in memory.
const OBJECTS: usize = 200_000;

/// A recording that is being played.
#[derive(Debug)]
pub struct Replay {
    /// The files of the recording, in order, and the one being played.
    parts: Vec<PathBuf>,
    part: usize,
    lines: Lines,
    upcoming: Option<Sample>,
    pace: Option<Duration>,
    /// Playing speed; 1 is the original pace.
    speed: f64,
    /// Places where reading can start, in ascending order: the time of the sample, the file, and the offset.
    index: Vec<(u64, usize, u64)>,
    /// The last moment. A thread looks for it, because the whole recording has to be read.
    last_ns: Option<Receiver<[u64; 2]>>,
    /// The first and the last moment, once the thread has found them.
    span_ns: Option<[u64; 2]>,
}

/// The time of a sample. The rest of its line is skipped, which takes a fraction of the time.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Moment {
    snapshot: Times,
    unix_ms: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Times {
    time_ns: u64,
}

impl Replay {
    /// Opens a recording; another file is refused with a sentence.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_parts(vec![path.to_owned()])
    }

    /// Opens a recording that consists of several files.
    pub fn open_parts(parts: Vec<PathBuf>) -> Result<Self> {
        let path = parts.first().context("there is nothing to replay")?;
        let shown = path.shown();
        let file = files::open_file(path).with_context(|| format!("cannot replay {shown}"))?;
        let lines = Lines::at(BufReader::new(file));
        let mut lines = lines.with_context(|| format!("cannot read {shown}"))?;
        let first = lines.next().map(|(line, _)| line).unwrap_or_default();
        let Ok(header) = serde_json::from_slice::<Header>(&first) else {
            bail!(
                "{shown} is not a recording of gpushare-top; make one with gpushare-top --record FILE"
            );
        };
        let version = header.gpushare_recording;
        if version != VERSION {
            let age = if version > VERSION {
                "a newer"
            } else {
                "an older"
            };
            bail!(
                "{shown} is a recording of version {version}, this program reads version {VERSION}; replay it with {age} gpushare-top"
            );
        }
        let mut replay = Self {
            parts,
            part: 0,
            lines,
            upcoming: None,
            pace: None,
            speed: 1.0,
            index: Vec::new(),
            last_ns: None,
            span_ns: None,
        };
        replay.upcoming = replay.read(0);
        if replay.upcoming.is_none() {
            bail!("{shown} was cut short: it holds no whole sample");
        }
        // The first member starts at the header.
        if let Some(first) = &replay.upcoming {
            replay.index.insert(0, (first.time_ns, 0, 0));
        }
        Ok(replay)
    }

    /// Sets the playing speed.
    pub fn at_speed(mut self, speed: f64) -> Self {
        self.speed = speed;
        self
    }

    /// Returns the next line with a sample, and its offset if reading can start there.
    fn line(&mut self) -> Option<(Vec<u8>, Option<u64>)> {
        let mut headed = false;
        loop {
            match self.lines.next() {
                // The header, at the beginning of each file.
                Some((line, _)) if line.starts_with(br#"{"gpushare_recording""#) => {
                    if std::mem::replace(&mut headed, true) {
                        self.lines = Lines::Over;
                    }
                }
                Some(found) => return Some(found),
                None => {
                    self.go_to_place(self.part + 1, 0)?;
                    headed = false;
                }
            }
        }
    }

    fn go_to_place(&mut self, part: usize, place: u64) -> Option<()> {
        let path = self.parts.get(part)?;
        // A file that is gone, or was cut at its beginning, is skipped.
        if self.lines.seek(path, place).is_err() {
            self.lines = Lines::Over;
        }
        self.part = part;
        Some(())
    }

    /// Reads the next sample that is not before a time. The samples before it are skipped without being parsed.
    fn read(&mut self, from_ns: u64) -> Option<Sample> {
        loop {
            let (line, place) = self.line()?;
            if from_ns > 0
                && let Ok(moment) = serde_json::from_slice::<Moment>(&line)
                && moment.snapshot.time_ns < from_ns
            {
                self.note(moment.snapshot.time_ns, place);
                continue;
            }
            let Some(mut sample) = sample_of(&line) else {
                // The last line of a file that was cut.
                self.lines = Lines::Over;
                continue;
            };
            self.note(sample.time_ns, place);
            sample.origin = Origin::Replay;
            return Some(sample);
        }
    }

    /// Skips the next sample and returns its time.
    fn pass(&mut self) -> Option<Moment> {
        loop {
            let (line, place) = self.line()?;
            let Ok(moment) = serde_json::from_slice::<Moment>(&line) else {
                self.lines = Lines::Over;
                continue;
            };
            self.note(moment.snapshot.time_ns, place);
            return Some(moment);
        }
    }

    /// Adds a place where reading can start. The first line of each file gives the file's start.
    fn note(&mut self, time_ns: u64, place: Option<u64>) {
        let later = |place: &u64| {
            let last = self.index.last();
            last.is_none_or(|(time, part, at)| {
                *time < time_ns && (*part, *at) < (self.part, *place)
            })
        };
        if let Some(place) = place.filter(later) {
            self.index.push((time_ns, self.part, place));
        }
    }

    /// Returns the first and the last moment of the recording, each by the segments' clock and by the wall clock. It
    /// reads the whole recording.
    pub fn span(&mut self) -> Result<[(u64, i64); 2]> {
        let first = self
            .upcoming
            .as_ref()
            .context("there is nothing in the recording")?;
        let first = (first.time_ns, first.unix_ms);
        let mut last = first;
        while let Some(moment) = self.pass() {
            last = (moment.snapshot.time_ns, moment.unix_ms);
        }
        self.upcoming = None;
        self.go_to(0)?;
        Ok([first, last])
    }

    /// Starts a little before this time, so that its cause is visible, or at the beginning of the recording if that is later.
    pub fn start_at(&mut self, time_ns: u64) -> Result<()> {
        self.go_to(time_ns.saturating_sub(RUN_UP_NS))
    }
}

/// Starts a thread that looks for the first and the last moment of a recording.
fn span_of(parts: Vec<PathBuf>) -> Receiver<[u64; 2]> {
    let (sender, receiver) = channel();
    let look = move || {
        let span = Replay::open_parts(parts).and_then(|mut replay| replay.span());
        // Without the span the position is not shown.
        if let Ok(span) = span {
            let _ = sender.send(span.map(|(time_ns, _)| time_ns));
        }
    };
    drop(thread::Builder::new().name("span".into()).spawn(look));
    receiver
}

fn sample_of(line: &[u8]) -> Option<Sample> {
    let objects = line.iter().filter(|byte| **byte == b'{').count();
    (objects <= OBJECTS).then_some(())?;
    serde_json::from_slice(line).ok()
}

impl Source for Replay {
    fn next(&mut self) -> Result<Option<Sample>> {
        let Some(sample) = self.upcoming.take() else {
            return Ok(None);
        };
        self.upcoming = self.read(0);
        self.pace = self.upcoming.as_ref().map(|next| {
            let pause = Duration::from_nanos(next.time_ns.saturating_sub(sample.time_ns));
            pause.min(LONGEST_PAUSE).div_f64(self.speed)
        });
        Ok(Some(sample))
    }

    fn pace(&self) -> Option<Duration> {
        self.pace
    }

    fn span_ns(&mut self) -> Option<[u64; 2]> {
        let parts = &self.parts;
        let found = self.last_ns.get_or_insert_with(|| span_of(parts.clone()));
        self.span_ns = self.span_ns.or_else(|| found.try_recv().ok());
        self.span_ns
    }

    fn go_to(&mut self, from_ns: u64) -> Result<()> {
        let at = self.index.partition_point(|(time, ..)| *time <= from_ns);
        let Some((time, part, place)) = self.index.get(at.saturating_sub(1)).copied() else {
            return Ok(());
        };
        // The next sample may be nearer than the last place before that time at which reading can start.
        match self.upcoming.as_ref().map(|next| next.time_ns) {
            Some(next) if next >= from_ns && next <= time => {}
            Some(next) if (time..from_ns).contains(&next) => self.upcoming = self.read(from_ns),
            _ => {
                self.go_to_place(part, place);
                self.upcoming = self.read(from_ns);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
