//! Memory that copies leave on the devices leaves by the driver's checkpoint after the time that the operator sets, and comes back first.

use std::time::Duration;

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Phase, Why};

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE};
use crate::ends::killed_and_followed;
use crate::refusals::world;
use crate::swap::{has_all, holding};
use crate::turns::take_turns;

const CARD: &str = "[[device]]\nmemory = \"1GiB\"\ncontext = \"100MiB\"\n";
const SIZES: [u64; 2] = [8 * MIB, 24 * MIB];

fn card(more: &str) -> (tempfile::NamedTempFile, Testbed) {
    let (file, bed) = world(&format!("{CARD}{more}"));
    take_turns(&bed, "off deep-after=1s");
    (file, bed)
}

impl Client<'_> {
    /// Waits until the context has left too.
    fn is_deep(&self) {
        eventually("its context has left", PATIENCE, || {
            let residence = self.residence();
            residence.phase == Phase::Evicted && residence.is_checkpoint
        });
    }
}

#[test]
fn the_context_of_a_process_that_stays_on_the_host_leaves_too_and_all_bytes_come_back() {
    let (_file, bed) = card("");
    let mut client = holding(&bed, &[], &SIZES);
    client.ok("alloc small 4096");
    client.ok("write small 9 1024");
    let mut other = Client::start(&bed, &[]);
    let free = other.ok("info")[0];
    for _ in 0..3 {
        take_turns(&bed, "off deep-after=1h");
        client.evict(&bed);
        eventually("it is said before", PATIENCE, || {
            let residence = client.residence();
            residence.deep_at_ns > residence.since_ns && residence.deep_ns > 0
        });
        assert!(!client.residence().is_checkpoint);
        let copied = other.ok("info")[0];
        take_turns(&bed, "off deep-after=1s");
        client.is_deep();
        assert!(other.ok("info")[0] >= copied + 96 * MIB, "the context");
        let all = SIZES.iter().sum::<u64>() + 4096;
        assert_eq!((client.used(), client.evicted_bytes()), (0, all));
        assert!(client.residence().host_bytes >= all + 96 * MIB);
        assert_eq!(client.residence().deep_at_ns, 0);
        for query in ["info", "call cuStreamQuery 0"] {
            client.ok(query);
        }
        assert!(client.residence().is_checkpoint, "a query wakes nothing");
        client.wish(&bed, Wish::Resume);
        assert_eq!(client.ok("read small 1024"), [9, 9]);
        has_all(&mut client, &SIZES);
        assert_eq!((client.used(), client.evicted_bytes()), (all, 0));
        assert_eq!(other.ok("info")[0], free);
    }
}

#[test]
fn unless_the_operator_says_so_no_context_leaves() {
    let (_file, bed) = card("");
    take_turns(&bed, "off deep-after=never");
    let mut client = holding(&bed, &[], &SIZES);
    client.evict(&bed);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!client.residence().is_checkpoint);
    assert_eq!(client.residence().deep_at_ns, 0);
    take_turns(&bed, "off deep-after=1s");
    client.is_deep();
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &SIZES);
}

#[test]
fn where_the_copies_find_no_room_the_context_is_back_and_the_process_waits() {
    let (_file, bed) = card("[checkpoint]\nback = \"25MiB\"");
    let mut client = holding(&bed, &[], &SIZES);
    let mut foreign = Client::start_bare(&bed, &[("GPUSHARE_DISABLE", "1")]);
    for command in ["init", "device 0"] {
        foreign.ok(command);
    }
    for round in 0..2 {
        client.evict(&bed);
        client.is_deep();
        client.wish(&bed, Wish::Resume);
        client.begin("read a0 1000");
        client.reaches(Phase::Restoring);
        // The context has its room, and is on its way for four seconds.
        foreign.ok(&format!("alloc a {}", 800 * MIB));
        eventually("the copies wait", PATIENCE, || {
            let residence = client.residence();
            residence.phase == Phase::Returning && !residence.is_checkpoint
        });
        let device = &client.process().devices[0];
        assert_eq!((device.used, device.evicted), (0, SIZES.iter().sum()));
        assert!(client.goes_on());
        foreign.ok("free a");
        assert_eq!(client.end(), 0, "round {round}");
        has_all(&mut client, &SIZES);
    }
}

#[test]
fn a_request_on_the_way_is_answered() {
    let (_file, bed) = card("[checkpoint]\nout = \"200MiB\"");
    let mut client = holding(&bed, &[], &SIZES);
    for _ in 0..2 {
        let before = client.beginnings(&bed, Phase::Evicting);
        client.evict(&bed);
        client.begins(&bed, Phase::Evicting, before + 1);
        client.wish(&bed, Wish::Resume);
        has_all(&mut client, &SIZES);
    }
}

#[test]
fn what_a_checkpoint_would_lose_keeps_the_context_and_is_said() {
    let (_file, bed) = card("");
    let mut client = holding(&bed, &[], &SIZES);
    client.ok(&format!("managed m {MIB}"));
    client.evict(&bed);
    eventually("it is said", PATIENCE, || {
        client.residence().why == Some(Why::Managed)
    });
    let residence = client.residence();
    assert_eq!(residence.phase, Phase::Evicted);
    assert_eq!((residence.deep_at_ns, residence.is_checkpoint), (0, false));
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &SIZES);
}

#[test]
fn a_lock_that_fails_leaves_the_copies_as_they_were() {
    let (_file, bed) = card("[mishaps]\ncheckpoint = \"lock\"");
    let mut client = holding(&bed, &[], &SIZES);
    client.evict(&bed);
    eventually("it is said", PATIENCE, || {
        client.residence().why == Some(Why::Busy)
    });
    client.ok("info");
    assert!(!client.residence().is_checkpoint);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &SIZES);
}

#[test]
fn a_step_that_fails_for_good_is_said_and_calls_get_an_error() {
    for (step, why) in [
        ("checkpoint", Why::CheckpointFailed),
        ("restore", Why::RestoreFailed),
    ] {
        let (_file, bed) = card(&format!("[mishaps]\ncheckpoint = \"{step}\""));
        let mut client = holding(&bed, &[], &SIZES);
        client.evict(&bed);
        if step == "restore" {
            client.is_deep();
        }
        client.wish(&bed, Wish::Resume);
        if step == "restore" {
            assert_ne!(client.code("synchronize"), 0);
        }
        client.reaches(Phase::Lost);
        assert_eq!(client.residence().why, Some(why));
        assert_ne!(client.code("synchronize"), 0);
    }
}

#[test]
fn a_kill_at_any_step_leaves_the_card_to_the_others() {
    let (_file, bed) = card("[checkpoint]\nout = \"500MiB\"\nback = \"500MiB\"");
    for (phase, delay) in [
        (Phase::Evicting, 0),
        (Phase::Evicting, 100),
        (Phase::Evicted, 0),
        (Phase::Restoring, 0),
        (Phase::Restoring, 100),
        (Phase::Restoring, 200),
    ] {
        let mut client = holding(&bed, &[], &SIZES);
        // Its slot may have been another client's.
        let before = [Phase::Evicting, Phase::Restoring].map(|one| client.beginnings(&bed, one));
        client.evict(&bed);
        // By copies, then the context.
        client.begins(&bed, Phase::Evicting, before[0] + 1);
        if phase != Phase::Evicting {
            client.is_deep();
        }
        if phase == Phase::Restoring {
            client.wish(&bed, Wish::Resume);
            client.begin("synchronize");
            client.begins(&bed, phase, before[1]);
        }
        std::thread::sleep(Duration::from_millis(delay));
        let mut next = killed_and_followed(&bed, &mut client);
        next.watched.say("quit");
        eventually("it ends", PATIENCE, || next.watched.ended());
    }
}
