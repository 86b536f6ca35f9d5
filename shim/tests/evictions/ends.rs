//! The end of a process that is evicted, or is being evicted: no process waits for it, and none of its state remains.

use std::time::Duration;

use gpushare_testbed::{Testbed, eventually};
use rustix::process::Signal;
use shm_layout::{Phase, Why};

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE, look};
use crate::refusals::world;

const SLOW: &str = "[[device]]\nmemory = \"1GiB\"\n[checkpoint]\nout = \"1GiB\"\nback = \"1GiB\"";

#[test]
fn a_process_that_ends_while_it_is_evicted_ends() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.evict(&bed);
    client.watched.say("quit");
    eventually("it ends", PATIENCE, || client.watched.ended());
    eventually("its slot is free", PATIENCE, || {
        look(&bed).processes.is_empty()
    });
}

/// Kills a process, and returns the next one on the device, which finds the card free and only its own slot taken.
pub fn killed_and_followed<'b>(bed: &'b Testbed, client: &mut Client<'_>) -> Client<'b> {
    client.watched.signal(Signal::KILL);
    eventually("it ends", PATIENCE, || client.watched.ended());
    let mut next = Client::start(bed, &[]);
    eventually("all of the card is free", PATIENCE, || {
        next.code(&format!("alloc a {}", 900 * MIB)) == 0
    });
    eventually("its slot is given back", PATIENCE, || {
        look(bed).processes.len() == 1
    });
    next
}

#[test]
fn a_process_that_is_killed_on_its_way_leaves_nothing() {
    for (delay, phase) in [
        (0, None),
        (100, Some(Phase::Evicting)),
        (200, Some(Phase::Evicted)),
        (300, Some(Phase::Restoring)),
    ] {
        let (_file, bed) = world(SLOW);
        let mut client = Client::start(&bed, &[]);
        client.ok(&format!("alloc a {}", 512 * MIB));
        client.wish(&bed, Wish::Evict);
        if let Some(phase) = phase {
            if phase == Phase::Restoring {
                client.reaches(Phase::Evicted);
                client.wish(&bed, Wish::Resume);
                client.watched.say("synchronize");
            }
            client.begins(&bed, phase, 0);
        }
        std::thread::sleep(Duration::from_millis(delay));
        let next = killed_and_followed(&bed, &mut client);
        next.evict(&bed);
    }
}

#[test]
fn a_checkpoint_that_fails_is_said_and_calls_get_an_error_instead_of_waiting() {
    let (_file, bed) =
        world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\ncheckpoint = \"checkpoint\"");
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.wish(&bed, Wish::Evict);
    client.reaches(Phase::Lost);
    assert_eq!(client.residence().why, Some(Why::CheckpointFailed));
    assert_eq!(client.residence().code, 999);
    assert_eq!(client.code("info"), 999);
    assert_eq!(client.code("submit a"), 999);
    assert_eq!(client.code("call cuStreamQuery 0"), 999);
    let said = client.watched.stderr();
    assert!(
        said.contains("is lost (1048576 bytes, driver error 999)"),
        "{said}"
    );
    client.watched.say("quit");
    eventually("it ends", PATIENCE, || client.watched.ended());
}

#[test]
fn a_restore_that_fails_is_said_and_calls_get_an_error_instead_of_waiting() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\ncheckpoint = \"restore\"");
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.code("read a 1"), 999);
    assert_eq!(client.residence().phase, Phase::Lost);
    assert_eq!(client.residence().why, Some(Why::RestoreFailed));
}

#[test]
fn what_the_operator_takes_back_in_time_does_not_happen() {
    let (_file, bed) = world(SLOW);
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {}", 256 * MIB));
    client.ok("write a 3 10");
    // An eviction is asked for during a restore and the reverse; in either order no data is lost.
    for _ in 0..4 {
        let before = client.beginnings(&bed, Phase::Evicting);
        client.wish(&bed, Wish::Evict);
        client.begins(&bed, Phase::Evicting, before);
        client.wish(&bed, Wish::Resume);
        assert_eq!(client.ok("read a 10"), [3, 3]);
    }
}
