//! Random allocations and frees, in any order, granted or refused: the ledger is the sum of the memory held, no grant exceeds
//! the quota, and at the end nothing is left.

use gpushare_testbed::Testbed;

use crate::client::{Client, MIB, OUT_OF_MEMORY};

const QUOTA: u64 = 16 * MIB;
const STEPS: u64 = 1200;

/// A repeatable sequence of random numbers.
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

/// A piece of memory: the commands that make it, of which the last one allocates, and the command that frees it. `undo` reverts
/// the earlier commands if the last is refused.
struct Piece {
    name: String,
    make: Vec<String>,
    bytes: u64,
    give: Vec<String>,
    undo: Vec<String>,
}

fn piece(dice: &mut Dice, place: u64, pitch: u64) -> Piece {
    let name = format!("n{place}");
    let bytes = 1 + dice.roll(4 * MIB);
    let (width, height) = (1 + dice.roll(300), dice.roll(300));
    let granule = 2 * MIB;
    let mut undo = Vec::new();
    let (make, bytes, give) = match dice.roll(12) {
        0 => (vec![format!("alloc {name} {bytes}")], bytes, vec!["free"]),
        1 => (vec![format!("managed {name} {bytes}")], bytes, vec!["free"]),
        2 => (
            vec![format!("async {name} {bytes}")],
            bytes,
            vec!["free-async"],
        ),
        3 => (
            vec![format!("async-ptsz {name} {bytes}")],
            bytes,
            vec!["free"],
        ),
        4 => (
            vec![format!("pool-alloc {name} pool {bytes}")],
            bytes,
            vec!["free-async"],
        ),
        5 => (
            vec![format!("create {name} {granule} 0")],
            granule,
            vec!["release"],
        ),
        6 => (
            vec![format!("array {name} {width} {height} 0x20 2")],
            width * height.max(1) * 8,
            vec!["array-destroy"],
        ),
        7 => (
            vec![format!("array3d {name} {width} 7 {} 0x10 1 1", height + 1)],
            width * 7 * (height + 1) * 2,
            vec!["array-destroy"],
        ),
        8 => (
            vec![format!("mipmapped {name} 64 64 {} 0x20 1 1 2", height + 1)],
            (64 * 64 + 32 * 32) * (height + 1) * 4,
            vec!["mipmapped-destroy"],
        ),
        9 => (
            vec![format!("pitch {name} {width} {}", height + 1)],
            width.next_multiple_of(pitch) * (height + 1),
            vec!["free"],
        ),
        10 => {
            // An allocation by a graph's launch that the graph does not free.
            let graph = vec![
                format!("graph g-{name}"),
                format!("graph-alloc node g-{name} {bytes} {name}"),
                format!("graph-instantiate x-{name} g-{name}"),
                format!("graph-launch x-{name} s"),
            ];
            undo = vec![
                format!("graph-exec-destroy x-{name}"),
                format!("graph-destroy g-{name}"),
            ];
            (graph, bytes, vec!["free"])
        }
        _ => {
            // A mapping whose handle is released.
            let segment = vec![
                format!("map va {} {granule} h", place * granule),
                "release h".to_owned(),
            ];
            let make = [vec![format!("create h {granule} 0")], segment].concat();
            let unmap = format!("unmap va {} {granule}", place * granule);
            return Piece {
                name,
                make,
                bytes: granule,
                give: vec![unmap],
                undo,
            };
        }
    };
    let mut give: Vec<_> = give
        .iter()
        .map(|command| format!("{command} {name}"))
        .collect();
    if !undo.is_empty() {
        give.extend(undo.iter().cloned());
        give.push("graph-trim".to_owned());
    }
    Piece {
        name,
        make,
        bytes,
        give,
        undo,
    }
}

impl Piece {
    /// Makes the piece. Returns true if it was granted; only memory may be refused.
    fn make(&self, client: &mut Client<'_>) -> bool {
        for command in &self.make {
            match client.code(command) {
                0 => {}
                OUT_OF_MEMORY => {
                    self.undo.iter().for_each(|command| _ = client.ok(command));
                    return false;
                }
                code => panic!("{command}: {code}; {}", client.watched.stderr()),
            }
        }
        true
    }

    fn give(&self, client: &mut Client<'_>) {
        self.give.iter().for_each(|command| _ = client.ok(command));
    }
}

/// Calls that every driver refuses.
const WRONG: [&str; 6] = [
    "alloc wrong 0",
    "create wrong 12345 0",
    "array wrong 0 5 0x20 1",
    "array3d wrong 8 8 8 0x20 3 0",
    "free-address 12345678",
    "graph-launch wrong s",
];

/// Allocates and frees at random. Returns the numbers of grants and refusals, and the excess over `most`.
fn run(client: &mut Client<'_>, seed: u64, most: Option<u64>) -> (u64, u64) {
    let pitch = client.ok("pitch probe 1 1")[0];
    for command in [
        "free probe",
        "stream s",
        "pool pool 0 0",
        "reserve va 134217728",
    ] {
        client.ok(command);
    }
    let mut dice = Dice(seed);
    let mut held: Vec<Piece> = Vec::new();
    let (mut granted, mut refused) = (0, 0);
    let sum = |held: &[Piece]| held.iter().map(|piece| piece.bytes).sum::<u64>();
    for step in 0..STEPS {
        if !held.is_empty() && dice.roll(5) < 2 {
            let piece = held.swap_remove(dice.roll(held.len() as u64) as usize);
            piece.give(client);
        } else if dice.roll(8) == 0 {
            let wrong = WRONG[dice.roll(WRONG.len() as u64) as usize];
            assert_ne!(client.code(wrong), 0, "{wrong}");
        } else {
            let piece = piece(&mut dice, step % 40, pitch);
            if held.iter().any(|taken| taken.name == piece.name) {
                continue;
            }
            let after = sum(&held) + piece.bytes;
            let within = piece.make(client);
            if let Some(most) = most {
                assert_eq!(within, after <= most, "{:?} to make it {after}", piece.make);
            }
            if within {
                granted += 1;
                held.push(piece);
            } else {
                refused += 1;
            }
        }
        if step % 20 == 0 {
            assert_eq!(client.used(), sum(&held), "after step {step}");
        }
    }
    for piece in held {
        piece.give(client);
    }
    assert_eq!(client.used(), 0, "nothing is left");
    (granted, refused)
}

#[test]
fn the_ledger_is_the_sum_of_what_is_held() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &QUOTA.to_string())]);
    let (granted, denied) = run(&mut client, 7, Some(QUOTA));
    assert!(
        granted > 100 && denied > 20,
        "{granted} granted, {denied} denied"
    );
}

#[test]
fn what_the_driver_refuses_is_not_charged() {
    let bed = Testbed::with_scenario("small");
    let mut client = Client::start(&bed, &[]);
    let (granted, refused) = run(&mut client, 11, None);
    assert!(
        granted > 100 && refused > 5,
        "{granted} granted, {refused} refused"
    );
    assert_eq!(
        client.process().devices[0].counters.denials,
        0,
        "all by the driver"
    );
}
