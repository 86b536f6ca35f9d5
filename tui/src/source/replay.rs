//! Recordings: one JSON sample a line behind one header line.
//!
//! `gpushare-top --record F` writes them, `--replay F` plays them at the pace they were made. A recording cut short in
//! the middle of a line (a full disk, a killed recorder) plays up to there.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Source;
use crate::sample::{Origin, SCHEMA_VERSION, Sample};

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
            File::create(path).with_context(|| format!("cannot record to {}", path.display()))?;
        let mut recorder = Self {
            out: BufWriter::new(file),
        };
        recorder.line(&Header {
            gpushare_recording: SCHEMA_VERSION,
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

/// Plays a recording.
#[derive(Debug)]
pub struct Replay {
    lines: BufReader<File>,
    upcoming: Option<Sample>,
    pace: Option<Duration>,
}

impl Replay {
    /// Opens a recording; what is not one is refused with a sentence.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
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
        if header.gpushare_recording > SCHEMA_VERSION {
            bail!(
                "{shown} is a recording of version {}, this program reads up to {SCHEMA_VERSION}; use a newer gpushare-top",
                header.gpushare_recording
            );
        }
        let mut replay = Self {
            lines,
            upcoming: None,
            pace: None,
        };
        replay.upcoming = replay.read();
        Ok(replay)
    }

    fn read(&mut self) -> Option<Sample> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).ok()?;
        let mut sample: Sample = serde_json::from_slice(&line).ok()?;
        sample.origin = Origin::Replay;
        Some(sample)
    }
}

impl Source for Replay {
    fn next(&mut self) -> Result<Option<Sample>> {
        let Some(sample) = self.upcoming.take() else {
            return Ok(None);
        };
        self.upcoming = self.read();
        self.pace = self.upcoming.as_ref().map(|next| {
            Duration::from_nanos(next.time_ns.saturating_sub(sample.time_ns)).min(LONGEST_PAUSE)
        });
        Ok(Some(sample))
    }

    fn pace(&self) -> Option<Duration> {
        self.pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_ns: u64) -> Sample {
        Sample {
            time_ns,
            host: "gpu01".into(),
            ..Sample::default()
        }
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
