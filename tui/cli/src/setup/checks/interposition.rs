//! Check that a program under the preload is counted and limited, by a probe in a directory of its own.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use shm_layout::{ProcessDeviceView, Segments, clock, snapshot};

use super::{Finding, Patient, coverage};
use gpushare_base::host::artifacts;
use gpushare_base::host::probe::Probe;
use gpushare_launch::leftovers::Private;
use shm_layout::variables;

/// Quota of the probe, the memory that it takes, and a size that must then be refused.
const QUOTA: &str = "8MiB";
const TAKEN: u64 = 1 << 20;
const TOO_MUCH: &str = "16M";
/// Maximum time until counts are published.
const PUBLISHED: Duration = Duration::from_secs(5);
const OUT_OF_MEMORY: &str = "error 2 ";

/// Runs the probe under the preload in a directory of its own, and reads the counts there.
pub(super) fn check(patient: &Patient, real: bool) -> Vec<Finding> {
    let Ok(library) = &patient.library else {
        return Vec::new();
    };
    let place = match Private::new() {
        Ok(place) => place,
        Err(failure) => {
            return vec![Finding::warn(
                "interposition",
                failure.sentence,
                "make /dev/shm writable, then run this again",
            )];
        }
    };
    let on = if real {
        "the driver"
    } else {
        "the simulated driver"
    };
    match probe(&place, library, real) {
        Ok(coverage) => [
            Finding::ok(
                "interposition",
                format!("on {on}: a probe's allocation and launch were counted exactly"),
            ),
            Finding::ok(
                "quota",
                format!("on {on}: 16 MiB over a quota of {QUOTA} were refused"),
            ),
        ]
        .into_iter()
        .chain(coverage)
        .collect(),
        Err((check, why)) => vec![Finding::fail(
            check,
            why,
            "GPUSHARE_LOG=info shows the library's own messages; a static or musl program cannot be preloaded",
        )],
    }
}

/// Checks that all was counted and refused correctly, then returns a finding about functions of the driver without a hook.
fn probe(
    place: &Private,
    library: &Path,
    real: bool,
) -> Result<Option<Finding>, (&'static str, String)> {
    let interposition = |why: String| ("interposition", why);
    let mut world = None;
    if !real {
        let folder = artifacts::sim_folder(&place.path)
            .map_err(|failure| interposition(failure.sentence))?;
        world = Some(artifacts::LIBRARY_PATH.prepend(&folder));
    }
    let preload =
        artifacts::preload(library.to_owned(), Some(&place.path)).map_err(interposition)?;
    let mut probe =
        Probe::start(|command| prepare(command, place, &preload, world)).map_err(interposition)?;
    let mut ask = |command: &str| probe.ask(command).map_err(interposition);
    for command in [&format!("alloc {TAKEN}") as &str, "launch 10", "sync"] {
        let answer = ask(command)?;
        if !answer.starts_with("ok") {
            return Err(interposition(format!(
                "the probe's {command} failed: {answer}"
            )));
        }
    }
    let refused = ask(&format!("alloc {TOO_MUCH}"))?;
    let counted = counted(place, probe.pid()).map_err(interposition)?;
    if counted.used != TAKEN || counted.counters.launches != 1 {
        return Err(interposition(format!(
            "the probe holds {TAKEN} bytes and launched once; the library counted {} bytes and {} launches",
            counted.used, counted.counters.launches
        )));
    }
    if !refused.starts_with(OUT_OF_MEMORY) {
        return Err((
            "quota",
            format!("16 MiB over a quota of {QUOTA} were not refused: {refused}"),
        ));
    }
    Ok(coverage::check(probe.pid(), library))
}

fn prepare(
    command: &mut Command,
    place: &Private,
    preload: &Path,
    simulator: Option<std::ffi::OsString>,
) {
    command
        .env(variables::DIR, &place.path)
        .env(variables::MEMORY, QUOTA)
        .env("LD_PRELOAD", artifacts::PRELOAD.prepend(preload))
        .env_remove(variables::DISABLE)
        .env_remove(variables::GROUP);
    if let Some(path) = simulator {
        command
            .env("LD_LIBRARY_PATH", path)
            .env(variables::SIM, "1")
            .env(variables::SIM_WORLD, &place.world);
    }
}

/// Returns the library's counts. Launches are published at the keeper's next tick, so this waits for them.
fn counted(place: &Private, pid: u32) -> Result<ProcessDeviceView, String> {
    let segments = Segments::open_viewer(&place.path).map_err(|error| {
        format!("the probe made no segments, so the library was not loaded: {error}")
    })?;
    let start = Instant::now();
    loop {
        let processes = snapshot(&segments, clock::now()).processes;
        let own = processes
            .into_iter()
            .find(|process| process.identity.pid == pid);
        // The probe uses the first device.
        match own.and_then(|process| {
            process
                .devices
                .into_iter()
                .find(|device| device.ordinal == 0)
        }) {
            Some(counted) if counted.counters.launches > 0 || start.elapsed() > PUBLISHED => {
                return Ok(counted);
            }
            None if start.elapsed() > PUBLISHED => {
                return Err(
                    "the probe used a device and was not counted: dlsym is not interposed".into(),
                );
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
