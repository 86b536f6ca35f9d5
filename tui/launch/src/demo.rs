//! The demonstration: four workloads share one device under different settings.
//!
//! They differ in everything that an operator can set: one trains without a pause, one serves in short bursts, one keeps
//! asking for more memory than its quota, and one computes in long kernels under a cap. The workloads are a table; they run
//! on a [`Stage`].

use std::time::Duration;

use crate::program::Settings;
use crate::stage::Stage;
use gpushare_base::text::exit::Failure;
use shm_layout::variables;

pub mod report;

/// The lock policy of the demonstration.
///
/// The turns are long enough to be visible: a column of the dashboard's lanes is a quarter of a second, and turns of
/// milliseconds would become an even grey. A synchronisation does not end a turn early, and the grace is long enough to
/// drain the work that is queued at the end.
pub const POLICY: &str = "timeslice=400ms order=fair sync-skips=1000 grace=1s";

/// A workload of the demonstration, with its settings.
#[derive(Clone, Copy)]
struct Role {
    name: &'static str,
    memory: Option<&'static str>,
    weight: &'static str,
    priority: &'static str,
    cap: Option<&'static str>,
    arguments: &'static [&'static str],
}

const CAST: [Role; 4] = [
    Role {
        name: "train",
        memory: Some("6GiB"),
        weight: "100",
        priority: "0",
        cap: None,
        arguments: &["--kernel-us=4000", "--burst=4", "--memory=4GiB"],
    },
    Role {
        name: "serve",
        memory: Some("3GiB"),
        weight: "300",
        priority: "5",
        cap: None,
        arguments: &[
            "--kernel-us=500",
            "--burst=400",
            "--gap-us=900000",
            "--memory=2GiB",
        ],
    },
    Role {
        name: "notebook",
        memory: Some("1GiB"),
        weight: "50",
        priority: "0",
        cap: None,
        arguments: &[
            "--kernel-us=2000",
            "--burst=50",
            "--gap-us=400000",
            "--until-oom",
            "--piece=384M",
        ],
    },
    Role {
        name: "batch",
        memory: None,
        weight: "100",
        priority: "-5",
        cap: Some("30%"),
        arguments: &[
            "--kernel-us=8000",
            "--burst=25",
            "--gap-us=300000",
            "--memory=1GiB",
            "--churn",
            "--piece=128M",
        ],
    },
];

/// Starts the workloads. If this program is killed, they end by themselves a while after `limit`.
pub fn start(stage: &mut Stage, limit: Duration) -> Result<(), Failure> {
    for role in &CAST {
        let settings = Settings::default()
            .with(variables::MEMORY, role.memory)
            .with(variables::WEIGHT, Some(role.weight))
            .with(variables::PRIORITY, Some(role.priority))
            .with(variables::CAP, role.cap)
            .with(variables::NAME, Some(role.name));
        stage.start(&settings, role.arguments, limit, &[])?;
    }
    Ok(())
}

/// Returns the labels of the workloads.
pub fn names() -> [&'static str; 4] {
    CAST.map(|role| role.name)
}
