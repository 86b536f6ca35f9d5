//! Tests of recordings: what was recorded is played, from any moment, and nothing else.

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
    let why =
        recorder.and_then(|mut recorder| (0..100).try_for_each(|time| recorder.add(&sample(time))));
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
