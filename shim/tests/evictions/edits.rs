//! Settings that an operator changes while a process is evicted, and the number of attempts to evict.

use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, Watched, eventually};
use shm_layout::{
    Change, EventReader, Operator, Phase, QuotaValue, Segments, Set, ShareEdit, What, Why,
};

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE, look};
use crate::overcommit::edit;
use crate::refusals::world;
use crate::there_and_back::with_memory;
use crate::turns::take_turns;

#[test]
fn an_evicted_process_follows_the_edits_of_its_operator() {
    let bed = Testbed::new();
    take_turns(&bed, "timeslice=5ms");
    // A slice that ends late records events behind the queued work.
    let mut programs = [(); 2].map(|()| Watched::spawn(&mut bed.workload(&["--script"])));
    for program in &mut programs {
        assert!(program.line().starts_with("ready"));
        assert_eq!(program.ask("alloc 16MiB"), "ok");
    }
    for words in ["launch 15000 3", "sync"].repeat(6) {
        programs.iter_mut().for_each(|program| program.say(words));
        let answers = programs.each_mut().map(|program| program.line());
        assert!(answers.iter().all(|answer| answer.starts_with("ok")));
    }
    let pid = programs[0].pid();
    let process = || {
        let processes = look(&bed).processes;
        let own = processes.into_iter().find(|one| one.identity.pid == pid);
        own.expect("it is registered")
    };
    let evict = Change::ProcessShare {
        slot: process().slot,
        share: ShareEdit {
            paused: Set::To(true),
            evict: Set::To(true),
            ..ShareEdit::default()
        },
    };
    edit(&bed, &evict);
    eventually("it is evicted", PATIENCE, || {
        process().residence.phase == Phase::Evicted
    });
    let operator = Operator::open(bed.dir()).expect("our own segment");
    for policy in ["timeslice=9ms", "off", "overlap", "launches=3"] {
        take_turns(&bed, policy);
        let generation = look(&bed).generation;
        eventually(&format!("all follow {policy}"), PATIENCE, || {
            operator.unacknowledged(generation).is_empty()
        });
    }
    assert_eq!(process().residence.phase, Phase::Evicted);
}

#[test]
fn a_wait_for_memory_goes_on_behind_an_eviction_and_was_not_given_up() {
    let bed = Testbed::new();
    let limited = [("GPUSHARE_MEMORY", "4MiB"), ("GPUSHARE_ON_FULL", "wait")];
    let mut client = Client::start(&bed, &limited);
    // While another thread could free memory, the wait has a chance of success.
    client.ok("free-later nothing 600000");
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.begin(&format!("alloc b {}", 2 * MIB));
    let waits = |client: &Client<'_>| client.process().devices[0].memory_wait.is_some();
    for _ in 0..2 {
        eventually("it waits", PATIENCE, || waits(&client));
        client.evict(&bed);
        client.wish(&bed, Wish::Resume);
        client.reaches(Phase::Resident);
    }
    eventually("it waits again", PATIENCE, || waits(&client));
    let change = Change::ProcessQuota {
        slot: client.process().slot,
        device: None,
        value: QuotaValue::Bytes(8 * MIB),
        until: None,
    };
    edit(&bed, &change);
    assert_eq!(client.end(), 0);
    let counters = client.process().devices[0].counters;
    assert_eq!((counters.memory_waits, counters.memory_gave_up), (1, 0));
}

#[test]
fn a_process_that_comes_back_to_a_card_with_room_has_waited_for_no_limit() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    client.ok("synchronize");
    assert_eq!(client.process().devices[0].counters.memory_waits, 0);
    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    while let Some(event) = reader.next(segments.state()) {
        let Ok(event) = event else { continue };
        assert!(
            !matches!(event.what(), What::MemoryWait { .. }),
            "{event:?}"
        );
    }
}

#[test]
fn one_that_came_back_a_short_while_ago_is_evicted_as_soon_as_that_is_over() {
    // Eviction and restore take at least 0.2 s together, and the process then stays ten times as long.
    let (_file, bed) =
        world("[[device]]\nmemory = \"1GiB\"\n[checkpoint]\nout = \"100MiB\"\nback = \"100MiB\"");
    let mut client = with_memory(&bed, &[("GPUSHARE_EVICT_AFTER", "200ms")]);
    client.reaches(Phase::Evicted);
    let back = Instant::now();
    client.ok("synchronize");
    let stays = Duration::from_nanos(10 * client.residence().swap_ns);
    assert!(stays >= Duration::from_secs(1), "{stays:?}");
    client.is_refused(Why::TooSoon);
    client.reaches(Phase::Evicted);
    let took = back.elapsed();
    assert!(took >= stays * 9 / 10, "{took:?} of {stays:?}");
    assert!(
        took < stays + Duration::from_secs(15),
        "{took:?} of {stays:?}"
    );
}
