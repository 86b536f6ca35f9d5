//! A card whose memory is needed twice: a process that finds it full has idle processes evicted, and those are restored in the
//! same way.

use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, Watched, eventually};
use shm_layout::{Change, Operator, Phase, Segments, Set, ShareEdit, Why, ask_to_evict, clock};

use crate::Wish;
use crate::client::{Client, MIB, OUT_OF_MEMORY, PATIENCE, look};
use crate::refusals::world;
use crate::turns::moves;

const CARD: &str = "[[device]]\nmemory = \"1GiB\"";

pub fn edit(bed: &Testbed, change: &Change) {
    let operator = Operator::open(bed.dir()).expect("made at need");
    operator
        .edit(None, change, clock::now())
        .expect("a valid edit");
}

pub fn overcommit(bed: &Testbed, on: bool) {
    let change = Change::DeviceMemory {
        device: None,
        settings: shm_layout::DeviceEdit {
            overcommit: Set::To(on),
            ..shm_layout::DeviceEdit::default()
        },
    };
    edit(bed, &change);
}

/// Pauses or resumes the process. A paused process counts as idle at once and keeps its memory.
pub fn pause(bed: &Testbed, client: &Client<'_>, paused: bool) {
    let change = Change::ProcessShare {
        slot: client.process().slot,
        share: ShareEdit {
            paused: Set::To(paused),
            ..ShareEdit::default()
        },
    };
    edit(bed, &change);
}

/// Starts a client that holds this many MiB of a pattern.
pub fn holder<'b>(bed: &'b Testbed, mib: u64, variables: &[(&str, &str)]) -> Client<'b> {
    let mut client = Client::start(bed, variables);
    client.ok(&format!("alloc a {}", mib * MIB));
    client.ok("write a 7 1000");
    client
}

#[test]
fn who_finds_the_card_full_has_a_paused_process_evicted_and_that_one_comes_back_in_the_same_way() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut one = holder(&bed, 600, &[]);
    pause(&bed, &one, true);
    let mut two = Client::start(&bed, &[]);
    // With on-full=fail it does not wait for other memory, but it waits for an eviction.
    two.ok(&format!("alloc a {}", 600 * MIB));
    one.reaches(Phase::Evicted);
    assert_eq!(two.process().devices[0].counters.memory_waits, 1);
    two.ok("write a 8 1000");
    pause(&bed, &one, false);
    assert_eq!(one.ok("read a 1000"), [7, 7]);
    two.reaches(Phase::Evicted);
    one.ok("free a");
    assert_eq!(two.ok("read a 1000"), [8, 8]);
}

#[test]
fn a_newcomer_gets_its_context_on_a_card_that_is_filled_to_the_end() {
    let (_file, bed) = world(&format!("{CARD}\ncontext = \"100MiB\""));
    overcommit(&bed, true);
    let mut full = holder(&bed, 900, &[]);
    full.ok(&format!("alloc b {}", 24 * MIB));
    assert_eq!(full.code(&format!("alloc c {}", MIB)), OUT_OF_MEMORY);
    pause(&bed, &full, true);
    // A quota smaller than a context does not prevent the wait.
    let mut newcomer = Client::start(&bed, &[("GPUSHARE_MEMORY", "50MiB")]);
    newcomer.ok(&format!("alloc a {}", 50 * MIB));
    full.reaches(Phase::Evicted);
    overcommit(&bed, false);
}

#[test]
fn who_is_left_with_a_destroyed_context_gets_a_new_one_on_a_full_card() {
    let (_file, bed) = world(&format!("{CARD}\ncontext = \"100MiB\""));
    overcommit(&bed, true);
    let mut newcomer = Client::start(&bed, &[]);
    newcomer.ok("device-release 0");
    let mut full = holder(&bed, 900, &[]);
    full.ok(&format!("alloc b {}", 24 * MIB));
    assert_eq!(full.code(&format!("alloc c {}", MIB)), OUT_OF_MEMORY);
    pause(&bed, &full, true);
    // The runtime does so too where its first attempt failed half-way (H200, 580.159.04).
    newcomer.ok("device 0");
    full.reaches(Phase::Evicted);
    overcommit(&bed, false);
}

#[test]
fn an_allocation_leaves_room_for_the_contexts_of_others_while_they_can_leave() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let one = holder(&bed, 500, &[]);
    pause(&bed, &one, true);
    let mut two = Client::start(&bed, &[]);
    // 512 MiB would fit, with 12 MiB to spare.
    two.ok(&format!("alloc a {}", 512 * MIB));
    one.reaches(Phase::Evicted);
    // Nobody else can leave, so the last bytes are the program's.
    two.ok(&format!("alloc b {}", 500 * MIB));
}

#[test]
fn an_idle_process_goes_and_one_at_work_stays() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let (idle, mut busy) = (holder(&bed, 400, &[]), holder(&bed, 400, &[]));
    let mut newcomer = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    newcomer.begin(&format!("alloc a {}", 500 * MIB));
    eventually("the idle one is away", PATIENCE, || {
        busy.ok("submit a");
        idle.residence().phase == Phase::Evicted
    });
    assert_eq!(newcomer.end(), 0);
    assert_eq!(busy.residence().phase, Phase::Resident);
}

#[test]
fn nobody_goes_for_one_of_lower_priority_nor_if_it_would_not_be_enough_nor_when_it_is_off() {
    let (_file, bed) = world(CARD);
    let one = holder(&bed, 600, &[("GPUSHARE_PRIORITY", "5")]);
    pause(&bed, &one, true);
    let mut two = Client::start(&bed, &[]);
    let size = 600 * MIB;
    two.denied(&format!("alloc a {size}"));
    overcommit(&bed, true);
    two.denied(&format!("alloc a {size}"));
    let mut equal = Client::start(&bed, &[("GPUSHARE_PRIORITY", "5")]);
    // The 300 MiB of a pinned process stay, so at most 1024 - 300 MiB could become free. One at work counts as ready to leave until it
    // answers.
    let _stays = holder(&bed, 300, &[("GPUSHARE_PIN", "yes")]);
    assert_eq!(equal.code(&format!("alloc a {}", 800 * MIB)), OUT_OF_MEMORY);
    assert_eq!(one.residence().phase, Phase::Resident);
    equal.ok(&format!("alloc a {}", 500 * MIB));
    one.reaches(Phase::Evicted);
    let away = look(&bed).processes.into_iter().map(|one| one.residence);
    assert_eq!(away.filter(|one| one.phase == Phase::Evicted).count(), 1);
}

/// Starts a program that holds this many MiB and has a kernel of one minute at work.
pub fn at_work(bed: &Testbed, mib: u64) -> Watched {
    let mut program = holding(bed, mib);
    assert_eq!(program.ask("launch 60000000 1"), "ok");
    program
}

/// Starts a program that holds this many MiB and is told what to do by lines.
pub fn holding(bed: &Testbed, mib: u64) -> Watched {
    let mut command = bed.workload(&["--script"]);
    command.env("GPUSHARE_SWAPPABLE", "1");
    let mut program = Watched::spawn(&mut command);
    assert!(program.line().starts_with("ready"));
    assert_eq!(program.ask(&format!("alloc {mib}MiB")), "ok");
    program
}

#[test]
fn who_came_back_stays_as_long_as_its_memory_moved_and_that_is_seen() {
    // Eviction and restore take at least 2 s together.
    let (_file, bed) = world(&format!(
        "{CARD}\n[checkpoint]\nout = \"600MiB\"\nback = \"600MiB\""
    ));
    overcommit(&bed, true);
    let mut one = holder(&bed, 600, &[]);
    let mut two = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    one.evict(&bed);
    one.wish(&bed, Wish::Resume);
    assert_eq!(one.ok("read a 1000"), [7, 7]);
    let swap_ns = one.residence().swap_ns;
    assert!(swap_ns >= 1_600_000_000, "{swap_ns}");
    pause(&bed, &one, true);
    two.ok(&format!("alloc a {}", 600 * MIB));
    let (moves, slot) = (moves(&bed), one.process().slot.index);
    let last = |phase| {
        let mut moves = moves.iter().rev();
        moves
            .find(|one| (one.0, one.1) == (slot, phase))
            .expect("it moved")
            .2
    };
    let stayed_ns = last(Phase::Evicting) - last(Phase::Resident);
    assert!(stayed_ns >= swap_ns * 9 / 10, "{stayed_ns} of {swap_ns}");
    assert_ne!(look(&bed).devices[0].crowded_ns, 0, "it is noted");
    one.reaches(Phase::Evicted);
}

#[test]
fn a_request_counts_only_on_an_overcommitted_device_where_a_process_lacks_memory() {
    let (_file, bed) = world(CARD);
    let one = holder(&bed, 600, &[]);
    pause(&bed, &one, true);
    let segments = Segments::open_workload(bed.dir()).expect("ours");
    let stays_when_asked = || {
        ask_to_evict(&segments, one.process().slot, clock::now());
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(one.residence().phase, Phase::Resident);
    };
    overcommit(&bed, true);
    stays_when_asked();
    overcommit(&bed, false);
    let mut two = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    two.begin(&format!("alloc a {}", 600 * MIB));
    eventually("it waits", PATIENCE, || {
        two.process().devices[0].memory_wait.is_some()
    });
    stays_when_asked();
    overcommit(&bed, true);
    one.reaches(Phase::Evicted);
    assert_eq!(two.end(), 0);
}

#[test]
fn who_refuses_is_not_waited_for_long() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut managed = holder(&bed, 500, &[]);
    managed.ok(&format!("managed m {MIB}"));
    pause(&bed, &managed, true);
    let mut two = Client::start(&bed, &[]);
    two.denied(&format!("alloc a {}", 600 * MIB));
    assert_eq!(managed.residence().phase, Phase::Resident);
}

#[test]
fn a_process_that_refused_is_asked_again_soon_for_its_reason_may_be_over() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut managed = holder(&bed, 500, &[]);
    managed.ok(&format!("managed m {MIB}"));
    pause(&bed, &managed, true);
    let mut two = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    two.begin(&format!("alloc a {}", 600 * MIB));
    let began = Instant::now();
    managed.is_refused(Why::Managed);
    managed.ok("free m");
    assert_eq!(two.end(), 0);
    managed.reaches(Phase::Evicted);
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "not only half a minute after the refusal"
    );
}
