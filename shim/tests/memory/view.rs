use gpushare_testbed::Testbed;

use crate::client::{Client, GIB, MIB};

const WAITS: (&str, &str) = ("GPUSHARE_ON_FULL", "wait");

/// Returns free and total memory according to the driver and to NVML.
fn seen(client: &mut Client<'_>) -> [u64; 4] {
    let (driver, nvml) = (client.ok("info"), client.ok("nvml 0"));
    [driver[0], driver[1], nvml[1], nvml[0]]
}

#[test]
fn without_a_quota_the_driver_speaks_for_itself() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    let before = client.ok("info");
    client.ok(&format!("alloc a {MIB}"));
    let after = client.ok("info");
    assert_eq!(before[1], after[1]);
    assert!(before[0] - after[0] >= MIB);
    assert!(client.ok("total 0")[0] >= after[1]);
}

#[test]
fn what_the_process_sees_is_its_quota() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    assert_eq!(client.ok("info"), [8 * MIB, 8 * MIB]);
    assert_eq!(client.ok("total 0"), [8 * MIB]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    assert_eq!(client.ok("info"), [5 * MIB, 8 * MIB]);
    client.ok("free a");
    assert_eq!(client.ok("info"), [8 * MIB, 8 * MIB]);
}

#[test]
fn null_arguments_are_the_drivers_to_judge() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    client.code("info-null");
    let (code, words) = client.ask("info-free");
    assert!(
        code != 0 || words == [(8 * MIB).to_string()],
        "{code} {words:?}"
    );
    assert_eq!(client.ok("info"), [8 * MIB, 8 * MIB]);
}

#[test]
fn a_quota_larger_than_the_device_changes_nothing() {
    let bed = Testbed::new();
    let plain = Client::start(&bed, &[]).ok("info");
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4TiB")]);
    assert_eq!(client.ok("info")[1], plain[1]);
    client.denied("alloc a 2199023255552");
    assert_eq!(client.used(), 0);
}

#[test]
fn nvml_agrees_with_the_quota_unless_it_is_told_not_to() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    client.ok(&format!("alloc a {MIB}"));
    let [total, free, used, total_v2, reserved, free_v2, used_v2] = client.ok("nvml 0")[..] else {
        panic!("seven numbers")
    };
    assert_eq!((total, free, used), (8 * MIB, 7 * MIB, MIB));
    assert_eq!((total_v2, free_v2, used_v2), (8 * MIB, 7 * MIB, MIB));
    assert!(reserved + free_v2 + used_v2 <= total_v2);
    assert!(client.ok("nvml 1")[0] >= 8 * MIB);

    let mut client = Client::start(
        &bed,
        &[("GPUSHARE_MEMORY", "8MiB"), ("GPUSHARE_NVML_VIEW", "0")],
    );
    assert!(client.ok("nvml 0")[0] > 8 * MIB);
    let mut client = Client::start(&bed, &[]);
    assert!(client.ok("nvml 0")[0] > 8 * MIB);
}

#[test]
fn what_a_waiting_process_sees_depends_on_its_quota_and_its_own_memory_alone() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8GiB"), WAITS]);
    let mut other = Client::start(&bed, &[]);
    for taken in [0, 3 * GIB] {
        if taken > 0 {
            client.ok(&format!("alloc a {taken}"));
        }
        let expected = [8 * GIB - taken, 8 * GIB, 8 * GIB - taken, 8 * GIB];
        assert_eq!(seen(&mut client), expected);
        other.ok(&format!("alloc b {}", 12 * GIB));
        assert_eq!(seen(&mut client), expected);
        other.ok("free b");
        assert_eq!(seen(&mut client), expected);
    }
}

#[test]
fn without_a_quota_a_waiting_process_sees_the_device_as_if_it_were_alone() {
    let bed = Testbed::new();
    let mut other = Client::start(&bed, &[]);
    other.ok(&format!("alloc b {}", 12 * GIB));
    let mut client = Client::start(&bed, &[WAITS]);
    let [free, total, nvml_free, nvml_total] = seen(&mut client);
    assert_eq!((total, nvml_total), (16 * GIB, 16 * GIB));
    assert_eq!(free, nvml_free);
    assert!((15 * GIB..16 * GIB).contains(&free), "{free}");
    assert_eq!(client.ok("total 0"), [16 * GIB]);
    // The process waits for the memory that the view promises.
    client.begin(&format!("alloc a {}", 8 * GIB));
    assert!(client.goes_on());
    other.ok("free b");
    assert_eq!(client.end(), 0);
    assert_eq!(seen(&mut client)[0], free - 8 * GIB);
}

#[test]
fn a_process_that_does_not_wait_sees_what_others_leave_it() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8GiB")]);
    let mut other = Client::start(&bed, &[]);
    other.ok(&format!("alloc b {}", 12 * GIB));
    assert!(seen(&mut client)[0] <= 4 * GIB);
}

/// Sizes a cache as an inference server does: loads weights, measures what they took, and takes the rest of its share. Fails if the
/// free memory has grown at any time.
fn size_of_pool(bed: &Testbed) -> u64 {
    let mut server = Client::start(bed, &[WAITS]);
    let mut least = u64::MAX;
    let mut measure = |server: &mut Client<'_>| {
        let [free, total] = server.ok("info")[..] else {
            panic!("two numbers")
        };
        assert!(free <= least, "it grew from {least} to {free}");
        least = free;
        (free, total)
    };
    let (before, total) = measure(&mut server);
    server.ok(&format!("alloc weights {GIB}"));
    measure(&mut server);
    server.ok(&format!("alloc activations {}", 200 * MIB));
    let (after, _) = measure(&mut server);
    total / 10 * 9 - (before - after)
}

#[test]
fn two_servers_that_start_at_the_same_moment_get_equal_pools() {
    let bed = Testbed::new();
    for _ in 0..20 {
        let [one, two] = std::thread::scope(|scope| {
            let start = || scope.spawn(|| size_of_pool(&bed));
            [start(), start()].map(|server| server.join().expect("it measures"))
        });
        assert_eq!(one, two);
    }
}
