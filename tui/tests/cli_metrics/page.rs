//! The contents of the page of metrics.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, symlink};

use serde_json::Value;
use shm_layout::{LaunchLimits, MemoryLimit, Reason, SettingValues, Source, clock};

use crate::cli_support::{Actor, World};
use crate::{Samples, samples};

/// Makes two processes on one device, of which one waited for the other.
fn stage(world: &World) -> [Actor; 2] {
    let limits = LaunchLimits {
        settings: SettingValues {
            cap: Some(30),
            ..SettingValues::default()
        },
        memory: [MemoryLimit::Bytes(8 << 30); 16],
        memory_source: Source::LaunchEnv,
        group: Some("team-a".into()),
        ..LaunchLimits::default()
    };
    let (train, other) = (world.actor_with("train", &limits), world.actor("other"));
    let (gpu, theirs) = (train.enter(0), other.enter(0));
    assert!(train.takes(gpu, 6_000_000_001));
    assert!(!train.takes(gpu, 8 << 30));
    let set = ["policy", "set", "all", "timeslice=5ms", "order=fair"];
    world.gpushare(&set).done();
    let lock = other.registration.lock(theirs);
    lock.acquire(&|| false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lock = train.registration.lock(gpu);
            lock.acquire(&|| false);
            lock.release(Reason::Sync, clock::now());
        });
        gpushare_testbed::eventually("the other waits", crate::server::LIMIT, || {
            let ps = world.gpushare(&["ps", "--json"]).done().json();
            let mut all = ps["processes"].as_array().expect("a list").iter();
            all.any(|process| process["state"] == "wait")
        });
        lock.release(Reason::Count, clock::now());
    });
    [train, other]
}

/// Returns the metric of a JSON key by the documented rule: the key's path, with the unit in base units.
fn metric(path: &str) -> (String, f64) {
    let base = |end: &str, unit: &str, divide: f64| {
        let path = path.strip_suffix(end)?;
        Some((format!("{path}{unit}"), divide))
    };
    base("_ns", "_seconds", 1e9)
        .or_else(|| base("_percent", "_ratio", 1e2))
        .unwrap_or((path.to_owned(), 1.0))
}

/// Checks each number in an object against the page.
fn compare(
    object: &Value,
    path: &str,
    labels: &[String],
    page: &Samples,
    met: &mut BTreeSet<String>,
) {
    for (key, value) in object.as_object().expect("an object") {
        let path = format!("{path}_{key}");
        match value {
            Value::Object(_) if !key.ends_with("ended_by") => {
                compare(value, &path, labels, page, met)
            }
            Value::Number(number) => {
                let (name, divide) = metric(&path);
                let mut labels = labels.to_vec();
                labels.sort_unstable();
                let labels = labels.join(",");
                let expected = number.as_f64().expect("a number") / divide;
                let name = |end: &str| format!("{name}{end}{{{labels}}}");
                let ends = ["", "_total"].map(name);
                let Some(end) = ends.iter().find(|name| page.contains_key(*name)) else {
                    continue;
                };
                // Threads work on from look to look.
                if !end.contains("_threads_") {
                    assert_eq!(page[end], expected, "{end}");
                }
                met.insert(end.split('{').next().expect("a name").to_owned());
            }
            _ => {}
        }
    }
}

#[test]
fn every_number_on_the_page_is_the_one_in_the_json() {
    let world = World::new();
    let _actors = stage(&world);
    let lower = ["quota", "set", "name:train", "1GiB"];
    world.gpushare(&lower).done();
    let page = world.gpushare(&["metrics"]).done().out;
    let page = samples(&page);
    let ps = world.gpushare(&["ps", "--json"]).done().json();
    let mut met = BTreeSet::new();
    let mut series = 0;
    for process in ps["processes"].as_array().expect("a list") {
        let mut labels = Vec::new();
        for (label, key) in [
            ("pid", "pid"),
            ("user", "user"),
            ("name", "title"),
            ("group", "group"),
            ("container", "container"),
            ("pod", "pod"),
            ("job", "job"),
        ] {
            match &process[key] {
                Value::String(text) => labels.push(format!("{label}=\"{text}\"")),
                Value::Number(number) => labels.push(format!("{label}=\"{number}\"")),
                _ => {}
            }
        }
        compare(process, "gpushare_process", &labels, &page, &mut met);
        for device in process["devices"].as_array().expect("a list") {
            let mut labels = labels.clone();
            labels.push(format!("gpu=\"{}\"", device["gpu"]));
            compare(device, "gpushare_process", &labels, &page, &mut met);
            labels.sort_unstable();
            let labels = labels.join(",");
            let of = |name: &str| {
                page.get(&format!("gpushare_process_lock_{name}{{{labels}}}"))
                    .copied()
            };
            let lock = &device["lock"];
            assert_eq!(
                of("wait_seconds_sum"),
                Some(lock["waited_ns"].as_f64().expect("a number") / 1e9)
            );
            assert_eq!(of("wait_seconds_count"), lock["waits_below"][9].as_f64());
            for (reason, count) in lock["ended_by"].as_object().expect("an object") {
                let mut labels: Vec<&str> = labels.split(',').collect();
                let reason = format!("reason=\"{reason}\"");
                labels.push(&reason);
                labels.sort_unstable();
                let name = format!(
                    "gpushare_process_lock_ended_by_total{{{}}}",
                    labels.join(",")
                );
                assert_eq!(page.get(&name).copied(), count.as_f64(), "{name}");
                series += 1;
            }
        }
    }
    assert!(series >= 2, "each released it once");
    // The comparison above included these keys.
    for name in [
        "used_bytes",
        "quota_bytes",
        "evicted_bytes",
        "peak_bytes",
        "denials_total",
        "launches_total",
        "memory_waited_seconds_total",
        "lock_held_seconds_total",
        "lock_acquisitions_total",
        "lock_forced_total",
        "weight",
        "priority",
        "cap_ratio",
    ] {
        assert!(
            met.contains(&format!("gpushare_process_{name}")),
            "{name} in {met:?}"
        );
    }
    // Every metric of a process was compared, apart from those that are no number in the JSON.
    let other = [
        "_bucket",
        "_sum",
        "_count",
        "_state",
        "_ended_by_total",
        "_waited_for_seconds_total",
    ];
    for name in page
        .keys()
        .filter(|name| name.starts_with("gpushare_process_"))
    {
        let name = name.split('{').next().expect("a name");
        assert!(
            met.contains(name) || other.iter().any(|end| name.ends_with(end)),
            "{name}"
        );
    }
    let groups = page
        .keys()
        .filter(|name| name.starts_with("gpushare_group_used_bytes{gpu=\"0\""));
    assert_eq!(groups.count(), 1);
    assert!(
        page.keys()
            .any(|name| name.starts_with("gpushare_alert{") && name.contains("kind=\"over_quota\"")),
        "{page:?}"
    );
}

#[test]
fn the_page_of_a_machine_is_kept_as_it_is() {
    let world = World::new();
    let _actors = stage(&world);
    let page = world.gpushare(&["metrics", "--openmetrics"]).done().out;
    assert!(page.ends_with("# EOF\n"));
    // On a slow machine the wait takes so long that it is an alert.
    let is_kept = |line: &&str| line.starts_with('#') && !line.contains(" gpushare_alert ");
    let head: Vec<&str> = page.lines().filter(is_kept).collect();
    insta::assert_snapshot!("heads", head.join("\n"));
}

#[test]
fn a_hostile_name_stays_inside_its_label() {
    let world = World::new();
    let evil = world.actor("x\"} 1\ngpushare_up 7\\\u{1b}]0;t\u{7}");
    let gpu = evil.enter(0);
    assert!(evil.takes(gpu, 4096));
    let page = world.gpushare(&["metrics"]).done().out;
    assert!(
        !page.lines().any(|line| line.starts_with("gpushare_up")),
        "{page}"
    );
    assert!(!page.contains('\u{1b}'));
    assert!(page.contains("gpushare_process_used_bytes{"), "{page}");
}

#[test]
fn a_text_file_is_replaced_whole_and_a_link_in_its_place_is_not_followed() {
    let world = World::new();
    let (target, file) = (
        world.dir().join("target"),
        world.dir().join("gpushare.prom"),
    );
    std::fs::write(&target, "mine").expect("ours");
    symlink(&target, &file).expect("ours");
    let path = file.display().to_string();
    world.gpushare(&["metrics", "--textfile", &path]).done();
    assert_eq!(std::fs::read_to_string(&target).expect("ours"), "mine");
    let meta = std::fs::symlink_metadata(&file).expect("it was written");
    assert!(meta.is_file());
    assert_eq!(meta.mode() & 0o777, 0o644);
    let page = std::fs::read_to_string(&file).expect("it was written");
    assert!(page.contains("gpushare_refused_total 0"), "{page}");
    let left = std::fs::read_dir(world.dir()).expect("ours").flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let nowhere = world.dir().join("no/such/dir.prom").display().to_string();
    world
        .gpushare(&["metrics", "--textfile", &nowhere])
        .refused(1, &["cannot be written", "no/such"]);
}
