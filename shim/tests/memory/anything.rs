//! Whatever is allocated and freed, in whatever order: the ledger is the sum of what is held, and nothing is granted
//! above the quota.

use gpushare_testbed::Testbed;

use crate::client::{Client, MIB, OUT_OF_MEMORY};

const QUOTA: u64 = 24 * MIB;
const STEPS: u64 = 1500;

/// A sequence that looks random and is the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What is asked for, what it holds, and what frees it.
fn piece(dice: &mut Dice, name: &str, pitch: u64) -> (String, u64, &'static str) {
    let bytes = 1 + dice.roll(MIB);
    let (width, height) = (1 + dice.roll(300), dice.roll(300));
    match dice.roll(8) {
        0 => (format!("alloc {name} {bytes}"), bytes, "free"),
        1 => (format!("managed {name} {bytes}"), bytes, "free"),
        2 => (format!("async {name} {bytes}"), bytes, "free-async"),
        3 => (format!("async-ptsz {name} {bytes}"), bytes, "free"),
        4 => (format!("create {name} {} 0", 2 * MIB), 2 * MIB, "release"),
        5 => (
            format!("array {name} {width} {height} 0x20 2"),
            width * height.max(1) * 8,
            "array-destroy",
        ),
        6 => (
            format!("array3d {name} {width} 7 {} 0x10 1 1", height + 1),
            width * 7 * (height + 1) * 2,
            "array-destroy",
        ),
        _ => (
            format!("pitch {name} {width} {}", height + 1),
            width.next_multiple_of(pitch) * (height + 1),
            "free",
        ),
    }
}

#[test]
fn the_ledger_is_the_sum_of_what_is_held() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &QUOTA.to_string())]);
    let pitch = client.ok("pitch probe 1 1")[0];
    client.ok("free probe");
    let mut dice = Dice(7);
    let mut held: Vec<(String, u64, &str)> = Vec::new();
    let mut denied = 0;
    for step in 0..STEPS {
        let sum: u64 = held.iter().map(|(_, bytes, _)| bytes).sum();
        if !held.is_empty() && dice.roll(5) < 2 {
            let (name, _, give) = held.swap_remove(dice.roll(held.len() as u64) as usize);
            client.ok(&format!("{give} {name}"));
            continue;
        }
        let name = format!("n{}", step % 200);
        if held.iter().any(|(taken, ..)| *taken == name) {
            continue;
        }
        let (command, bytes, give) = piece(&mut dice, &name, pitch);
        match client.code(&command) {
            0 => {
                assert!(sum + bytes <= QUOTA, "{command} with {sum} held");
                held.push((name, bytes, give));
            }
            OUT_OF_MEMORY => {
                assert!(sum + bytes > QUOTA, "{command} with {sum} held");
                denied += 1;
            }
            code => panic!("{command}: {code}"),
        }
        if step % 50 == 0 {
            assert_eq!(
                client.used(),
                held.iter().map(|(_, bytes, _)| bytes).sum::<u64>(),
                "after {command}"
            );
        }
    }
    assert!(denied > 20, "the quota was felt: {denied}");
    for (name, _, give) in held {
        client.ok(&format!("{give} {name}"));
    }
    assert_eq!(client.used(), 0);
}
