//! Allocations that wait for memory.

use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, cc, eventually};
use rustix::process::Signal;
use shm_layout::{
    Blocked, Change, EventKind, EventReader, LockPolicy, MemoryWait, OnFull, Operator, QuotaValue,
    Segments, Set, ShareEdit, clock,
};

use crate::client::{Client, MIB, OUT_OF_MEMORY, PATIENCE, app, look};
use crate::quota::set_quota;

const WAIT: (&str, &str) = ("GPUSHARE_ON_FULL", "wait");

fn edit(bed: &Testbed, change: &Change) {
    let operator = Operator::open(bed.dir()).expect("our own segment");
    operator
        .edit(None, change, clock::now())
        .expect("a valid edit");
}

fn set(bed: &Testbed, client: &Client<'_>, paused: Set<bool>, on_full: Set<OnFull>) {
    let slot = client.process().slot;
    let change = Change::ProcessShare {
        slot,
        share: ShareEdit {
            paused,
            on_full,
            ..ShareEdit::default()
        },
    };
    edit(bed, &change);
}

fn set_group(bed: &Testbed, bytes: u64) {
    let change = Change::Group {
        name: "team".into(),
        settings: shm_layout::GroupEdit {
            memory: Set::To(QuotaValue::Bytes(bytes)),
            ..shm_layout::GroupEdit::default()
        },
        remove: false,
    };
    edit(bed, &change);
}

/// Keeps the client waiting: another of its threads could free memory for as long as the test runs.
fn keep_hope(client: &mut Client<'_>) {
    client.ok("free-later nothing 600000");
}

/// Waits until the client waits for memory.
fn waits(client: &Client<'_>) -> MemoryWait {
    let wait = || client.process().devices[0].memory_wait;
    eventually("it waits", PATIENCE, || wait().is_some());
    wait().expect("it waits")
}

#[test]
fn an_allocation_over_its_quota_waits_until_the_quota_is_raised() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    keep_hope(&mut client);
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.begin(&format!("alloc b {}", 2 * MIB));
    let wait = waits(&client);
    assert_eq!(
        (wait.bytes, wait.limit, wait.until_ns),
        (2 * MIB, Blocked::Quota, None)
    );
    assert!(client.goes_on());
    set_quota(&bed, &client, QuotaValue::Bytes(5 * MIB));
    assert_eq!(client.end(), 0);
    assert_eq!(client.used(), 5 * MIB);
    client.ok("free b");
    assert_eq!(client.used(), 3 * MIB, "it is one like any other");
    let device = &client.process().devices[0];
    assert_eq!(device.memory_wait, None);
    let counters = device.counters;
    assert_eq!((counters.memory_waits, counters.denials), (1, 0));
    assert!(counters.memory_waited_ns >= 300_000_000);
}

/// Minimum wait of an allocation for which no thread can free memory.
const HOPELESS: Duration = Duration::from_secs(2);

#[test]
fn a_program_that_alone_could_free_what_its_quota_lacks_is_refused_after_two_seconds() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    for kind in ["alloc b", "async b"] {
        let began = Instant::now();
        client.denied(&format!("{kind} {}", 2 * MIB));
        assert!(began.elapsed() >= HOPELESS, "{kind}");
    }
    let counters = client.process().devices[0].counters;
    assert_eq!((counters.denials, counters.memory_gave_up), (2, 2));
    client.ok("free a");
    client.ok(&format!("alloc b {}", 4 * MIB));
}

#[test]
fn a_group_of_one_is_refused_after_two_seconds() {
    let bed = Testbed::new();
    set_group(&bed, 4 * MIB);
    let mut client = Client::start(&bed, &[("GPUSHARE_GROUP", "team"), WAIT]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    let began = Instant::now();
    client.denied(&format!("alloc b {}", 2 * MIB));
    assert!(began.elapsed() >= HOPELESS);
}

#[test]
fn a_pool_that_has_reached_its_own_maximum_is_refused_although_others_hold_memory() {
    let bed = Testbed::new();
    let mut other = Client::start(&bed, &[]);
    other.ok(&format!("alloc x {}", 64 * MIB));
    let mut client = Client::start(&bed, &[WAIT]);
    client.ok(&format!("pool p 0 {}", 64 * MIB));
    client.ok(&format!("pool-alloc a p {}", 48 * MIB));
    let began = Instant::now();
    client.begin(&format!("pool-alloc b p {}", 48 * MIB));
    assert_eq!(waits(&client).limit, Blocked::Device);
    assert_eq!(client.end(), OUT_OF_MEMORY);
    let waited = began.elapsed();
    assert!(waited >= HOPELESS && waited < 5 * HOPELESS, "{waited:?}");
    assert_eq!(client.used(), 48 * MIB);
}

#[test]
fn another_thread_that_may_free_is_waited_for() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.ok("free-later a 4000");
    let began = Instant::now();
    client.ok(&format!("alloc b {}", 2 * MIB));
    assert!(began.elapsed() > HOPELESS);
}

#[test]
fn threads_that_all_wait_for_their_quota_or_for_each_other_are_refused() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    let codes = client.ok(&format!("alloc-in-two {0} {0}", 2 * MIB));
    assert_eq!(codes, [OUT_OF_MEMORY; 2]);
    client.ok("in-a-lock");
    client.denied(&format!("alloc b {}", 2 * MIB));
}

#[test]
fn where_no_thread_can_be_listed_a_program_that_alone_could_free_is_refused_after_two_seconds() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.ok("forbid-listing");
    let began = Instant::now();
    client.denied(&format!("alloc b {}", 2 * MIB));
    let waited = began.elapsed();
    assert!(waited >= HOPELESS && waited < 5 * HOPELESS, "{waited:?}");
}

#[test]
fn where_no_thread_can_be_listed_one_that_may_free_is_waited_for_ten_seconds() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.ok("forbid-listing");
    keep_hope(&mut client);
    let began = Instant::now();
    client.denied(&format!("alloc b {}", 2 * MIB));
    assert!(began.elapsed() >= 5 * HOPELESS);
}

#[test]
fn a_thread_that_waits_for_the_group_behind_one_that_waits_for_the_quota_cannot_free() {
    let bed = Testbed::new();
    set_group(&bed, 9 * MIB);
    let team = ("GPUSHARE_GROUP", "team");
    let mut other = Client::start(&bed, &[team]);
    other.ok(&format!("alloc a {}", 2 * MIB));
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "5MiB"), team, WAIT]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.begin(&format!("alloc-in-two {} {}", 3 * MIB, 5 * MIB));
    assert_eq!(waits(&client).limit, Blocked::Quota);
    eventually("the first one is refused", PATIENCE, || {
        waits(&client).limit == Blocked::Group
    });
    other.ok("free a");
    assert_eq!(client.end(), 0);
    assert_eq!(client.process().devices[0].counters.denials, 2);
}

#[test]
fn a_program_waits_whatever_its_name() {
    let bed = Testbed::new();
    for name in ["cuda_x", "cuda-EvtHandlr", "cuda00001400006"] {
        let mut client = Client::start_bare(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
        client.ok(&format!("name {name}"));
        client.ok("init");
        client.ok("device 0");
        keep_hope(&mut client);
        client.ok(&format!("alloc a {}", 3 * MIB));
        for words in ["alloc b 2097152", "in-a-thread in alloc c 2097152"] {
            client.ok("context-current c");
            client.begin(words);
            waits(&client);
            set_quota(&bed, &client, QuotaValue::Bytes(8 * MIB));
            assert_eq!(client.end(), 0, "{name}: {words}");
            set_quota(&bed, &client, QuotaValue::Bytes(5 * MIB));
        }
    }
}

#[test]
fn a_groups_memory_is_waited_for_until_another_member_frees_or_dies() {
    let bed = Testbed::new();
    set_group(&bed, 4 * MIB);
    let member = [("GPUSHARE_GROUP", "team"), WAIT];
    let [mut one, mut two] = [(); 2].map(|()| Client::start(&bed, &member));
    one.ok(&format!("alloc a {}", 2 * MIB));
    one.ok(&format!("alloc b {}", 2 * MIB));
    two.begin(&format!("alloc a {}", 2 * MIB));
    assert_eq!(waits(&two).limit, Blocked::Group);
    one.ok("free a");
    assert_eq!(two.end(), 0);
    two.begin(&format!("async b {}", 2 * MIB));
    waits(&two);
    one.watched.signal(Signal::KILL);
    assert_eq!(two.end(), 0, "the dead one's memory is the group's again");
    assert_eq!(two.used(), 4 * MIB);
}

#[test]
fn a_full_device_is_waited_for_until_another_process_frees_or_dies() {
    let bed = Testbed::with_scenario("small");
    let [mut full, mut waiting] = [(); 2].map(|()| Client::start(&bed, &[WAIT]));
    // Two contexts take 8 of the 64 MiB.
    full.ok(&format!("alloc a {}", 20 * MIB));
    full.ok(&format!("alloc b {}", 20 * MIB));
    waiting.begin(&format!("alloc a {}", 30 * MIB));
    let wait = waits(&waiting);
    assert_eq!((wait.limit, wait.bytes), (Blocked::Device, 30 * MIB));
    assert!(waiting.goes_on());
    full.ok("free a");
    assert_eq!(waiting.end(), 0);
}

#[test]
fn each_way_to_allocate_waits_for_a_full_device() {
    let bed = Testbed::with_scenario("small");
    for kind in [
        "alloc a 41943040",
        "async a 41943040",
        "create a 41943040 0",
    ] {
        let [mut doomed, mut heir] = [(); 2].map(|()| Client::start(&bed, &[WAIT]));
        doomed.ok(&format!("alloc a {}", 40 * MIB));
        heir.begin(kind);
        waits(&heir);
        doomed.watched.signal(Signal::KILL);
        assert_eq!(heir.end(), 0, "{kind}");
    }
}

#[test]
fn who_does_not_wait_fails_as_always_and_is_not_held_up_by_those_who_do() {
    let bed = Testbed::new();
    set_group(&bed, 4 * MIB);
    let team = ("GPUSHARE_GROUP", "team");
    let mut patient = Client::start(&bed, &[team, WAIT]);
    let mut hasty = Client::start(&bed, &[team]);
    hasty.ok(&format!("alloc a {}", 2 * MIB));
    patient.begin(&format!("alloc a {}", 3 * MIB));
    waits(&patient);
    hasty.denied(&format!("alloc b {}", 3 * MIB));
    hasty.ok(&format!("alloc b {MIB}"));
    hasty.ok("free a");
    assert_eq!(patient.end(), 0);
}

#[test]
fn after_its_time_it_fails_with_the_drivers_own_code() {
    let bed = Testbed::with_scenario("small");
    let limited = [
        ("GPUSHARE_MEMORY", "4MiB"),
        ("GPUSHARE_ON_FULL", "wait=400ms"),
    ];
    let mut client = Client::start(&bed, &limited);
    client.ok(&format!("alloc a {}", 3 * MIB));
    let began = Instant::now();
    client.denied(&format!("alloc b {}", 2 * MIB));
    assert!(began.elapsed() >= Duration::from_millis(400));
    let counters = client.process().devices[0].counters;
    assert_eq!(
        (
            counters.denials,
            counters.memory_waits,
            counters.memory_gave_up
        ),
        (1, 1, 1)
    );
    // The device itself is full, because of another process.
    let mut other = Client::start(&bed, &[]);
    other.ok(&format!("alloc a {}", 40 * MIB));
    let mut client = Client::start(&bed, &limited[1..]);
    let began = Instant::now();
    client.denied(&format!("alloc b {}", 30 * MIB));
    assert!(began.elapsed() >= Duration::from_millis(400));
    let counters = client.process().devices[0].counters;
    assert_eq!(
        counters.denials, 0,
        "the driver refused it, and no limit of ours"
    );
}

#[test]
fn an_operator_makes_a_running_program_wait_and_its_wait_fail_at_once() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1MiB")]);
    keep_hope(&mut client);
    client.ok(&format!("alloc a {MIB}"));
    client.denied("alloc b 1");
    set(&bed, &client, Set::Keep, Set::To(OnFull::Wait));
    client.begin("alloc b 1");
    waits(&client);
    set(&bed, &client, Set::Keep, Set::To(OnFull::Fail));
    assert_eq!(client.end(), OUT_OF_MEMORY);
}

#[test]
fn more_than_there_could_ever_be_fails_at_once() {
    let bed = Testbed::with_scenario("small");
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    client.denied(&format!("alloc a {}", 4 * MIB + 1));
    let mut client = Client::start(&bed, &[WAIT]);
    client.denied(&format!("alloc a {}", 65 * MIB));
    assert_eq!(client.process().devices[0].counters.memory_waits, 0);
    // No other process has anything that could be freed, so the wait is short.
    client.denied(&format!("alloc a {}", 63 * MIB));
}

#[test]
fn two_that_wait_for_each_other_do_so_until_the_later_one_fails() {
    let bed = Testbed::with_scenario("small");
    let [mut one, mut two] = [(); 2].map(|()| Client::start(&bed, &[WAIT]));
    for client in [&mut one, &mut two] {
        client.ok(&format!("alloc a {}", 20 * MIB));
    }
    one.begin(&format!("alloc b {}", 30 * MIB));
    waits(&one);
    two.begin(&format!("alloc b {}", 30 * MIB));
    assert_eq!(two.end(), OUT_OF_MEMORY);
    assert!(one.goes_on());
    two.ok("free a");
    assert_eq!(one.end(), 0);
}

#[test]
fn a_capture_is_not_held_up() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1MiB"), WAIT]);
    keep_hope(&mut client);
    client.ok(&format!("alloc a {MIB}"));
    client.ok("stream s");
    client.ok("capture s");
    client.denied("alloc b 1");
    client.ok("capture-end s g");
    client.begin("alloc b 1");
    waits(&client);
    set_quota(&bed, &client, QuotaValue::Unlimited);
    assert_eq!(client.end(), 0);
}

#[test]
fn a_callback_of_the_driver_is_not_held_up() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1MiB"), WAIT]);
    client.ok(&format!("alloc a {MIB}"));
    client.denied("alloc-in-callback b 1");
}

#[test]
fn a_launch_of_a_graph_is_not_held_up() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB"), WAIT]);
    client.ok("stream s");
    client.ok("graph g");
    client.ok(&format!("graph-alloc n g {} at", 2 * MIB));
    client.ok("graph-instantiate x g");
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.denied("graph-launch x s");
    client.ok("free a");
    client.ok("graph-launch x s");
}

#[test]
fn who_waits_holds_no_turn_that_another_needs_to_free() {
    let bed = Testbed::new();
    let policy: LockPolicy = "launches=100000 idle=60s max-hold=60s"
        .parse()
        .expect("a policy");
    let change = Change::Policy {
        device: None,
        policy: Some(policy),
        until: None,
    };
    edit(&bed, &change);
    set_group(&bed, 4 * MIB);
    let member = [("GPUSHARE_GROUP", "team"), WAIT];
    let [mut frees, mut waiting] = [(); 2].map(|()| Client::start(&bed, &member));
    frees.ok(&format!("alloc a {}", 3 * MIB));
    waiting.ok(&format!("alloc a {MIB}"));
    waiting.ok("submit a");
    let owner = || look(&bed).devices[0].owner;
    assert_eq!(owner(), Some(waiting.process().slot));
    waiting.begin(&format!("alloc b {}", 2 * MIB));
    waits(&waiting);
    // It submits once more before it frees.
    let began = Instant::now();
    frees.ok("submit a");
    assert!(began.elapsed() < Duration::from_secs(30));
    frees.ok("free a");
    assert_eq!(waiting.end(), 0);
}

#[test]
fn who_is_paused_takes_nothing_until_it_is_resumed() {
    let bed = Testbed::new();
    set_group(&bed, 4 * MIB);
    let member = [("GPUSHARE_GROUP", "team"), WAIT];
    let [mut full, mut paused] = [(); 2].map(|()| Client::start(&bed, &member));
    full.ok(&format!("alloc a {}", 4 * MIB));
    paused.begin(&format!("alloc a {MIB}"));
    waits(&paused);
    set(&bed, &paused, Set::To(true), Set::Keep);
    full.ok("free a");
    assert!(paused.goes_on());
    set(&bed, &paused, Set::To(false), Set::Keep);
    assert_eq!(paused.end(), 0);
}

#[test]
fn those_behind_one_that_is_killed_get_their_memory() {
    let bed = Testbed::new();
    set_group(&bed, 4 * MIB);
    let member = [("GPUSHARE_GROUP", "team"), WAIT];
    let [mut full, mut first, mut second] = [(); 3].map(|()| Client::start(&bed, &member));
    full.ok(&format!("alloc a {}", 3 * MIB));
    full.ok(&format!("alloc b {MIB}"));
    first.begin(&format!("alloc a {}", 4 * MIB));
    waits(&first);
    second.begin(&format!("alloc a {MIB}"));
    waits(&second);
    full.ok("free b");
    assert!(second.goes_on(), "the first waits for the same");
    first.watched.signal(Signal::KILL);
    assert_eq!(second.end(), 0);
    eventually("the dead one is out of the line", PATIENCE, || {
        look(&bed).devices[0].memory_line.is_empty()
    });
}

#[test]
fn a_library_that_empties_its_cache_is_refused_first_and_waits_then() {
    let bed = Testbed::new();
    let block = 2 * MIB;
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB"), WAIT]);
    let library = cc(
        &app("nothing_to_do.c"),
        "libc10_cuda.so",
        &["-shared", "-fPIC", "-w"],
    );
    client.ok(&format!("load {}", library.display()));
    keep_hope(&mut client);
    client.ok(&format!("alloc a {}", 6 * MIB));
    client.ok(&format!("alloc b {block}"));
    // The program empties its cache, and its next attempt succeeds.
    client.denied(&format!("alloc c {block}"));
    client.ok("free b");
    client.ok(&format!("alloc c {block}"));
    // Its cache is empty, so its next attempt waits.
    client.denied(&format!("alloc d {block}"));
    client.begin(&format!("alloc d {block}"));
    waits(&client);
    set_quota(&bed, &client, QuotaValue::Unlimited);
    assert_eq!(client.end(), 0);
    // It never allocates so little, so this is another library's, which would fail.
    set_quota(&bed, &client, QuotaValue::Bytes(MIB));
    client.begin(&format!("alloc small {}", MIB / 8));
    waits(&client);
    set_quota(&bed, &client, QuotaValue::Unlimited);
    assert_eq!(client.end(), 0);
    // Pools belong to the driver: no library keeps a cache of them.
    set_quota(&bed, &client, QuotaValue::Bytes(MIB));
    set_quota(&bed, &client, QuotaValue::Bytes(5 * MIB));
    client.begin("async e 1");
    waits(&client);
    set_quota(&bed, &client, QuotaValue::Unlimited);
    assert_eq!(client.end(), 0);
}

#[test]
fn each_wait_is_told_with_its_end() {
    let bed = Testbed::new();
    let variables = [
        ("GPUSHARE_MEMORY", "1MiB"),
        ("GPUSHARE_ON_FULL", "wait=10ms"),
    ];
    let mut client = Client::start(&bed, &variables);
    client.ok(&format!("alloc a {MIB}"));
    client.denied("alloc b 1");
    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    let mut told = Vec::new();
    while let Some(event) = reader.next(segments.state()) {
        told.extend(event.ok().map(|event| event.kind));
    }
    let from = told
        .iter()
        .position(|kind| *kind == EventKind::MemoryWait)
        .expect("told");
    let after = [
        EventKind::MemoryWait,
        EventKind::MemoryDone,
        EventKind::Denial,
    ];
    assert_eq!(told[from..], after);
}
