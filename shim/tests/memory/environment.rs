//! Variables of older tools, which have the older tools' effect; the segment shows which variable it was.

use gpushare_testbed::Testbed;
use shm_layout::{ALIASES, PolicyKind, Source};

use crate::client::{Client, GIB, MIB};

fn alias(name: &str) -> Source {
    let index = ALIASES
        .iter()
        .position(|alias| *alias == name)
        .expect("an alias");
    Source::Alias(u8::try_from(index).expect("few"))
}

#[test]
fn wrapper_max_memory_denies_the_byte_above() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("WRAPPER_MAX_MEMORY", "1048576")]);
    client.denied(&format!("alloc a {}", MIB + 1));
    client.ok(&format!("alloc a {MIB}"));
    assert_eq!(client.ok("info"), [0, MIB]);
    assert_eq!(
        client.process().devices[0].quota.source,
        alias("WRAPPER_MAX_MEMORY")
    );
}

#[test]
fn cuda_device_memory_limit_holds_for_the_device_it_names() {
    let bed = Testbed::with_scenario("two-gpus");
    let limits = [
        ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "1m"),
    ];
    let mut client = Client::start(&bed, &limits);
    assert_eq!(
        (client.ok("total 0"), client.ok("total 1")),
        (vec![2 * GIB], vec![MIB])
    );
    client.ok("device 1");
    client.denied(&format!("alloc a {}", MIB + 1));
    assert_eq!(
        client.process().devices[0].quota.source,
        alias("CUDA_DEVICE_MEMORY_LIMIT")
    );
}

#[test]
fn cuda_mem_limit_holds_for_every_device() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("CUDA_MEM_LIMIT", "1m")]);
    client.denied(&format!("alloc a {}", MIB + 1));
    assert_eq!(
        client.process().devices[0].quota.source,
        alias("CUDA_MEM_LIMIT")
    );
}

#[test]
fn caps_of_other_tools_are_caps() {
    let bed = Testbed::new();
    for name in ["ALNAIR_VGPU_COMPUTE_PERCENTILE", "CUDA_DEVICE_SM_LIMIT"] {
        let client = Client::start(&bed, &[(name, "40")]);
        let share = client.process().share;
        assert_eq!((share.cap, share.source), (Some(40), alias(name)));
    }
}

#[test]
fn the_lock_wrappers_variables_make_this_processs_policy() {
    let bed = Testbed::new();
    for (name, value, kind, skips) in [
        (
            "CUDA_OVERRIDE_KERNEL_N_SYNC",
            "25",
            PolicyKind::Launches(25),
            0,
        ),
        (
            "CUDA_OVERRIDE_MAX_SYNC_MS",
            "2.5",
            PolicyKind::Timeslice(2_500_000),
            0,
        ),
        ("CUDA_OVERRIDE_ALWAYS_LOCK", "1", PolicyKind::Always, 0),
        (
            "CUDA_OVERRIDE_SYNC_LOCK_SKIPS",
            "3",
            PolicyKind::Launches(10),
            3,
        ),
    ] {
        let client = Client::start(&bed, &[(name, value)]);
        let (policy, source) = client.process().devices[0].policy;
        assert_eq!(
            (policy.kind, policy.sync_skips, source),
            (kind, skips, alias(name)),
            "{name}"
        );
    }
}

#[test]
fn a_bad_value_is_one_line_on_stderr_and_shows_as_invalid() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8Q")]);
    client.ok("alloc a 4096");
    let process = client.process();
    assert!(process.invalid);
    assert_eq!(
        (
            process.devices[0].quota.bytes,
            process.devices[0].quota.source
        ),
        (None, Source::Invalid)
    );
    client.watched.close_input();
    let output = client.watched.wait_output();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.starts_with("gpushare: GPUSHARE_MEMORY: \"8Q\" "),
        "{stderr}"
    );
}

#[test]
fn an_amount_without_a_unit_holds_as_bytes_and_is_asked_about_on_one_line() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    client.ok("alloc a 4096");
    let process = client.process();
    assert!(!process.invalid);
    assert_eq!(process.devices[0].quota.bytes, Some(4096));
    client.watched.close_input();
    let output = client.watched.wait_output();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let words = "gpushare: GPUSHARE_MEMORY: \"4096\" means 4096 bytes; write 4096MiB, or 4096B";
    assert!(stderr.starts_with(words), "{stderr}");
}

#[test]
fn a_process_that_is_told_to_step_aside_is_not_there() {
    let bed = Testbed::new();
    let mut client = Client::start(
        &bed,
        &[("GPUSHARE_DISABLE", "1"), ("GPUSHARE_MEMORY", "4096")],
    );
    client.ok(&format!("alloc a {MIB}"));
    assert!(!bed.dir().join("state").exists() || crate::client::look(&bed).processes.is_empty());
}
