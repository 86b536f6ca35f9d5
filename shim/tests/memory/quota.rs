use std::{io::Write, time::Duration};

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Change, EventKind, EventReader, QuotaValue, Segments, Source, clock};

use crate::client::{Client, MIB, look};

pub fn set_quota(bed: &Testbed, client: &Client<'_>, value: QuotaValue) {
    let operator = shm_layout::Operator::open(bed.dir()).expect("our own segment");
    let slot = client.process().slot;
    let change = Change::ProcessQuota {
        slot,
        device: None,
        value,
        until: None,
    };
    operator
        .edit(None, &change, clock::now())
        .expect("a valid edit");
}

#[test]
fn an_allocation_is_denied_at_the_byte_and_the_denial_is_published() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1MiB")]);
    client.ok(&format!("alloc a {}", MIB - 1));
    client.denied("alloc b 2");
    client.ok("alloc b 1");
    client.denied("alloc c 1");
    client.denied("managed c 1");
    assert_eq!(client.used(), MIB);
    let device = &client.process().devices[0];
    assert_eq!(
        (device.counters.denials, device.counters.denied_bytes),
        (3, 4)
    );
    assert_eq!(
        (device.quota.bytes, device.quota.source),
        (Some(MIB), Source::LaunchEnv)
    );

    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    let mut denied = Vec::new();
    while let Some(event) = reader.next(segments.state()) {
        denied.extend(event.ok().filter(|event| event.kind == EventKind::Denial));
    }
    let told: Vec<_> = denied
        .iter()
        .map(|event| (event.arg0, event.arg1))
        .collect();
    assert_eq!(told, [(2, MIB), (1, MIB), (1, MIB)]);
    assert_ne!(denied[0].call, denied[2].call, "the call is named");
}

#[test]
fn a_quota_lowered_while_it_runs_denies_the_next_allocation_and_a_raise_lets_it_go_on() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    let mut other = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    set_quota(&bed, &client, QuotaValue::Bytes(MIB));
    client.denied("alloc b 1");
    other.ok(&format!("alloc b {}", 8 * MIB));
    assert_eq!(client.ok("info")[0], 0, "over quota there is nothing free");
    set_quota(&bed, &client, QuotaValue::Bytes(3 * MIB));
    client.ok(&format!("alloc b {MIB}"));
    assert_eq!(client.ok("info"), [MIB, 3 * MIB]);
    let device = client.process().devices.remove(0);
    assert_eq!(
        (device.quota.bytes, device.quota.source),
        (Some(3 * MIB), Source::Operator)
    );
}

#[test]
fn a_quota_below_use_kills_nobody() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {}", 4 * MIB));
    set_quota(&bed, &client, QuotaValue::Bytes(MIB));
    client.denied("alloc b 1");
    assert_eq!(client.used(), 4 * MIB);
    assert_eq!(client.ok("info"), [0, MIB]);
    client.ok("free a");
    client.ok("alloc b 1");
}

#[test]
fn a_killed_process_gives_its_bytes_back() {
    let bed = Testbed::new();
    let mut doomed = Client::start(&bed, &[]);
    doomed.ok(&format!("alloc a {}", 64 * MIB));
    let slot = doomed.process().slot;
    let mut witness = Client::start(&bed, &[]);
    drop(doomed); // the testbed kills the process
    eventually(
        "the dead process's slot is free",
        Duration::from_secs(60),
        || {
            look(&bed)
                .processes
                .iter()
                .all(|process| process.slot != slot)
        },
    );
    witness.ok("alloc b 1");
}

#[test]
fn half_of_a_device_is_half_of_its_memory() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "0:1MiB,1:50%")]);
    let whole = look(&bed).devices[0].total_bytes;
    assert_eq!(client.ok("total 0")[0], MIB);
    assert_eq!(client.ok("total 1")[0], whole / 2);
    client.denied(&format!("alloc a {}", MIB + 1));
    client.ok("device 1");
    client.ok(&format!("alloc a {}", MIB + 1));
}

#[test]
fn a_limit_whose_segment_is_overwritten_is_kept_by_refusing_what_is_allocated_from_then_on() {
    let bed = Testbed::new();
    let mut limited = Client::start(&bed, &[("GPUSHARE_MEMORY", "64MiB")]);
    let mut free = Client::start(&bed, &[]);
    for client in [&mut limited, &mut free] {
        client.ok(&format!("alloc a {MIB}"));
        client.ok("pool-default p 0");
    }
    let state = bed.dir().join("state");
    let length = std::fs::metadata(&state).expect("the segment").len();
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(&state)
        .expect("our own segment");
    file.write_all(&vec![0xa5; length as usize])
        .expect("written over");
    for client in [&limited, &free] {
        eventually("it is said", Duration::from_secs(30), || {
            client.watched.stderr().contains("overwritten")
        });
    }
    for command in [
        "alloc b 1",
        "managed b 1",
        "async b 1",
        "create b 2097152 0",
    ] {
        limited.denied(command);
        free.ok(command);
    }
    limited.ok("free a");
    let said = limited.watched.stderr();
    assert!(said.contains("its allocations are refused"), "{said}");
    assert!(!free.watched.stderr().contains("refused"));
}
