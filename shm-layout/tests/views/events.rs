//! The ring of events.

use super::*;

fn event(kind: EventKind, arg0: u64) -> Event {
    Event {
        seq: 0,
        time_ns: 1,
        slot: 3,
        epoch: 4,
        device: 5,
        kind,
        arg0,
        arg1: 6,
        call: 7,
    }
}

#[test]
fn events_come_back_in_order_and_whole() {
    let dir = Dir::new();
    let segments = dir.open();
    let state = segments.state();
    let mut reader = state.events();
    for index in 0..5 {
        state.publish(event(EventKind::Release(Reason::Sync), index));
    }
    for index in 0..5 {
        let got = reader.next(state).expect("one more").expect("none lost");
        assert_eq!(
            got,
            Event {
                seq: got.seq,
                ..event(EventKind::Release(Reason::Sync), index)
            }
        );
    }
    assert_eq!(reader.next(state), None);
}

#[test]
fn a_reader_that_falls_behind_learns_how_many_it_lost() {
    let dir = Dir::new();
    let segments = dir.open();
    let state = segments.state();
    let mut reader = EventReader::from_start(state);
    let more = 100;
    for index in 0..EVENT_RING as u64 + more {
        state.publish(event(EventKind::Wait, index));
    }
    assert_eq!(reader.next(state), Some(Err(Lost(more))));
    let mut got = 0;
    while let Some(next) = reader.next(state) {
        assert_eq!(next.expect("none lost").arg0, more + got);
        got += 1;
    }
    assert_eq!((got, reader.lost()), (EVENT_RING as u64, more));
}

#[test]
fn many_writers_never_tear_an_event() {
    let dir = Dir::new();
    let segments = dir.open();
    let state = segments.state();
    let mut reader = state.events();
    const EACH: u64 = 60_000;
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            scope.spawn(move || {
                for index in 0..EACH {
                    let word = writer << 32 | index;
                    state.publish(Event {
                        time_ns: word,
                        arg1: word,
                        ..event(EventKind::Hold, word)
                    });
                }
            });
        }
        let mut seen = 0;
        while seen < 4 * EACH {
            match reader.next(state) {
                Some(Ok(event)) => {
                    assert!(
                        event.arg0 == event.arg1 && event.arg0 == event.time_ns,
                        "torn: {event:?}"
                    );
                    seen += 1;
                }
                Some(Err(Lost(count))) => seen += count,
                None => std::thread::yield_now(),
            }
        }
    });
}
