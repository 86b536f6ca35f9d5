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
    fn the_first_and_the_last_moment_are_known_soon_and_the_replay_stays_where_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        for second in 1..=9 {
            recorder.add(&sample(second * 1_000_000_000)).unwrap();
        }
        let mut replay = Replay::open(file.path()).unwrap();
        replay.next().unwrap();
        let begin = std::time::Instant::now();
        let span = loop {
            match replay.span_ns() {
                Some(span) => break span,
                None => assert!(begin.elapsed().as_secs() < 30, "no span"),
            }
        };
        assert_eq!(span, [1_000_000_000, 9_000_000_000]);
        let next = replay.next().unwrap().unwrap();
        assert_eq!(next.time_ns, 2_000_000_000);
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
    fn a_recording_goes_to_any_moment() {
        const S: u64 = 1_000_000_000;
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        (100..500).for_each(|second| recorder.add(&sample(second * S)).unwrap());
        let mut replay = Replay::open(file.path()).unwrap();
        let mut next = |second: u64| {
            replay.go_to(second * S).unwrap();
            let next = [replay.next(), replay.next()].map(Result::unwrap);
            next.map(|sample| sample.map_or(0, |sample| sample.time_ns / S))
        };
        assert_eq!(next(100), [100, 101]);
        assert_eq!(next(400), [400, 401]);
        assert_eq!(next(401), [401, 402], "one that was there a moment ago");
        assert_eq!(next(450), [450, 451]);
        assert_eq!(next(150), [150, 151]);
        assert_eq!(next(1), [100, 101], "not before the beginning");
        assert_eq!(next(499), [499, 0]);
        assert_eq!(next(900), [0, 0], "nothing is behind the end");
        assert_eq!(next(498), [498, 499], "and back from there");
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
                assert_eq!(most, 0, "no whole sample is left at {cut}");
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
        replay.go_to(2).unwrap();
        assert_eq!(replay.next().unwrap().unwrap().time_ns, 2);
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
        let full = std::fs::File::options().write(true).open("/dev/full");
        let recorder = Recorder::of(Path::new("/dev/full"), full.unwrap());
        let why = recorder
            .and_then(|mut recorder| (0..100).try_for_each(|time| recorder.add(&sample(time))));
        let why = why.expect_err("there is no room").to_string();
        assert_eq!(why, "cannot record to /dev/full");
    }

    /// A small file that would unpack to a huge line plays only its beginning.
    #[test]
    fn what_is_packed_in_a_line_without_end_is_not_unpacked() {
        use flate2::{Compression, write::GzEncoder};
        use std::io::Write as _;
        let start = |text: &str| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            writeln!(packed, "{{\"gpushare_recording\":{VERSION}}}").unwrap();
            serde_json::to_writer(&mut packed, &sample(1)).unwrap();
            write!(packed, "\n{text}").unwrap();
            packed
        };
        let plays_one = |packed: Vec<u8>| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), packed).unwrap();
            let mut replay = Replay::open(file.path()).unwrap();
            assert_eq!(replay.next().unwrap().unwrap().time_ns, 1);
            assert_eq!(replay.next().unwrap(), None);
            assert!(matches!(replay.lines, Lines::Over));
        };
        let mut zeros = start("");
        for _ in 0..=lines::LONGEST >> 20 {
            zeros.write_all(&vec![b'0'; 1 << 20]).unwrap();
        }
        writeln!(zeros).unwrap();
        serde_json::to_writer(&mut zeros, &sample(2)).unwrap();
        plays_one(zeros.finish().unwrap());
        let many = "{},".repeat(OBJECTS);
        let many = format!("{{\"snapshot\":{{\"time_ns\":2,\"processes\":[{many}{{}}]}}}}\n");
        plays_one(start(&many).finish().unwrap());
        let header = format!("{{\"gpushare_recording\":{VERSION}}}\n");
        plays_one(start(&header.repeat(1000)).finish().unwrap());
    }

    #[test]
    fn a_recording_is_a_file_and_a_pipe_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let why = format!("{:#}", Replay::open(&pipe).unwrap_err());
        assert!(why.contains("it is a pipe"), "{why}");
        let why = format!("{:#}", Recorder::create(&pipe).unwrap_err());
        assert!(why.contains("not a file"), "{why}");
        let why = format!("{:#}", Replay::open(Path::new("/dev/zero")).unwrap_err());
        assert!(why.contains("it is a device"), "{why}");
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
