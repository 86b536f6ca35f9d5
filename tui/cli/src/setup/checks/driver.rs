//! Checks of the driver and of NVML.

use std::path::PathBuf;
use std::time::Duration;

use super::{Finding, Patient, interposition};
use gpushare_base::host::artifacts;
use gpushare_base::host::probe::Probe;
use gpushare_observe::source::live::Live;
use gpushare_sample::{Nvml, OF_NVML, Sample};

pub(super) fn check(patient: &Patient) -> Vec<Finding> {
    let installed = |name| artifacts::find(name).is_ok();
    if !installed("gpushare-workload") {
        let unasked = Finding::warn(
            "driver",
            "not checked: gpushare-workload is not installed",
            "install it beside this program, then run this again; until then nvidia-smi shows the driver",
        );
        return vec![unasked, nvml(patient)];
    }
    let mut findings = Vec::new();
    let simulated = artifacts::is_simulation_asked();
    let real = match Probe::start(|_| {}) {
        Ok(mut probe) => {
            let memory = probe.ask("info").unwrap_or_default();
            let what = if simulated {
                "the simulated driver"
            } else {
                "the driver"
            };
            findings.push(Finding::ok(
                "driver",
                format!(
                    "{what} answers; free and total bytes of device 0:{}",
                    numbers(&memory)
                ),
            ));
            true
        }
        Err(why) => {
            findings.push(Finding::warn(
                "driver",
                format!("no usable GPU: {}", why.split(';').next().unwrap_or(&why)),
                "install NVIDIA's driver and check nvidia-smi; without one, gpushare run --sim uses the simulated GPU",
            ));
            false
        }
    };
    findings.push(nvml(patient));
    if real || installed(artifacts::SIM_DRIVER) && installed(artifacts::SIM_NVML) {
        findings.extend(interposition::check(patient, real));
    } else {
        findings.push(Finding::warn(
            "interposition",
            "not probed: neither a driver nor the simulator is installed",
            "install the driver or the simulator, then run this again",
        ));
    }
    findings
}

fn numbers(answer: &str) -> &str {
    answer.strip_prefix("ok").unwrap_or(answer)
}

fn nvml(patient: &Patient) -> Finding {
    let dir = patient
        .dir
        .as_ref()
        .map_or_else(|_| PathBuf::from("/nonexistent"), |dir| dir.path.clone());
    let mut live = Live::new(&dir, true);
    live.settle(Duration::from_secs(10));
    let look = live.look();
    let silent = |sample: &Sample| {
        let mut warnings = sample.warnings.iter();
        warnings.find_map(|warning| warning.strip_prefix(OF_NVML).map(str::to_owned))
    };
    let silent = look.as_ref().ok().and_then(silent);
    match look.map(|sample| sample.nvml) {
        Ok(Nvml::Ready(version)) => match silent {
            Some(why) => Finding::warn(
                "nvml",
                format!("driver {version}; {why}"),
                "programs run on the other cards; gpushare counts only those that answer",
            ),
            None => Finding::ok("nvml", format!("answers; driver {version}")),
        },
        Ok(Nvml::Missing(why)) => Finding::warn(
            "nvml",
            why,
            "install libnvidia-ml (nvidia-utils); without it only programs under gpushare are seen",
        ),
        Ok(_) => Finding::warn(
            "nvml",
            "no answer in 10 s",
            "check nvidia-smi; the driver may hang",
        ),
        Err(error) => Finding::warn(
            "nvml",
            format!("not checked: {error}"),
            "fix the segments first",
        ),
    }
}
