//! Trace writers and makers that die at any step.

use super::*;

#[test]
fn a_writer_that_dies_between_two_words_costs_its_own_record_only() {
    if let Some((point, path)) = role() {
        let segments = Segments::open_workload(&path).expect("segments");
        let slot = look(&segments).processes[0].slot;
        let buffer = Buffer::adopt(&path, slot, guest()).expect("our own");
        (0..5).for_each(|at| buffer.call(&call(ALLOC, at)));
        crash::arm(&point);
        buffer.call(&call(ALLOC, 5));
        // Steps of the adoption happen with the next buffer.
        drop(Buffer::adopt(&path, slot, guest()));
        std::process::exit(7);
    }
    for (point, whole) in [
        ("trace:drawn", 5),
        ("trace:start", 5),
        ("trace:filled", 5),
        ("trace:written", 6),
        ("trace:named", 6),
        ("trace:begun", 6),
    ] {
        let dir = Dir::new();
        let (process, _) = process(&dir.open(), "");
        let path = made(&dir, &process);
        let test = "deaths::a_writer_that_dies_between_two_words_costs_its_own_record_only";
        let status = Kid::spawn(test, &dir, point, &[]).wait();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "{point}"
        );
        let reader = Reader::open(&path).expect("a buffer");
        assert_eq!(reader.records().count(), whole, "{point}");
        assert_eq!(reader.unfinished(), 6 - whole as u64, "{point}");
        assert_eq!(reader.stats()[0].count, 6, "{point}: the sums know it");
    }
}

#[test]
fn a_maker_that_dies_leaves_no_buffer() {
    if let Some((point, path)) = role() {
        crash::arm(&point);
        let segments = Segments::open_workload(&path).expect("segments");
        let view = look(&segments);
        let _ = make(&path, &view.processes[0], RECORDS);
        std::process::exit(7);
    }
    for point in ["trace:made", "trace:initialised"] {
        let dir = Dir::new();
        let (process, _) = process(&dir.open(), "");
        let status = Kid::spawn(
            "deaths::a_maker_that_dies_leaves_no_buffer",
            &dir,
            point,
            &[],
        )
        .wait();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "{point}"
        );
        assert!(
            trace::list(dir.path()).expect("listed").is_empty(),
            "{point}"
        );
        made(&dir, &process);
    }
}
