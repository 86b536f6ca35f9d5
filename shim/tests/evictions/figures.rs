//! The figures about evictions that the tools show.

use std::time::{Duration, Instant};

use gpushare_testbed::Testbed;
use shm_layout::CounterView;

use crate::Wish;
use crate::client::Client;
use crate::there_and_back::with_memory;

impl Client<'_> {
    fn figures(&self) -> CounterView {
        self.process().devices[0].counters
    }
}

#[test]
fn the_wait_for_evicted_memory_counts_from_the_first_call_that_waits() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    assert_eq!(client.figures().wake_max_ns, 0);
    client.leaves_once(&bed);
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    client.ok("synchronize");
    let waited = began.elapsed().as_nanos() as u64;
    let figures = client.figures();
    assert_eq!((figures.evictions, figures.evictions_in_hour), (1, 1));
    assert!(figures.moving_ns > 0);
    assert!((1..=waited).contains(&figures.wake_max_ns), "{figures:?}");
    assert_eq!(
        figures.wake_p50_ns, figures.wake_max_ns,
        "it is the only one"
    );
}

#[test]
fn the_time_for_which_an_operator_keeps_memory_away_is_no_wait() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.evict(&bed);
    client.watched.say("synchronize");
    let pause = Duration::from_secs(2);
    assert_eq!(client.watched.line_within(pause), None);
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.watched.line(), "0");
    let waited = client.figures().wake_max_ns;
    assert!((1..pause.as_nanos() as u64).contains(&waited), "{waited}");
}

#[test]
fn a_process_says_whether_its_memory_left_by_copies_or_by_a_checkpoint() {
    let bed = Testbed::new();
    for (variables, is_checkpoint) in [(&[][..], true), (&[("GPUSHARE_SWAPPABLE", "1")], false)] {
        let mut client = with_memory(&bed, variables);
        client.evict(&bed);
        assert_eq!(client.residence().is_checkpoint, is_checkpoint);
        client.wish(&bed, Wish::Resume);
        client.ok("synchronize");
        assert!(!client.residence().is_checkpoint, "it is back");
    }
}
