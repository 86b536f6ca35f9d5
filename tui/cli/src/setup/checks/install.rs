//! Checks of the installed files and of the values in the environment.

use super::{Finding, Patient};
use gpushare_base::host::artifacts;
use gpushare_base::host::elf;
use gpushare_launch::program::{Settings, misspelt};
use shm_layout::text::PathText as _;
use shm_layout::variables;

pub(super) fn check(patient: &Patient) -> Vec<Finding> {
    let mut findings = vec![match &patient.library {
        Ok(path) => Finding::ok("library", path.shown()),
        Err(why) => Finding::fail(
            "library",
            why.clone(),
            "build the workspace, or set GPUSHARE_LIB to libgpushare.so",
        ),
    }];
    findings.extend(c_library(patient));
    findings.push(parts());
    findings.extend(settings());
    findings.extend(preloads());
    findings
}

/// Checks glibc's version, because no program starts with a library that needs a newer one.
fn c_library(patient: &Patient) -> Option<Finding> {
    let needed = elf::needs(patient.library.as_ref().ok()?)?;
    let here = elf::provides(&elf::libc()?)?;
    Some(if needed <= here {
        Finding::ok(
            "glibc",
            format!("{here} is installed; the library needs {needed} or later"),
        )
    } else {
        Finding::fail(
            "glibc",
            format!(
                "{here} is installed and the library needs {needed} or later: no program would start with it"
            ),
            "install a gpushare built for this system, or build it here",
        )
    })
}

/// Checks that the programs and the simulator are beside this program.
fn parts() -> Finding {
    let names = [
        "gpushare-top",
        "gpushare-workload",
        artifacts::SIM_DRIVER,
        artifacts::SIM_NVML,
        artifacts::SIM_MPS,
    ];
    let missing: Vec<&str> = names
        .into_iter()
        .filter(|name| artifacts::find(name).is_err())
        .collect();
    if missing.is_empty() {
        return Finding::ok(
            "parts",
            "dashboard, workload and simulator are beside this program",
        );
    }
    Finding::warn(
        "parts",
        format!("not installed: {}", missing.join(", ")),
        "install them beside this program; demo, --sim and the doctor's probes need them",
    )
}

/// Checks the values that programs inherit from this environment.
fn settings() -> Vec<Finding> {
    let value = |name| {
        std::env::var(name)
            .ok()
            .filter(|value: &String| !value.is_empty())
    };
    let ours = variables::TABLE
        .iter()
        .filter(|variable| variable.alias_of.is_none() && value(variable.name).is_some());
    let names: Vec<&str> = ours.map(|variable| variable.name).collect();
    let environment = Settings::default().environment();
    let disabled = matches!(&environment, Ok(environment) if environment.disabled);
    let read = environment.as_ref().ok();
    let advice = read.map(|read| read.advice.clone()).unwrap_or_default();
    let mut findings = vec![match environment {
        Ok(_) if names.is_empty() => {
            Finding::ok("environment", "no GPUSHARE_* variable is inherited")
        }
        Ok(_) => Finding::ok(
            "environment",
            format!("programs started here inherit {}", names.join(", ")),
        ),
        Err(failure) => Finding::fail(
            "environment",
            failure.sentence,
            "correct it or unset it; programs would run without that limit, or with one that was not meant",
        ),
    }];
    findings.extend(misspelt::sentences().into_iter().map(|sentence| {
        Finding::warn(
            "environment",
            sentence,
            "correct the name or unset the variable; a limit in it holds nowhere",
        )
    }));
    if disabled {
        findings.push(Finding::warn(
            "environment",
            "GPUSHARE_DISABLE is set: the library steps aside in every program",
            "unset it to have programs counted and limited",
        ));
    }
    let aliases: Vec<&str> = shm_layout::ALIASES
        .into_iter()
        .filter(|name| value(name).is_some())
        .collect();
    if !aliases.is_empty() {
        findings.push(Finding::ok(
            "environment",
            format!(
                "variables of other tools are applied: {}",
                aliases.join(", ")
            ),
        ));
    }
    findings.extend(advice.into_iter().map(|advice| {
        Finding::warn(
            "environment",
            advice,
            "unset the variable; gpushare(1) has a table of other tools' variables",
        )
    }));
    findings
}

/// Checks for another library in the preload that wraps the driver, because everything would be counted twice.
fn preloads() -> Option<Finding> {
    let preload = std::env::var("LD_PRELOAD")
        .ok()
        .filter(|value| !value.is_empty())?;
    let rival = [
        "libvgpu",
        "libnvshare",
        "libcuda_override",
        "libpfinterpose",
        "libcuinterpose",
        "libpreload.so",
    ];
    Some(match rival.iter().find(|name| preload.contains(*name)) {
        Some(name) => Finding::warn(
            "preload",
            format!("LD_PRELOAD already contains {name}, which also wraps the driver"),
            "remove it: two wrappers count the same memory twice",
        ),
        None => Finding::ok(
            "preload",
            format!("LD_PRELOAD={preload} is kept; gpushare's library is put before it"),
        ),
    })
}
