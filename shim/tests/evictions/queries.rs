//! Programs that poll: their queries are answered while the process is evicted, and do not bring it back.

use gpushare_testbed::{Testbed, Watched, cc, eventually};
use shm_layout::{EventKind, EventReader, Phase, Residence, Segments, What};

use crate::client::{PATIENCE, app, look};
use crate::turns::take_turns;

/// A program that polls in some threads, and that is evicted when it was idle for 300 ms.
struct Poller<'b> {
    bed: &'b Testbed,
    program: Watched,
}

impl<'b> Poller<'b> {
    fn start(bed: &'b Testbed, threads: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = bed.preloaded(cc(&app("polls.c"), "polls", &["-w", "-ldl", "-pthread"]));
        command.arg(threads);
        command.env("GPUSHARE_EVICT_AFTER", "300ms");
        command.envs(variables.iter().copied());
        let mut program = Watched::spawn(&mut command);
        program.ask("polls");
        Self { bed, program }
    }

    fn residence(&self) -> Residence {
        let processes = look(self.bed).processes;
        processes.first().expect("it is registered").residence
    }

    fn is_evicted(&self) {
        eventually("it is evicted", PATIENCE, || {
            self.residence().phase == Phase::Evicted
        });
    }

    /// Returns polls, failures, the smallest and the largest free memory that was seen.
    fn polls(&mut self) -> [u64; 4] {
        let answer = self.program.ask("polls");
        let numbers = answer
            .split(' ')
            .map(|number| number.parse().expect("a number"));
        numbers
            .collect::<Vec<_>>()
            .try_into()
            .expect("four numbers")
    }

    /// Waits until each thread has polled 20 times more.
    fn poll_on(&mut self, threads: u64) {
        let until = self.polls()[0] + 20 * threads;
        eventually("it polls", PATIENCE, || self.polls()[0] >= until);
    }
}

/// Returns how often a process has returned to its devices.
fn returns(bed: &Testbed) -> usize {
    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    let mut returns = 0;
    while let Some(event) = reader.next(segments.state()) {
        let Ok(event) = event else { continue };
        if event.kind == EventKind::Residence
            && let What::Residence { phase, .. } = event.what()
        {
            returns += usize::from(phase == Phase::Restoring);
        }
    }
    returns
}

/// Lets a program poll while it is evicted, from when `is_gone`.
fn polls_while_evicted(
    bed: &Testbed,
    variables: &[(&str, &str)],
    is_gone: impl Fn(&Residence) -> bool,
) {
    let mut poller = Poller::start(bed, "4", variables);
    for round in 0..2 {
        poller.is_evicted();
        eventually("it has left", PATIENCE, || is_gone(&poller.residence()));
        poller.poll_on(4);
        assert_eq!(poller.residence().phase, Phase::Evicted);
        assert_eq!(returns(bed), round, "no poll brings it back");
        assert_eq!(poller.program.ask("work"), "0 7");
        assert_eq!(returns(bed), round + 1);
    }
    let [_, failures, least, most] = poller.polls();
    assert_eq!(failures, 0, "stderr: {}", poller.program.stderr());
    if !variables.is_empty() {
        assert_eq!(least, most, "it sees the same free memory at every time");
    }
}

#[test]
fn a_program_that_polls_stays_evicted_after_a_checkpoint() {
    polls_while_evicted(&Testbed::new(), &[], |_| true);
}

#[test]
fn a_program_that_polls_stays_evicted_after_copies() {
    polls_while_evicted(&Testbed::new(), &[("GPUSHARE_SWAPPABLE", "1")], |_| true);
}

#[test]
fn a_program_that_polls_stays_evicted_after_its_context_has_left_too() {
    let bed = Testbed::new();
    take_turns(&bed, "off deep-after=1s");
    polls_while_evicted(&bed, &[("GPUSHARE_SWAPPABLE", "1")], |at| at.is_checkpoint);
}

#[test]
fn a_query_of_an_unknown_event_is_answered_by_the_driver() {
    let bed = Testbed::new();
    let mut poller = Poller::start(&bed, "1", &[]);
    poller.is_evicted();
    assert_eq!(poller.program.ask("unknown"), "1");
    assert_eq!(returns(&bed), 1);
}
