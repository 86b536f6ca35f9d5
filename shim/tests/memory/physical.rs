use gpushare_testbed::Testbed;
use proptest::prelude::*;

use crate::client::{Client, MIB};

#[test]
fn released_memory_stays_charged_while_it_is_mapped() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("create h {} 0", 4 * MIB));
    assert_eq!(client.used(), 4 * MIB);
    client.ok(&format!("reserve va {}", 16 * MIB));
    client.ok(&format!("map va 0 {} h", 4 * MIB));
    client.ok("release h");
    assert_eq!(client.used(), 4 * MIB, "the mapping keeps it");
    client.ok(&format!("unmap va 0 {}", 4 * MIB));
    assert_eq!(client.used(), 0);
}

#[test]
fn unmapped_memory_stays_charged_while_a_handle_names_it() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("create h {} 0", 2 * MIB));
    client.ok(&format!("reserve va {}", 2 * MIB));
    client.ok(&format!("map va 0 {} h", 2 * MIB));
    client.ok(&format!("retain again va {}", MIB));
    client.ok(&format!("unmap va 0 {}", 2 * MIB));
    client.ok("release h");
    assert_eq!(client.used(), 2 * MIB, "the retained handle keeps it");
    client.ok("release again");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_segment_that_grows_piece_by_piece_is_charged_piece_by_piece() {
    // The pattern of PyTorch's expandable segments: one reservation, in which pieces are created, mapped and released at once.
    let bed = Testbed::new();
    let quota = (6 * MIB).to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok(&format!("reserve va {}", 64 * MIB));
    for piece in 0..3 {
        client.ok(&format!("create h {} 0", 2 * MIB));
        client.ok(&format!("map va {} {} h", piece * 2 * MIB, 2 * MIB));
        client.ok("release h");
    }
    client.denied(&format!("create h {} 0", 2 * MIB));
    client.ok(&format!("unmap va {} {}", 2 * MIB, 4 * MIB));
    assert_eq!(client.used(), 2 * MIB, "two mappings in one range");
    client.ok(&format!("create h {} 0", 2 * MIB));
    client.ok("release h");
    assert_eq!(client.used(), 2 * MIB);
}

#[test]
fn memory_is_charged_to_the_device_it_is_on() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("create h {} 1", 2 * MIB));
    assert_eq!((client.used_on(0), client.used_on(1)), (0, 2 * MIB));
}

#[test]
fn unmapping_gives_back_all_that_is_mapped_in_a_range_with_holes() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("reserve va {}", 64 * MIB));
    for (handle, at) in [("a", 0), ("b", 8), ("c", 20)] {
        client.ok(&format!("create {handle} {} 0", 4 * MIB));
        client.ok(&format!("map va {} {} {handle}", at * MIB, 4 * MIB));
        client.ok(&format!("release {handle}"));
    }
    assert_ne!(
        client.code(&format!("unmap va 0 {}", 10 * MIB)),
        0,
        "it cuts b"
    );
    assert_eq!(client.used(), 12 * MIB);
    client.ok(&format!("unmap va {} {}", 2 * MIB + 2 * MIB, 60 * MIB));
    assert_eq!(client.used(), 4 * MIB, "b and c, and the holes around them");
    client.ok(&format!("unmap va 0 {}", 64 * MIB));
    assert_eq!(client.used(), 0);
}

#[test]
fn what_another_process_made_is_shown_where_it_is_mapped_and_charged_to_nobody_here() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("create h {} 0", 4 * MIB));
    client.ok("export file h");
    client.ok("import i file");
    client.ok("release h");
    client.ok(&format!("reserve va {}", 8 * MIB));
    client.ok(&format!("map va 0 {} i", 4 * MIB));
    let imported = |client: &Client<'_>| client.process().devices[0].counters.imported_bytes;
    assert_eq!((client.used(), imported(&client)), (0, 4 * MIB));
    client.ok("release i");
    client.ok(&format!("unmap va 0 {}", 4 * MIB));
    assert_eq!((client.used(), imported(&client)), (0, 0));
}

#[test]
fn our_own_memory_imported_by_its_name_is_charged_once_and_until_the_last_handle() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("create h 4096 0");
    client.ok("export-fabric h");
    client.ok("import-fabric i");
    assert_eq!(client.used(), 4096);
    client.ok("release h");
    assert_eq!(client.used(), 4096, "the imported handle keeps it");
    client.ok("release i");
    assert_eq!(client.used(), 0);
}

/// A step of a program on two devices. The object that it names may be of any kind, or destroyed. Handles are numbered; the
/// last two are multicast objects at first. Positions and lengths are in granules.
#[derive(Clone, Debug)]
enum Step {
    Create { handle: u8, length: u64, device: u8 },
    Team { handle: u8 },
    Release { handle: u8 },
    Map { at: u64, length: u64, handle: u8 },
    Unmap { at: u64, length: u64 },
    Retain { handle: u8, at: u64 },
    Import { handle: u8, from: u8 },
    Bind { team: u8, at: u64, handle: u8 },
    BindAt { team: u8, at: u64, from: u64 },
    Unbind { team: u8, device: u8, at: u64 },
}

const HANDLES: u8 = 6;
const TEAMS: std::ops::Range<u8> = 4..6;
const PLACES: u64 = 10;
const GRANULE: u64 = 2 * MIB;

fn step() -> impl Strategy<Value = Step> {
    let handle = || 0..HANDLES;
    let (device, at, length) = (|| 0..2_u8, || 0..PLACES, || 1..4_u64);
    prop_oneof![
        6 => (0..TEAMS.start, length(), device())
            .prop_map(|(handle, length, device)| Step::Create { handle, length, device }),
        1 => TEAMS.prop_map(|handle| Step::Team { handle }),
        4 => handle().prop_map(|handle| Step::Release { handle }),
        6 => (at(), length(), handle())
            .prop_map(|(at, length, handle)| Step::Map { at, length, handle }),
        2 => (at(), 1..PLACES).prop_map(|(at, length)| Step::Unmap { at, length }),
        2 => (handle(), at()).prop_map(|(handle, at)| Step::Retain { handle, at }),
        1 => (handle(), handle()).prop_map(|(handle, from)| Step::Import { handle, from }),
        5 => (TEAMS, 0..3_u64, handle())
            .prop_map(|(team, at, handle)| Step::Bind { team, at, handle }),
        2 => (TEAMS, 0..3_u64, at()).prop_map(|(team, at, from)| Step::BindAt { team, at, from }),
        2 => (TEAMS, device(), 0..3_u64)
            .prop_map(|(team, device, at)| Step::Unbind { team, device, at }),
    ]
}

impl Step {
    /// Sends the step to the client; every result of the driver is allowed.
    fn run(&self, client: &mut Client<'_>) {
        let bytes = |granules: u64| granules * GRANULE;
        let command = match *self {
            Self::Create {
                handle,
                length,
                device,
            } => {
                format!("create h{handle} {} {device}", bytes(length))
            }
            Self::Team { handle } => return team(client, handle),
            Self::Release { handle } => format!("release h{handle}"),
            Self::Map { at, length, handle } => {
                format!("map va {} {} h{handle}", bytes(at), bytes(length))
            }
            Self::Unmap { at, length } => format!("unmap va {} {}", bytes(at), bytes(length)),
            Self::Retain { handle, at } => format!("retain h{handle} va {}", bytes(at)),
            Self::Import { handle, from } => {
                if client.code(&format!("export file h{from}")) != 0 {
                    return;
                }
                format!("import h{handle} file")
            }
            Self::Bind { team, at, handle } => {
                format!("bind h{team} {} h{handle} {GRANULE}", bytes(at))
            }
            Self::BindAt { team, at, from } => {
                format!("bind-at h{team} {} va {} {GRANULE}", bytes(at), bytes(from))
            }
            Self::Unbind { team, device, at } => {
                format!("unbind h{team} {device} {} {GRANULE}", bytes(at))
            }
        };
        client.code(&command);
    }
}

/// Makes a multicast object of three granules for both devices.
fn team(client: &mut Client<'_>, handle: u8) {
    client.ok(&format!("multicast h{handle} 2 {}", 3 * GRANULE));
    client.ok(&format!("multicast-add h{handle} 0"));
    client.ok(&format!("multicast-add h{handle} 1"));
}

/// Returns the bytes that the simulator has taken of each device.
fn taken(client: &mut Client<'_>) -> [u64; 2] {
    [1, 0].map(|device| {
        client.ok(&format!("device {device}"));
        let [free, total] = client.ok("info")[..] else {
            panic!("two numbers")
        };
        total - free
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Creates, releases, maps, unmaps, retains, imports and binds in any order, correctly and wrongly. At each step the ledger
    /// equals the memory in use on the device.
    #[test]
    fn the_ledger_is_the_drivers_own_sum_in_any_order(steps in prop::collection::vec(step(), 1..80)) {
        let bed = Testbed::with_scenario("two-gpus");
        let mut client = Client::start(&bed, &[]);
        client.ok("device 1");
        client.ok(&format!("reserve va {}", (PLACES + 4) * GRANULE));
        TEAMS.for_each(|handle| team(&mut client, handle));
        for (number, step) in steps.iter().enumerate() {
            step.run(&mut client);
            let [second, first] = taken(&mut client);
            let used = [0, 1].map(|device| client.used_on(device));
            prop_assert_eq!(used, [first, second], "after step {}: {:?}", number, step);
        }
    }
}
