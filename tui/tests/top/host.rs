//! The host beside the GPU: processors, memory, and the threads of a job.

use gpushare_observe::findings;
use gpushare_sample::PolicyKind;
use gpushare_sample::host::{Machine, Threads};
use gpushare_top::state::State;

use crate::hands::{press, screen};
use crate::support::story;

/// Returns the state after the story, in which the notebook that leaves the GPU alone has these threads.
fn with_threads(threads: Threads) -> State {
    let mut state = State::default();
    for mut sample in story() {
        sample.machine = Machine {
            processors: Some(8),
            cpu_percent: Some(97),
            memory_bytes: Some(64 << 30),
            available_bytes: Some(48 << 30),
        };
        let dave = sample
            .processes
            .iter_mut()
            .find(|process| process.name() == "notebook-dave");
        dave.unwrap().threads = threads;
        state.update(sample);
    }
    state
}

fn threads(busiest: u32, waits: u32) -> Threads {
    Threads {
        readable: Some(true),
        number: Some(12),
        cpu_percent: Some(busiest + 3),
        busiest_percent: Some(busiest),
        waits_percent: Some(waits),
    }
}

fn why(state: &State) -> String {
    let all = findings::explain(state.data(), 0).into_iter();
    let mut of_dave = all.filter(|why| why.what.contains("notebook-dave"));
    of_dave.next().unwrap().sentence()
}

#[test]
fn a_job_that_leaves_the_gpu_alone_is_explained_by_its_threads() {
    for (threads, said) in [
        (
            threads(98, 1),
            "leaves GPU0 alone 100% of its time with one core at 98%: its host code is the limit",
        ),
        (
            threads(70, 20),
            "leaves GPU0 alone 100% of its time, and waits 20% of its time for a processor, on a host whose 8 processors are used to 97%",
        ),
        (
            threads(4, 0),
            "leaves GPU0 alone 100% of its time, and waits there for neither the GPU nor a processor, its busiest thread uses 4% of a core",
        ),
        (
            Threads {
                readable: Some(false),
                ..Threads::default()
            },
            "what slows it is elsewhere, not on the GPU, and its threads are not readable from here",
        ),
    ] {
        let sentence = why(&with_threads(threads));
        assert!(sentence.ends_with(said), "{sentence}");
    }
}

#[test]
fn without_turns_a_job_beside_others_is_not_said_to_wait_for_nothing() {
    let mut state = State::default();
    for mut sample in story() {
        for process in &mut sample.snapshot.processes {
            for holding in &mut process.devices {
                holding.view.policy.0.kind = PolicyKind::Off;
                holding.nvml.util_percent = Some(25);
            }
        }
        for device in &mut sample.snapshot.devices {
            device.view.policy.0.kind = PolicyKind::Off;
        }
        state.update(sample);
    }
    let sentence = why(&state);
    let said = "shares GPU0 with";
    assert!(
        sentence.contains(said) && sentence.contains("is theirs"),
        "{sentence}"
    );
    assert!(
        !screen(&state).contains("get their share"),
        "{}",
        screen(&state)
    );
}

#[test]
fn the_screens_show_the_host_and_the_time_of_each_job_in_three_parts() {
    let mut state = with_threads(threads(98, 1));
    assert!(
        screen(&state).contains("host cpu 97% mem 25%"),
        "{}",
        screen(&state)
    );
    press(&mut state, "x");
    let shown = screen(&state);
    assert!(
        shown.contains("the host: 97% of 8 processors used, 48.0 GiB of 64.0 GiB memory free"),
        "{shown}"
    );
    let bar = |name: &str| {
        let line = shown
            .lines()
            .find(|line| line.contains('█') && line.contains(name));
        line.unwrap_or_else(|| panic!("{name}: {shown}")).to_owned()
    };
    assert!(
        bar("train-7b").contains("░"),
        "it holds and waits: {}",
        bar("train-7b")
    );
    let alone = "················  F notebook-dave";
    assert!(shown.contains(alone), "{shown}");
}
