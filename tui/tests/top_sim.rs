//! The dashboard on the simulator: NVML's figures beside the ledger's.

use gpushare_sim::usage;
use gpushare_sim::world::World;
use gpushare_testbed::{Testbed, Watched, eventually};
use serde_json::Value;
use std::io::Write as _;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn look(testbed: &Testbed) -> Value {
    let output = testbed
        .sim_only(env!("CARGO_BIN_EXE_gpushare-top"))
        .args(["--once", "--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A dashboard that prints one sample after the other.
struct Series(Watched);

impl Series {
    fn start(testbed: &Testbed) -> Self {
        let mut top = testbed.sim_only(env!("CARGO_BIN_EXE_gpushare-top"));
        Self(Watched::spawn(
            top.args(["-b", "-d", "0.3", "--format", "json"]),
        ))
    }

    /// Returns the next sample that is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Value::Null;
        eventually(what, LIMIT, || {
            seen = serde_json::from_str(&self.0.line()).unwrap();
            is_so(&seen)
        });
        seen
    }
}

/// Returns the time as the kernel's log gives it.
fn us_since_boot() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    (seconds * 1e6) as u64
}

#[test]
fn what_nvml_counts_stands_beside_what_we_count() {
    let testbed = Testbed::new();
    let busy = [
        "--memory",
        "256M",
        "--kernel-us",
        "2000",
        "--seconds",
        "120",
    ];
    let managed = Watched::spawn(&mut testbed.workload(&busy));
    let stranger = Watched::spawn(
        testbed
            .sim_only(gpushare_testbed::artifact("gpushare-workload"))
            .args(busy),
    );

    let mut seen = Value::Null;
    eventually("both are seen", LIMIT, || {
        seen = look(&testbed);
        let processes = seen["processes"].as_array().unwrap();
        processes.len() == 2
            && processes
                .iter()
                .all(|p| p["devices"][0]["used_bytes"].as_u64() >= Some(256 * MIB))
            && seen["devices"][0]["util_percent"].as_u64() > Some(0)
            // A sample reads the device's memory before its processes, so the newest process may be missing in the first
            // figure.
            && seen["devices"][0]["used_bytes"].as_u64() >= Some(512 * MIB)
    });
    assert_eq!(seen["origin"], "sim", "{seen}");
    assert_eq!(seen["nvml"]["state"], "ready", "{seen}");
    assert_eq!(seen["devices"][0]["slowed_by"], "nothing", "{seen}");
    let of = |pid: u32| {
        let processes = seen["processes"].as_array().unwrap();
        processes
            .iter()
            .find(|p| p["pid"] == pid)
            .unwrap_or_else(|| panic!("{pid} in {seen}"))
            .clone()
    };
    assert!(of(managed.pid())["ns_pid"].is_number());
    assert_eq!(of(stranger.pid())["state"], "unmanaged");
    let alerts = seen["alerts"].as_array().unwrap();
    assert!(
        alerts
            .iter()
            .any(|alert| alert["kind"] == "unmanaged" && alert["pid"] == stranger.pid()),
        "{seen}"
    );
}

#[test]
fn without_nvml_the_ledger_still_speaks() {
    let testbed = Testbed::with_scenario("no-nvml");
    let busy = ["--memory", "64M", "--seconds", "120"];
    let managed = Watched::spawn(&mut testbed.workload(&busy));
    let mut seen = Value::Null;
    eventually("the process is seen", LIMIT, || {
        seen = look(&testbed);
        seen["processes"][0]["devices"][0]["used_bytes"].as_u64() >= Some(64 * MIB)
    });
    assert_eq!(seen["processes"][0]["pid"], managed.pid());
    assert_eq!(seen["nvml"]["state"], "missing", "{seen}");
    assert!(
        seen["warnings"][0].as_str().unwrap().starts_with("NVML:"),
        "{seen}"
    );
    assert_eq!(seen["origin"], "sim", "the driver says so too");
}

#[test]
fn a_card_that_falls_off_the_bus_stays_on_the_screen_with_its_error() {
    let testbed = Testbed::with_scenario("two-gpus");
    let log = testbed.dir().join("sim-lib/kmsg");
    std::fs::write(&log, "").unwrap();
    let _busy = Watched::spawn(&mut testbed.workload(&["--kernel-us", "2000", "--seconds", "120"]));
    let mut top = Series::start(&testbed);
    let before = top.until("both", |seen| seen["devices"][1]["temperature_c"].is_u64());
    let world = World::open_named(testbed.world(), None).unwrap();
    usage::report(&world, 0, 79);
    let us = us_since_boot();
    let line = format!("6,1,{us},-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.\n");
    std::fs::write(&log, line).unwrap();
    let after = top.until("the error of a card without figures", |seen| {
        let is_it = |alert: &Value| {
            let sentence = alert["sentence"].as_str().unwrap();
            sentence.starts_with("GPU0 had Xid 79")
        };
        let is_lost = seen["devices"][0]["temperature_c"].is_null();
        is_lost && seen["alerts"].as_array().unwrap().iter().any(is_it)
    });
    for (gpu, key) in [(0, "uuid"), (0, "name"), (1, "uuid"), (1, "name")] {
        let [after, before] = [&after, &before].map(|seen| &seen["devices"][gpu][key]);
        assert_eq!(after, before, "{key} of {gpu}");
    }
    assert!(after["devices"][1]["temperature_c"].is_u64(), "{after}");
}

#[test]
fn the_instances_of_a_card_that_falls_off_the_bus_stay_on_the_screen() {
    let testbed = Testbed::with_scenario("mig");
    let _busy = Watched::spawn(&mut testbed.workload(&["--kernel-us", "2000", "--seconds", "120"]));
    let mut top = Series::start(&testbed);
    let before = top.until("all", |seen| seen["devices"][3]["temperature_c"].is_u64());
    assert!(before["devices"][2]["used_bytes"].is_u64(), "{before}");
    let world = World::open_named(testbed.world(), None).unwrap();
    usage::report(&world, 0, 79);
    let after = top.until("instances without figures", |seen| {
        seen["devices"][2]["used_bytes"].is_null()
    });
    let names = |seen: &Value| -> Vec<Value> {
        let devices = seen["devices"].as_array().unwrap().iter();
        let name = |device: &Value| {
            let keys = ["uuid", "name", "total_bytes", "mig_parent"];
            Value::from_iter(keys.map(|key| device[key].clone()))
        };
        devices.map(name).collect()
    };
    assert_eq!(names(&after), names(&before));
}

#[test]
fn a_card_that_was_lost_before_the_dashboard_began_is_named_by_it_and_by_the_doctor() {
    let testbed = Testbed::with_scenario("two-gpus");
    let busy = Watched::spawn(&mut testbed.workload(&["--kernel-us", "2000", "--seconds", "120"]));
    eventually("it is at work", LIMIT, || {
        look(&testbed)["processes"][0]["pid"] == busy.pid()
    });
    let world = World::open_named(testbed.world(), None).unwrap();
    usage::report(&world, 1, 79);
    let seen = look(&testbed);
    let warning = "NVML: card 1 does not answer: ";
    let mut warnings = seen["warnings"].as_array().unwrap().iter();
    assert!(
        warnings.any(|one| one.as_str().unwrap().starts_with(warning)),
        "{seen}"
    );
    assert_eq!(seen["nvml"]["state"], "ready", "the other card answers");
    let mut alerts = seen["alerts"].as_array().unwrap().iter();
    assert!(
        alerts.any(|alert| alert["kind"] == "silent"),
        "on the screen too: {seen}"
    );
    let mut doctor = testbed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    let said = doctor.args(["doctor", "--json"]).output().unwrap();
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let mut findings = said["findings"].as_array().unwrap().iter();
    let nvml = findings.find(|one| one["check"] == "nvml");
    let nvml = nvml.unwrap_or_else(|| panic!("{said}"));
    assert_eq!(nvml["level"], "warn", "{nvml}");
    assert!(
        nvml["found"]
            .as_str()
            .unwrap()
            .contains("card 1 does not answer"),
        "{nvml}"
    );
}

#[test]
fn what_is_wrong_with_a_card_and_what_threads_do_on_the_host_is_told_with_its_evidence() {
    let testbed = Testbed::with_scenario("ailing");
    // The kernel's log of the simulated machine: an error, one of another card, and two lines that the kernel did not write.
    let forged = "NVRM: Xid (PCI:0000:10:00): 95, pid=1, name=forged, x";
    let us = us_since_boot();
    let lines = format!(
        "6,1,{us},-;NVRM: Xid (PCI:0000:10:00): 43, pid=7, name=a\u{9b}2Jb, x\n\
         6,2,{us},-;NVRM: Xid (PCI:0000:20:00): 79, pid=7, name=other, x\n12,3,{us},-;{forged}\n {forged}\n",
    );
    let log = testbed.dir().join("sim-lib/kmsg");
    std::fs::write(&log, lines).unwrap();
    let _busy = Watched::spawn(&mut testbed.workload(&["--kernel-us", "2000", "--seconds", "120"]));
    let mut faulty = Watched::spawn(&mut testbed.workload(&["--script"]));
    let series = ["-b", "-d", "0.3", "--format", "json"];
    let mut top = testbed.sim_only(env!("CARGO_BIN_EXE_gpushare-top"));
    let mut top = Watched::spawn(top.args(series));
    let mut seen = Value::Null;
    let mut alert = |top: &mut Watched, kind: &str| {
        let mut found = None;
        eventually(kind, LIMIT, || {
            seen = serde_json::from_str(&top.line()).unwrap();
            let alerts = seen["alerts"].as_array().unwrap();
            found = alerts.iter().find(|alert| alert["kind"] == kind).cloned();
            found.is_some()
        });
        found.unwrap()["sentence"].as_str().unwrap().to_owned()
    };
    let slowed = alert(&mut top, "slowed");
    assert!(
        slowed.starts_with("GPU0 is slowed by heat, at P0, "),
        "{slowed}"
    );
    let link = alert(&mut top, "link");
    assert!(
        link.starts_with("the link of GPU0 runs at PCIe 3 x8, and could at PCIe 5 x16"),
        "{link}"
    );
    assert_eq!(faulty.line(), format!("ready {}", faulty.pid()));
    let xid = alert(&mut top, "xid");
    assert_eq!(
        xid,
        "GPU0 had Xid 43: a program's work was stopped, in a\u{9b}2Jb (pid 7), the only error seen"
    );
    assert_eq!(faulty.ask("fault"), "ok");
    let xid = loop {
        let xid = alert(&mut top, "xid");
        if xid.ends_with("the newest of 2 errors seen") {
            break xid;
        }
    };
    assert!(xid.starts_with("GPU0 had Xid "), "{xid}");
    // The log names that error too, with its process: it stays one error.
    let number = xid["GPU0 had Xid ".len()..].split(':').next().unwrap();
    let pid = faulty.pid();
    let logged = format!("6,4,1,-;NVRM: Xid (PCI:0000:10:00): {number}, pid={pid}, name=x, y\n");
    let log = std::fs::File::options().append(true).open(log);
    log.unwrap().write_all(logged.as_bytes()).unwrap();
    let named = format!("(pid {pid}), the newest of 2 errors seen");
    while !alert(&mut top, "xid").ends_with(&named) {}
    let threads = &seen["processes"][0]["threads"];
    assert_eq!(threads["readable"], true, "{seen}");
    assert!(
        threads["busiest_percent"].as_u64() <= Some(100),
        "{threads}"
    );
    assert!(seen["machine"]["memory_bytes"].as_u64() > Some(0), "{seen}");
}
