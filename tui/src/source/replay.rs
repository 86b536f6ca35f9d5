//! Recordings: one JSON sample a line behind one header line, as gzip writes it; `zcat` reads it too.
//!
//! `gpushare-top --record F` writes them, `--replay F` plays them at the pace they were made. Each sample is flushed, so a
//! recording cut anywhere (a full disk, a killed recorder) plays up to there. Some samples at a time are one member of the
//! file; at the beginning of each one can start to read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::Source;
use shm_layout::text::PathText as _;

use crate::sample::{Origin, Sample};

/// The version of recordings; it grows when a sample cannot be read as it was written before.
const VERSION: u32 = 2;

/// The longest pause a replay makes, however long the recorder slept.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// So many samples are one member of the file.
const MEMBER: usize = 64;
/// A file that has grown to this is set aside under the name `F.1`, in the place of an earlier one.
const LARGEST: u64 = 512 << 20;

#[derive(Serialize, Deserialize)]
struct Header {
    gpushare_recording: u32,
}

/// Writes samples to a file.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    out: GzEncoder<Counted>,
    samples: usize,
    largest: u64,
}

/// A file and how much was written to it.
#[derive(Debug)]
struct Counted {
    out: BufWriter<File>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Recorder {
    /// Starts a recording; a file of that name is replaced.
    pub fn create(path: &Path) -> Result<Self> {
        let mut recorder = Self {
            path: path.to_owned(),
            out: begin(path)?,
            samples: 0,
            largest: LARGEST,
        };
        recorder.header()?;
        Ok(recorder)
    }

    /// Adds one sample.
    pub fn add(&mut self, sample: &Sample) -> Result<()> {
        if self.samples == MEMBER {
            self.samples = 0;
            let file = mem::replace(&mut self.out, nowhere()?).finish()?;
            if file.bytes > self.largest {
                self.set_aside()?;
            } else {
                self.out = GzEncoder::new(file, Compression::fast());
            }
        }
        self.samples += 1;
        self.line(sample)
            .with_context(|| format!("cannot record to {}", self.path.shown()))
    }

    /// Begins the file anew and keeps what was in it as `F.1`.
    fn set_aside(&mut self) -> Result<()> {
        let mut aside = self.path.clone().into_os_string();
        aside.push(".1");
        std::fs::rename(&self.path, aside)?;
        self.out = begin(&self.path)?;
        self.header()
    }

    fn header(&mut self) -> Result<()> {
        self.line(&Header {
            gpushare_recording: VERSION,
        })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")?;
        Ok(self.out.flush()?)
    }
}

fn begin(path: &Path) -> Result<GzEncoder<Counted>> {
    let file = File::create(path).with_context(|| format!("cannot record to {}", path.shown()))?;
    let out = BufWriter::new(file);
    Ok(GzEncoder::new(
        Counted { out, bytes: 0 },
        Compression::fast(),
    ))
}

/// What stands in the recorder's place while one member ends and the next begins.
fn nowhere() -> Result<GzEncoder<Counted>> {
    begin(Path::new("/dev/null"))
}

/// The lines of a recording, packed or, of an earlier version, as they are.
#[derive(Debug)]
enum Lines {
    Plain(BufReader<File>),
    Packed(BufReader<GzDecoder<BufReader<File>>>),
    /// Between two members.
    Over,
}

impl Lines {
    fn at(mut file: BufReader<File>) -> io::Result<Self> {
        let packed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        Ok(match packed {
            true => Self::Packed(BufReader::new(GzDecoder::new(file))),
            false => Self::Plain(file),
        })
    }

    /// The next line; `None` at the end, or where the file was cut. If a place to start from again begins with it, that
    /// place.
    fn next(&mut self) -> Option<(Vec<u8>, Option<u64>)> {
        let mut line = Vec::new();
        let mut place = None;
        loop {
            let read = match self {
                Self::Plain(file) => {
                    place = file.stream_position().ok();
                    file.read_until(b'\n', &mut line)
                }
                Self::Packed(member) => member.read_until(b'\n', &mut line),
                Self::Over => return None,
            };
            match read {
                // The end of a member, or of all.
                Ok(0) => {
                    let Self::Packed(member) = mem::replace(self, Self::Over) else {
                        return None;
                    };
                    let mut file = member.into_inner().into_inner();
                    place = file.stream_position().ok();
                    if file.fill_buf().ok()?.is_empty() {
                        return None;
                    }
                    *self = Self::at(file).ok()?;
                }
                Ok(_) => return Some((line, place)),
                Err(_) => return None,
            }
        }
    }

    /// Goes to a place that [`next`](Self::next) told.
    fn seek(&mut self, path: &Path, place: u64) -> io::Result<()> {
        let mut file = BufReader::new(File::open(path)?);
        file.seek(SeekFrom::Start(place))?;
        *self = Self::at(file)?;
        Ok(())
    }
}

/// Who goes back sees what led there: so much before the moment is played again.
const RUN_UP_NS: u64 = 25_000_000_000;
/// No more samples than this are passed by at once.
const PASSED: usize = 4_000;

/// Plays a recording.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    lines: Lines,
    upcoming: Option<Sample>,
    pace: Option<Duration>,
    /// How many times as fast as it was made.
    speed: f64,
    /// The time of the sample that was played last.
    now_ns: u64,
    /// The times of samples at which one can start to read, ascending, and where in the file.
    index: Vec<(u64, u64)>,
}

impl Replay {
    /// Opens a recording; what is not one is refused with a sentence.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.shown();
        let file = File::open(path).with_context(|| format!("cannot replay {shown}"))?;
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
            path: path.to_owned(),
            lines,
            upcoming: None,
            pace: None,
            speed: 1.0,
            now_ns: 0,
            index: Vec::new(),
        };
        replay.upcoming = replay.read();
        // Of the first member the place is that of the header.
        if let Some(first) = &replay.upcoming {
            replay.index.insert(0, (first.time_ns, 0));
        }
        Ok(replay)
    }

    /// The same, so many times as fast as it was made.
    pub fn at_speed(mut self, speed: f64) -> Self {
        self.speed = speed;
        self
    }

    fn read(&mut self) -> Option<Sample> {
        loop {
            let (line, place) = self.lines.next()?;
            // The header, after one has gone back to the beginning.
            if line.starts_with(br#"{"gpushare_recording""#) {
                continue;
            }
            let mut sample: Sample = serde_json::from_slice(&line).ok()?;
            if let Some(place) = place
                && self
                    .index
                    .last()
                    .is_none_or(|(time, _)| *time < sample.time_ns)
            {
                self.index.push((sample.time_ns, place));
            }
            sample.origin = Origin::Replay;
            return Some(sample);
        }
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
            let pause = Duration::from_nanos(next.time_ns.saturating_sub(sample.time_ns));
            pause.min(LONGEST_PAUSE).div_f64(self.speed)
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
            self.lines.seek(&self.path, offset)?;
            self.upcoming = self.read();
            // One can start to read at few places only.
            while self
                .upcoming
                .as_ref()
                .is_some_and(|next| next.time_ns < from)
            {
                self.upcoming = self.read();
            }
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
        let mut recorder = Recorder::create(file.path()).unwrap();
        (1..=200).for_each(|time| recorder.add(&sample(time)).unwrap());
        drop(recorder);
        let whole = std::fs::read(file.path()).unwrap();
        let mut most = 0;
        for cut in (0..whole.len()).step_by(7).chain([whole.len()]) {
            std::fs::write(file.path(), &whole[..cut]).unwrap();
            let Ok(mut replay) = Replay::open(file.path()) else {
                assert!(cut < 200, "the header is gone at {cut}");
                continue;
            };
            let mut played = 0;
            while let Some(sample) = replay.next().unwrap() {
                played += 1;
                assert_eq!(sample.time_ns, played, "{cut}");
            }
            assert!(played >= most, "a longer file has no less: {cut}");
            most = played;
        }
        assert_eq!(most, 200);
    }

    #[test]
    fn a_recording_of_lines_plays_as_well() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut text = serde_json::to_vec(&Header {
            gpushare_recording: VERSION,
        })
        .unwrap();
        for time in 1..=3 {
            text.push(b'\n');
            text.extend(serde_json::to_vec(&sample(time)).unwrap());
        }
        text.extend_from_slice(b"\n{\"time_ns\":4,\"ho");
        std::fs::write(file.path(), text).unwrap();
        let mut replay = Replay::open(file.path()).unwrap();
        for time in 1..=3 {
            assert_eq!(replay.next().unwrap().unwrap().time_ns, time);
        }
        assert!(replay.next().unwrap().is_none(), "up to the cut");
        assert_eq!(replay.wind(-1).unwrap().unwrap().len(), 2);
    }

    #[test]
    fn a_recording_that_grows_too_large_begins_anew_beside_the_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rec");
        let mut recorder = Recorder::create(&path).unwrap();
        recorder.largest = 2_000;
        (1..=2_000).for_each(|time| recorder.add(&sample(time)).unwrap());
        drop(recorder);
        let first = |name: &str| {
            let mut replay = Replay::open(&dir.path().join(name)).unwrap();
            replay.next().unwrap().map(|sample| sample.time_ns)
        };
        let (aside, now) = (first("rec.1").unwrap(), first("rec").unwrap_or(2_001));
        assert!(1 < aside && aside < now, "{aside} {now}");
        let all: u64 = dir
            .path()
            .read_dir()
            .unwrap()
            .flatten()
            .map(|f| f.metadata().unwrap().len())
            .sum();
        assert!(all < 20_000, "{all}");
    }

    #[test]
    fn a_full_disk_is_an_error_and_no_more() {
        let mut recorder = Recorder::create(Path::new("/dev/full"));
        if let Ok(recorder) = &mut recorder {
            assert!((0..100).any(|time| recorder.add(&sample(time)).is_err()));
        }
    }

    #[test]
    fn a_replay_may_be_faster_than_it_was() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        recorder.add(&sample(1_000_000_000)).unwrap();
        recorder.add(&sample(2_000_000_000)).unwrap();
        drop(recorder);
        let mut replay = Replay::open(file.path()).unwrap().at_speed(4.0);
        replay.next().unwrap();
        assert_eq!(replay.pace(), Some(Duration::from_millis(250)));
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
