//! Damage from outside: sizes that change faster than the dashboard draws, and a state file that every tenant may write.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use gpushare_testbed::eventually;

use crate::cli_support::World;
use crate::session::{LIMIT, Session};

/// A repeatable sequence of random numbers.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[test]
fn a_storm_of_sizes_ends_with_the_whole_picture() {
    let world = World::new();
    let _actor = world.actor("trainer");
    let mut session = Session::start(world.dir(), &[], &[]);
    session.wait_for("trainer");
    let mut noise = Noise(1);
    for _ in 0..200 {
        session.resize(noise.next(150) as u16, noise.next(70) as u16);
    }
    session.resize(0, 0);
    session.resize(120, 40);
    let before = session.count("gpushare-top");
    eventually("it is drawn anew", LIMIT, || {
        session.press("\x0c");
        session.count("gpushare-top") > before
    });
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn a_hostile_label_and_a_hostile_filter_are_drawn_escaped() {
    let world = World::new();
    let actor = world.actor("a\u{202e}\u{200b}\u{9b}31mb\u{7}");
    actor.enter(0);
    let config = world.dir().join("top.toml");
    std::fs::write(&config, "filter = \"name!=x\u{202e}\u{200b}\"\n").unwrap();
    let config = config.to_str().unwrap();
    let mut session = Session::start(world.dir(), &["-d", "0.05", "--config", config], &[]);
    session.wait_for("a\\u{202e}");
    session.wait_for("x\\u{202e}\\u{200b}");
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
    let seen = session.seen();
    assert!(!seen.contains(['\u{202e}', '\u{200b}', '\u{9b}', '\u{7}']));
}

#[test]
fn csv_for_a_terminal_is_escaped() {
    let world = World::new();
    let actor = world.actor("=a\u{202e}\u{1b}]0;x\u{7}");
    let slot = actor.registration.slot();
    let identity = shm_layout::Identity::of_self("=a\u{202e}\u{1b}]0;x\u{7}");
    shm_layout::trace::create(world.dir(), slot, &identity, 4096).unwrap();
    let guest = shm_layout::trace::Guest {
        calls: &["cuInit"],
        devices: &[],
    };
    let buffer = shm_layout::trace::Buffer::adopt(world.dir(), slot, guest).unwrap();
    buffer.denial(0, shm_layout::clock::now(), 1, 7, 0);
    let export = ["trace", "export", "all", "--format", "csv", "-o", "-"];
    let session = Session::of(world.command(&export), world.dir());
    session.wait_for("'=a\\u{202e}\\u{1b}]0;x\\u{7},");
    assert!(!session.seen().contains(['\u{202e}', '\u{1b}', '\u{7}']));
}

#[test]
fn a_state_file_full_of_noise_is_looked_at_and_left() {
    let world = World::new();
    let actor = world.actor("trainer");
    actor.enter(0);
    let mut session = Session::start(world.dir(), &["-d", "0.05"], &[]);
    session.wait_for("trainer");
    // It would free its slot in a file whose contents are now wrong.
    std::mem::forget(actor);
    let file = OpenOptions::new()
        .write(true)
        .open(world.dir().join("state"))
        .unwrap();
    let length = file.metadata().unwrap().len();
    let mut noise = Noise(7);
    for round in 0..400_u64 {
        let bytes: Vec<u8> = (0..256).map(|_| noise.next(256) as u8).collect();
        // The first kilobytes contain the used slots and the devices; the rest is mostly empty.
        let reach = if round % 2 == 0 {
            length.min(1 << 16)
        } else {
            length
        };
        file.write_all_at(&bytes, noise.next(reach - 256)).unwrap();
        if round % 40 == 0 {
            let drawn = session.seen().len();
            for key in [
                "m", "v", "\x1b", "\r", "\x1b", "G", "e", "\x1b", "p", "\x1b", "l",
            ] {
                session.press(key);
            }
            eventually("it goes on", LIMIT, || session.seen().len() > drawn);
        }
    }
    session.press("\x1b\x1b");
    eventually("it ends when asked to", LIMIT, || {
        session.press("q");
        session.has_ended()
    });
    assert_eq!(session.end().code(), Some(0));
}
