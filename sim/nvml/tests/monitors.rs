//! Unmodified monitors on the simulator: nvidia-ml-py, gpustat and nvitop from PyPI, and nvml-wrapper.
//!
//! This test is itself the workload: it joins the world, holds memory and runs kernels, and compares the monitor's output with
//! what it does.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gpushare_sim::{Member, Scenario, World, clock};
use gpushare_testbed::{Testbed, Watched, eventually, newest_python, python};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
/// Long enough that a thread that is scheduled late still keeps the engine busy.
const KERNEL_NS: u64 = 200_000_000;
const PACKAGES: [&str; 3] = ["nvidia-ml-py==13.615.71", "gpustat==1.1.1", "nvitop==1.7.2"];

/// A workload that this process itself is: it holds memory on one device of the testbed's world.
struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    /// Holds memory on a unit and keeps its engine busy all the time.
    fn on(bed: &Testbed, scenario: &str, unit: usize, bytes: u64) -> Self {
        let text = Scenario::text_of(scenario).unwrap();
        let world = Arc::new(World::open_named(bed.world(), Some(&text)).unwrap());
        let member = Member::join(&world).unwrap();
        member.add_context(unit);
        member.take_memory(unit, bytes).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut ended = clock::now();
            while !told.load(Ordering::Relaxed) {
                ended = member.run_kernel(unit, KERNEL_NS, ended);
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn output_of(command: &mut Command) -> String {
    Watched::spawn(command).succeed().0
}

fn all_calls(bed: &Testbed, python: &PathBuf, arguments: &[&str]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/all_calls.py");
    let mut command = bed.sim_only(python);
    let printed = output_of(command.arg(script).args(arguments));
    serde_json::from_str(&printed).unwrap()
}

#[test]
fn nvidia_ml_py_sees_each_process_with_its_memory_and_load() {
    let Some(python) = python(&PACKAGES) else {
        return;
    };
    let bed = Testbed::new();
    let _busy = Busy::on(&bed, "two-gpus", 0, 300 * MIB);
    let seen = all_calls(&bed, &python, &["busy"]);
    let own = std::process::id();
    assert_eq!(seen["cuda"], 13000);

    let (busy, idle) = (&seen["gpus"][0], &seen["gpus"][1]);
    let total = 16 * 1024 * MIB;
    assert_eq!(busy["name"], "Simulated GPU");
    assert_eq!(busy["memory"], json!([total, total - 300 * MIB, 300 * MIB]));
    assert_eq!(busy["memory"], busy["memory_v2"]);
    assert_eq!(busy["processes"], json!([[own, 300 * MIB, u32::MAX]]));
    assert_eq!(busy["processes"], busy["processes_v2"]);
    assert_eq!(busy["samples"][0][0], own);
    assert!(busy["samples"][0][1].as_u64().unwrap() > 0, "{busy}");
    assert!(busy["temperature"].as_u64() > idle["temperature"].as_u64());
    assert_eq!(busy["clocks_event_reasons"], 0);
    assert_eq!(idle["clocks_event_reasons"], 1, "the clocks rest");
    assert_eq!(busy["serial"], Value::Null, "not supported is an answer");

    assert_eq!(idle["memory"], json!([total, total, 0]));
    assert_eq!(idle["processes"], json!([]));
    assert_eq!(idle["load"], 0);
}

#[test]
fn a_gpu_in_mig_mode_shows_its_instances() {
    let Some(python) = python(&PACKAGES) else {
        return;
    };
    let bed = Testbed::with_scenario("mig");
    let _busy = Busy::on(&bed, "mig", 1, 300 * MIB);
    let seen = all_calls(&bed, &python, &[]);
    let own = std::process::id();

    let (divided, whole) = (&seen["gpus"][0], &seen["gpus"][1]);
    assert_eq!(
        (&divided["mig_mode"], &whole["mig_mode"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        divided["load"],
        Value::Null,
        "a GPU in MIG mode does not say"
    );
    assert_eq!(divided["memory"][2], 300 * MIB);
    assert_eq!(divided["processes"], json!([[own, 300 * MIB, 2]]));
    assert_eq!(divided["mig"].as_array().unwrap().len(), 3);
    let instance = &divided["mig"][1];
    assert_eq!(instance["name"], "Simulated GPU MIG 2g.10gb");
    assert!(instance["uuid"].as_str().unwrap().starts_with("MIG-"));
    assert_eq!(instance["memory"][2], 300 * MIB);
    assert_eq!(instance["processes"], json!([[own, 300 * MIB, 2]]));
    assert_eq!(divided["mig"][0]["processes"], json!([]));
}

#[test]
fn nvml_alone_shows_idle_devices() {
    let Some(python) = python(&PACKAGES) else {
        return;
    };
    let bed = Testbed::new();
    let seen = all_calls(&bed, &python, &[]);
    assert_eq!(seen["gpus"].as_array().unwrap().len(), 2);
    for gpu in seen["gpus"].as_array().unwrap() {
        assert_eq!((&gpu["load"], &gpu["processes"]), (&json!(0), &json!([])));
    }
}

#[test]
fn every_name_that_the_newest_nvidia_ml_py_looks_up_is_there() {
    let Some(python) = newest_python(&["nvidia-ml-py"]) else {
        return;
    };
    let bed = Testbed::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/all_names.py");
    let printed = output_of(bed.sim_only(python).arg(script));
    let (count, missing) = printed.trim_end().split_once(' ').unwrap();
    assert!(count.parse::<u32>().unwrap() > 400, "{printed}");
    assert_eq!(missing, "[]");
}

#[test]
fn gpustat_reports_the_process_and_its_memory() {
    let Some(python) = python(&PACKAGES) else {
        return;
    };
    let bed = Testbed::new();
    let _busy = Busy::on(&bed, "two-gpus", 0, 300 * MIB);
    let gpustat = python.with_file_name("gpustat");
    eventually(
        "gpustat sees a busy device",
        Duration::from_secs(60),
        || {
            let printed = output_of(bed.sim_only(&gpustat).arg("--json"));
            let seen: Value = serde_json::from_str(&printed).unwrap();
            let gpu = &seen["gpus"][0];
            assert_eq!(gpu["memory.used"], 300);
            assert_eq!(gpu["processes"][0]["pid"], std::process::id());
            assert_eq!(gpu["processes"][0]["gpu_memory_usage"], 300);
            gpu["utilization.gpu"].as_u64().unwrap() >= 50
        },
    );
}

#[test]
fn nvitop_reports_the_process_and_its_memory() {
    let Some(python) = python(&PACKAGES) else {
        return;
    };
    let bed = Testbed::new();
    let _busy = Busy::on(&bed, "two-gpus", 1, 300 * MIB);
    let mut nvitop = bed.sim_only(python.with_file_name("nvitop"));
    let screen = output_of(nvitop.args(["-1", "--ascii"]));
    let own = std::process::id().to_string();
    let row = screen
        .lines()
        .find(|line| line.split_whitespace().any(|word| word == own))
        .unwrap_or_else(|| panic!("no row of this process:\n{screen}"));
    assert!(row.contains("300.0MiB"), "{row}");
    assert!(screen.contains("300.0MiB / 16384MiB"), "{screen}");
    assert!(!screen.contains("ERROR"), "{screen}");
}

#[test]
fn a_machine_without_nvml_says_that_the_driver_is_not_loaded() {
    let Some(python) = python(&PACKAGES) else {
        return;
    };
    let bed = Testbed::with_scenario("no-nvml");
    let mut gpustat = bed.sim_only(python.with_file_name("gpustat"));
    let output = Watched::spawn(&mut gpustat).wait_output();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Driver Not Loaded"), "{said}");
}

#[test]
fn nvml_wrapper_reads_the_same() {
    let bed = Testbed::with_scenario("mig");
    let _busy = Busy::on(&bed, "mig", 3, 300 * MIB);
    let mut guest = bed.sim_only(std::env::current_exe().unwrap());
    guest
        .args(["--exact", "nvml_wrapper_guest", "--ignored", "--nocapture"])
        .env("BUSY_PID", std::process::id().to_string());
    output_of(&mut guest);
}

#[test]
#[ignore = "the program that the test above runs in a simulated world"]
fn nvml_wrapper_guest() -> Result<(), NvmlError> {
    let busy_pid: u32 = std::env::var("BUSY_PID").unwrap().parse().unwrap();
    let nvml = Nvml::init()?;
    assert_eq!(nvml.device_count()?, 2);
    let divided = nvml.device_by_index(0)?;
    assert_eq!(divided.mig_device_count()?, 3);
    let instance = divided.mig_device_by_index(2)?;
    assert_eq!(instance.memory_info()?.total, 5 << 30);
    assert!(instance.uuid()?.starts_with("MIG-"));

    let whole = nvml.device_by_index(1)?;
    let process = &whole.running_compute_processes()?[0];
    assert_eq!(process.pid, busy_pid);
    assert_eq!(process.used_gpu_memory, UsedGpuMemory::Used(300 * MIB));
    assert_eq!(whole.memory_info()?.used, 300 * MIB);
    eventually("its work shows", Duration::from_secs(60), || {
        let samples = whole.process_utilization_stats(None).unwrap();
        samples
            .iter()
            .any(|sample| sample.pid == busy_pid && sample.sm_util >= 50)
    });
    assert!(matches!(whole.serial(), Err(NvmlError::NotSupported)));
    Ok(())
}

#[test]
fn nvml_wrapper_reads_what_slows_a_gpu_and_the_xid_of_a_fault() {
    let bed = Testbed::with_scenario("ailing");
    let _busy = Busy::on(&bed, "ailing", 0, MIB);
    let mut guest = bed.sim_only(std::env::current_exe().unwrap());
    guest.args(["--exact", "ailing_guest", "--ignored", "--nocapture"]);
    output_of(&mut guest);
}

#[test]
#[ignore = "the program that the test above runs in a simulated world"]
fn ailing_guest() -> Result<(), NvmlError> {
    let nvml = Nvml::init()?;
    let gpu = nvml.device_by_index(0)?;
    eventually("its work shows", Duration::from_secs(60), || {
        gpu.utilization_rates().unwrap().gpu > 0
    });
    let reasons = gpu.current_throttle_reasons()?;
    assert!(reasons.contains(ThrottleReasons::HW_THERMAL_SLOWDOWN));
    assert!(gpu.clock_info(Clock::SM)? < gpu.max_clock_info(Clock::SM)?);
    assert_eq!(
        (gpu.current_pcie_link_gen()?, gpu.max_pcie_link_gen()?),
        (3, 5)
    );
    assert_eq!(
        (gpu.current_pcie_link_width()?, gpu.max_pcie_link_width()?),
        (8, 16)
    );
    let events = gpu.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set()?);
    let events = events.map_err(|error| error.error)?;
    assert!(matches!(events.wait(0), Err(NvmlError::Timeout)));
    let world = Arc::new(World::open().unwrap());
    let member = Member::join(&world).unwrap();
    member.add_context(0);
    member.fail(0, 700);
    let event = events.wait(5000)?;
    assert!(
        matches!(event.event_data, Some(XidError::Value(31))),
        "{event:?}"
    );
    assert_eq!(event.device.uuid()?, gpu.uuid()?);
    assert!(matches!(events.wait(10), Err(NvmlError::Timeout)), "once");
    Ok(())
}
