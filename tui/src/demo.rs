//! The demonstration: four workloads that want the same device, and what became of it.
//!
//! They differ in everything an operator can set: one trains without a pause, one serves in short
//! bursts, one keeps asking for more memory than its quota, one computes in long kernels under a
//! cap. The cast is a table; it plays on a [`Stage`].

use std::time::Duration;

use crate::exit::Failure;
use crate::launch::Settings;
use crate::stage::Stage;

pub mod report;

/// The lock policy of the demonstration.
pub const POLICY: &str = "timeslice=5ms order=fair";

/// One of the cast.
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
            "--burst=4",
            "--gap-us=6000",
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
            "--burst=2",
            "--gap-us=40000",
            "--until-oom",
            "--piece=192M",
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
            "--burst=2",
            "--gap-us=4000",
            "--memory=1GiB",
            "--churn",
            "--piece=128M",
        ],
    },
];

/// Starts the cast. They end by themselves a while after `limit`, should this program be killed.
pub fn start(stage: &mut Stage, limit: Duration) -> Result<(), Failure> {
    for role in &CAST {
        let settings = Settings {
            memory: role.memory.map(Into::into),
            weight: Some(role.weight.into()),
            priority: Some(role.priority.into()),
            cap: role.cap.map(Into::into),
            name: Some(role.name.into()),
            ..Settings::default()
        };
        stage.start(&settings, role.arguments, limit, &[])?;
    }
    Ok(())
}

/// The labels of the cast.
pub fn names() -> [&'static str; 4] {
    CAST.map(|role| role.name)
}
