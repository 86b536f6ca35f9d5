//! Recordings: one JSON sample a line behind one header line.
//!
//! `gpushare-top --record F` writes them, `--replay F` plays them at the pace they were made. A recording cut short in
//! the middle of a line (a full disk, a killed recorder) plays up to there.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Source;
use shm_layout::text::PathText as _;

use crate::sample::{Origin, Sample};

/// The version of recordings; it grows when a sample cannot be read as it was written before.
const VERSION: u32 = 2;

/// The longest pause a replay makes, however long the recorder slept.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Header {
    gpushare_recording: u32,
}

/// Writes samples to a file.
#[derive(Debug)]
pub struct Recorder {
    out: BufWriter<File>,
}

impl Recorder {
    /// Starts a recording; a file of that name is replaced.
    pub fn create(path: &Path) -> Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot record to {}", path.shown()))?;
        let mut recorder = Self {
            out: BufWriter::new(file),
        };
        recorder.line(&Header {
            gpushare_recording: VERSION,
        })?;
        Ok(recorder)
    }

    /// Adds one sample.
    pub fn add(&mut self, sample: &Sample) -> Result<()> {
        self.line(sample)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")?;
        Ok(self.out.flush()?)
    }
}

/// Who goes back sees what led there: so much before the moment is played again.
const RUN_UP_NS: u64 = 25_000_000_000;
/// No more samples than this are passed by at once.
const PASSED: usize = 4_000;

/// Plays a recording.
#[derive(Debug)]
pub struct Replay {
    lines: BufReader<File>,
    upcoming: Option<Sample>,
    pace: Option<Duration>,
    /// The time of the sample that was played last.
    now_ns: u64,
    /// Where the next line begins.
    offset: u64,
    /// The times read so far, ascending, and where their lines begin.
    index: Vec<(u64, u64)>,
}

impl Replay {
    /// Opens a recording; what is not one is refused with a sentence.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.shown();
        let file = File::open(path).with_context(|| format!("cannot replay {shown}"))?;
        let mut lines = BufReader::new(file);
        let mut first = Vec::new();
        lines
            .read_until(b'\n', &mut first)
            .with_context(|| format!("cannot read {shown}"))?;
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
            lines,
            upcoming: None,
            pace: None,
            now_ns: 0,
            offset: first.len() as u64,
            index: Vec::new(),
        };
        replay.upcoming = replay.read();
        Ok(replay)
    }

    fn read(&mut self) -> Option<Sample> {
        let mut line = Vec::new();
        let length = self.lines.read_until(b'\n', &mut line).ok()?;
        let mut sample: Sample = serde_json::from_slice(&line).ok()?;
        if self
            .index
            .last()
            .is_none_or(|(time, _)| *time < sample.time_ns)
        {
            self.index.push((sample.time_ns, self.offset));
        }
        self.offset += length as u64;
        sample.origin = Origin::Replay;
        Some(sample)
    }
}

impl Source for Replay {
    fn next(&mut self) -> Result<Option<Sample>> {
        let Some(sample) = self.upcoming.take() else {
            return Ok(None);
        };
        self.now_ns = sample.time_ns;
        self.upcoming = self.read();
        self.pace = self.upcoming.as_ref().map(|next| {
            Duration::from_nanos(next.time_ns.saturating_sub(sample.time_ns)).min(LONGEST_PAUSE)
        });
        Ok(Some(sample))
    }

    fn pace(&self) -> Option<Duration> {
        self.pace
    }

    fn wind(&mut self, by_ns: i64) -> Result<Option<Vec<Sample>>> {
        let target = self.now_ns.saturating_add_signed(by_ns);
        if by_ns < 0 {
            let from = target.saturating_sub(RUN_UP_NS);
            let at = self.index.partition_point(|(time, _)| *time <= from);
            let Some((_, offset)) = self.index.get(at.saturating_sub(1)).copied() else {
                return Ok(Some(Vec::new()));
            };
            self.lines.seek(SeekFrom::Start(offset))?;
            self.offset = offset;
            self.upcoming = self.read();
        }
        let mut passed = Vec::new();
        while let Some(sample) = self.next()? {
            let there = sample.time_ns >= target;
            passed.push(sample);
            if there || passed.len() == PASSED {
                break;
            }
        }
        Ok(Some(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_ns: u64) -> Sample {
        let mut sample = Sample {
            host: "gpu01".into(),
            ..Sample::default()
        };
        sample.time_ns = time_ns;
        sample
    }

    #[test]
    fn a_recording_plays_what_was_recorded_at_its_pace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        recorder.add(&sample(1_000_000_000)).unwrap();
        recorder.add(&sample(1_250_000_000)).unwrap();

        let mut replay = Replay::open(file.path()).unwrap();
        let first = replay.next().unwrap().unwrap();
        assert_eq!(
            first,
            Sample {
                origin: Origin::Replay,
                ..sample(1_000_000_000)
            }
        );
        assert_eq!(replay.pace(), Some(Duration::from_millis(250)));
        assert!(replay.next().unwrap().is_some());
        assert!(replay.next().unwrap().is_none());
    }

    #[test]
    fn a_recording_is_wound_back_and_on() {
        const S: u64 = 1_000_000_000;
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        (100..200).for_each(|second| recorder.add(&sample(second * S)).unwrap());
        let mut replay = Replay::open(file.path()).unwrap();
        let wound = |replay: &mut Replay, seconds: i64| -> Vec<u64> {
            let passed = replay.wind(seconds * S as i64).unwrap().unwrap();
            passed.iter().map(|sample| sample.time_ns / S).collect()
        };
        assert_eq!(replay.next().unwrap().unwrap().time_ns, 100 * S);
        assert_eq!(wound(&mut replay, 60), (101..=160).collect::<Vec<_>>());
        assert_eq!(
            wound(&mut replay, -10),
            (125..=150).collect::<Vec<_>>(),
            "with a run-up"
        );
        assert_eq!(replay.next().unwrap().unwrap().time_ns, 151 * S);
        assert_eq!(wound(&mut replay, -1000), [100], "not before the beginning");
        assert_eq!(
            wound(&mut replay, 1000).last(),
            Some(&199),
            "not behind the end"
        );
        assert!(replay.next().unwrap().is_none());
        assert_eq!(
            wound(&mut replay, -1).last(),
            Some(&198),
            "and back from there"
        );
    }

    #[test]
    fn a_recording_cut_short_plays_up_to_the_cut() {
        let file = tempfile::NamedTempFile::new().unwrap();
        Recorder::create(file.path())
            .unwrap()
            .add(&sample(1))
            .unwrap();
        let mut text = std::fs::read(file.path()).unwrap();
        text.extend_from_slice(b"{\"time_ns\":2,\"ho");
        std::fs::write(file.path(), text).unwrap();

        let mut replay = Replay::open(file.path()).unwrap();
        assert!(replay.next().unwrap().is_some());
        assert!(replay.next().unwrap().is_none());
    }

    #[test]
    fn a_recording_of_another_version_is_refused_with_both_versions() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (version, age) in [(VERSION - 1, "an older"), (VERSION + 1, "a newer")] {
            let header = Header {
                gpushare_recording: version,
            };
            std::fs::write(file.path(), serde_json::to_vec(&header).unwrap()).unwrap();
            let error = Replay::open(file.path()).unwrap_err().to_string();
            let wanted = format!("of version {version}, this program reads version {VERSION}");
            assert!(error.contains(&wanted) && error.contains(age), "{error}");
        }
    }

    #[test]
    fn something_else_is_refused_with_a_sentence() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hello\n").unwrap();
        let error = Replay::open(file.path()).unwrap_err().to_string();
        assert!(
            error.contains("is not a recording of gpushare-top"),
            "{error}"
        );
    }
}
