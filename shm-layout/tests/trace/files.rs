//! Valid trace buffers, and the ones that are refused.

use super::*;

#[test]
fn what_was_written_is_read() {
    let dir = Dir::new();
    let (process, _) = process(&dir.open(), "trainer");
    let path = made(&dir, &process);
    assert_eq!(path, trace::path(dir.path(), process.slot()));
    let buffer = Buffer::adopt(dir.path(), process.slot(), guest()).expect("our own");
    buffer.call(&call(ALLOC, 1000));
    buffer.wait(1005, 10, 99, 0);
    buffer.hold(1015, 500, 0, Some(Reason::Slice));
    buffer.hold(2000, 500, 0, None);
    buffer.denial(ALLOC, 3000, 1 << 40, 99, 0);
    let reader = Reader::open(&path).expect("a buffer");
    let header = reader.header();
    assert_eq!(
        (header.slot, header.pid),
        (process.slot(), std::process::id())
    );
    assert_eq!(
        (header.label.as_str(), header.devices.as_slice()),
        ("trainer", &[GPU][..])
    );
    assert!(header.started_ns > 0 && header.stopped_ns == 0 && !header.stale);
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    let off = header
        .realtime_of(clock::now())
        .abs_diff(wall.as_nanos() as u64);
    assert!(off < 60_000_000_000, "{off} ns off the wall clock");
    let records: Vec<_> = reader.records().collect();
    let kinds: Vec<_> = records.iter().map(|record| record.kind).collect();
    assert_eq!(
        kinds,
        [Kind::Call, Kind::Wait, Kind::Hold, Kind::Hold, Kind::Denial]
    );
    let first = records[0];
    assert_eq!(
        (first.name, first.start_ns, first.duration_ns),
        (Some("cuMemAlloc_v2"), 1000, 40)
    );
    assert_eq!((first.bytes, first.tid, first.device), (7, 99, Some(0)));
    assert_eq!(
        (records[2].name, records[2].reason),
        (None, Some(Reason::Slice))
    );
    assert_eq!((records[3].reason, records[4].bytes), (None, 1 << 40));
    let stats = reader.stats();
    assert_eq!(stats.len(), 1);
    assert_eq!(
        (stats[0].name, stats[0].count, stats[0].total_ns),
        ("cuMemAlloc_v2", 1, 40)
    );
    assert_eq!(
        (stats[0].longest_ns, stats[0].bytes, stats[0].waited_ns),
        (40, 7, 10)
    );
    buffer.stopped(clock::now());
    assert!(Reader::open(&path).expect("a buffer").header().stopped_ns > 0);
}

#[test]
fn a_full_buffer_counts_what_it_drops_and_its_sums_go_on() {
    let dir = Dir::new();
    let (process, _) = process(&dir.open(), "");
    let path = made(&dir, &process);
    let buffer = Buffer::adopt(dir.path(), process.slot(), guest()).expect("our own");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|at| buffer.call(&call(ALLOC, at))));
        }
    });
    let reader = Reader::open(&path).expect("a buffer");
    assert_eq!(reader.records().count(), RECORDS as usize);
    assert_eq!((reader.dropped(), reader.unfinished()), (1000, 0));
    assert_eq!(reader.stats()[0].count, 2000);
    let length = buffer.length();
    assert_eq!(
        (length.records, length.dropped, length.capacity),
        (1000, 1000, 1000)
    );
}

#[test]
fn a_private_buffer_hands_its_records_on_in_parts() {
    let buffer = Buffer::private(RECORDS, guest()).expect("memory");
    buffer.call(&call(ALLOC, 1));
    let mut seen = Vec::new();
    let next = buffer.records_from(0, &NAMES, false, |record| seen.push(record.start_ns));
    buffer.call(&call(ALLOC, 2));
    let next = buffer.records_from(next, &NAMES, false, |record| seen.push(record.start_ns));
    assert_eq!((next, seen), (2, vec![1, 2]));
    assert_eq!(buffer.stats(&NAMES)[0].count, 2);
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    assert!(
        buffer
            .realtime_ns(clock::now())
            .abs_diff(wall.as_nanos() as u64)
            < 60_000_000_000
    );
}

#[test]
fn a_buffer_has_the_owner_and_the_mode_of_the_state() {
    let dir = Dir::new();
    let (process, _) = process(&dir.open(), "");
    let state = dir.path().join("state");
    for (mode, wanted) in [(0o600, 0o600), (0o664, 0o660)] {
        fs::set_permissions(&state, fs::Permissions::from_mode(mode)).expect("our own");
        let made = fs::metadata(made(&dir, &process)).expect("made");
        let state = fs::metadata(&state).expect("there");
        assert_eq!(made.mode() & 0o777, wanted);
        assert_eq!((made.uid(), made.gid()), (state.uid(), state.gid()));
        assert!(
            made.blocks() * 512 >= made.len(),
            "every byte has its place"
        );
    }
}

/// Returns the errors of the writer and the reader for this file.
fn both(dir: &Dir, slot: SlotId) -> (TraceError, TraceError) {
    let writer = Buffer::adopt(dir.path(), slot, guest())
        .err()
        .expect("refused");
    let reader = Reader::open(&trace::path(dir.path(), slot))
        .err()
        .expect("refused");
    (writer, reader)
}

#[test]
fn a_wrong_file_is_refused_by_both_sides() {
    let dir = Dir::new();
    let (process, _) = process(&dir.open(), "");
    let slot = process.slot();
    let path = trace::path(dir.path(), slot);
    assert!(matches!(
        both(&dir, slot),
        (TraceError::Missing { .. }, TraceError::Missing { .. })
    ));
    let foreign = |what: &str| {
        let (writer, reader) = both(&dir, slot);
        assert!(
            matches!(writer, TraceError::Foreign { .. }),
            "{what}: {writer}"
        );
        assert!(
            matches!(reader, TraceError::Foreign { .. }),
            "{what}: {reader}"
        );
    };
    fs::write(&path, "").expect("written");
    foreign("empty");
    fs::write(&path, vec![0xa5; trace::size(RECORDS) as usize]).expect("written");
    foreign("another program's");
    fs::write(&path, vec![0; trace::size(RECORDS) as usize]).expect("written");
    foreign("zero");
    fs::remove_file(&path).expect("ours");
    fs::create_dir(&path).expect("a directory");
    let (writer, reader) = both(&dir, slot);
    assert_ne!(
        TraceState::of_error(&writer),
        TraceState::Off,
        "{writer} {reader}"
    );
    fs::remove_dir(&path).expect("ours");
    symlink("/etc/passwd", &path).expect("a link");
    assert!(matches!(
        both(&dir, slot),
        (TraceError::Foreign { .. }, TraceError::Io { .. })
    ));
    fs::remove_file(&path).expect("ours");
    made(&dir, &process);
    let file = OpenOptions::new().write(true).open(&path).expect("ours");
    file.set_len(trace::size(RECORDS) - 32).expect("cut");
    foreign("cut short by a record");
    file.set_len(140_000).expect("cut");
    foreign("cut short");
    file.set_len(100).expect("cut");
    foreign("cut to its head's beginning");
}

#[test]
fn holes_in_a_buffer_are_filled_before_it_is_written() {
    let dir = Dir::new();
    let (process, _) = process(&dir.open(), "");
    let path = made(&dir, &process);
    let head = fs::read(&path).expect("a buffer");
    fs::remove_file(&path).expect("ours");
    fs::write(&path, &head[..1024]).expect("written");
    let file = OpenOptions::new().write(true).open(&path).expect("ours");
    file.set_len(trace::size(RECORDS)).expect("longer");
    let holes = || {
        fs::metadata(&path)
            .map(|meta| meta.blocks() * 512 < meta.len())
            .expect("there")
    };
    assert!(holes());
    let buffer = Buffer::adopt(dir.path(), process.slot(), guest()).expect("our own");
    buffer.call(&call(ALLOC, 5));
    assert!(!holes());
    assert_eq!(Reader::open(&path).expect("a buffer").records().count(), 1);
}

#[test]
fn another_lifes_buffer_is_not_written() {
    let dir = Dir::new();
    let segments = dir.open();
    let (first, _) = process(&segments, "");
    let path = made(&dir, &first);
    let later = SlotId {
        epoch: first.slot().epoch + 1,
        ..first.slot()
    };
    fs::copy(&path, trace::path(dir.path(), later)).expect("copied");
    let refused = Buffer::adopt(dir.path(), later, guest())
        .err()
        .expect("refused");
    assert!(matches!(refused, TraceError::NotIts { .. }), "{refused}");
    assert_eq!(TraceState::of_error(&refused), TraceState::BadBuffer);
    for (offset, word) in [(24, 77u64), (8, 9)] {
        made(&dir, &first);
        let file = OpenOptions::new().write(true).open(&path).expect("ours");
        file.write_all_at(&word.to_ne_bytes(), offset)
            .expect("written");
        let refused = Buffer::adopt(dir.path(), first.slot(), guest())
            .err()
            .expect("refused");
        assert!(
            matches!(
                refused,
                TraceError::NotIts { .. }
                    | TraceError::WrongVersion { .. }
                    | TraceError::Foreign { .. }
            ),
            "{refused}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_in_a_buffer_are_survived(bytes in prop::collection::vec(any::<u8>(), 64..4096), at in 0u64..1200, every in 1u64..5) {
        let dir = Dir::new();
        let (process, _) = process(&dir.open(), "");
        let path = made(&dir, &process);
        let buffer = Buffer::adopt(dir.path(), process.slot(), guest()).expect("our own");
        (0..20).for_each(|at| buffer.call(&call(ALLOC, at)));
        let file = OpenOptions::new().write(true).open(&path).expect("ours");
        // Cases for a mapped writer: everything but a shorter file.
        let end = trace::size(RECORDS) - bytes.len() as u64;
        let mut place = at;
        while place < end {
            file.write_all_at(&bytes, place).expect("written");
            place += bytes.len() as u64 * every * every;
        }
        (0..20).for_each(|at| buffer.call(&call(ALLOC, at)));
        buffer.hold(5, 6, 200, Some(Reason::Exit));
        let _ = (buffer.length(), buffer.stats(&NAMES), buffer.realtime_ns(5));
        buffer.records_from(0, &NAMES, true, |record| drop(format!("{record:?}")));
        if let Ok(reader) = Reader::open(&path) {
            prop_assert!(reader.records().count() <= RECORDS as usize);
            for record in reader.records() {
                prop_assert!(record.start_ns.checked_add(record.duration_ns).is_some());
            }
            let _ = format!("{:?} {:?}", reader.header(), reader.stats());
        }
        let _ = Buffer::adopt(dir.path(), process.slot(), guest());
    }
}
