//! The demonstration: workloads that share one device, in a scenario.
//!
//! `jobs` differ in everything that an operator can set: one trains without a pause, one serves in short bursts, one keeps
//! asking for more memory than its quota, and one computes in long kernels under a cap. `models` are servers that do not fit
//! together: each request brings the memory of its server back. A scenario is a table; its programs run on a [`Stage`].

use std::time::Duration;

use crate::program::Settings;
use crate::stage::Stage;
use gpushare_base::text::exit::Failure;
use shm_layout::{Change, DeviceEdit, QuotaValue, Set, Snapshot, variables};

pub mod report;

/// A scenario of the demonstration.
#[derive(Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The lock policy.
    pub policy: &'static str,
    /// The memory of the device that its programs may hold together, so that each has others evicted; `None` for all of it.
    room: Option<u64>,
    cast: &'static [Role],
}

/// A workload of the demonstration, with its settings.
#[derive(Clone, Copy, Debug)]
struct Role {
    name: &'static str,
    memory: Option<&'static str>,
    weight: &'static str,
    priority: &'static str,
    cap: Option<&'static str>,
    arguments: &'static [&'static str],
}

const ROLE: Role = Role {
    name: "",
    memory: None,
    weight: "100",
    priority: "0",
    cap: None,
    arguments: &[],
};

/// The scenarios; the first is the default.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "jobs",
        // The turns are long enough to be visible: a column of the dashboard's lanes is a quarter of a second, and turns of
        // milliseconds would become an even grey. A synchronisation does not end a turn early, and the grace is long enough to
        // drain the work that is queued at the end.
        policy: "timeslice=400ms order=fair sync-skips=1000 grace=1s",
        room: None,
        cast: &[
            Role {
                name: "train",
                memory: Some("6GiB"),
                arguments: &["--kernel-us=4000", "--burst=4", "--memory=4GiB"],
                ..ROLE
            },
            Role {
                name: "serve",
                memory: Some("3GiB"),
                weight: "300",
                priority: "5",
                arguments: &[
                    "--kernel-us=500",
                    "--burst=400",
                    "--gap-us=900000",
                    "--memory=2GiB",
                ],
                ..ROLE
            },
            Role {
                name: "notebook",
                memory: Some("1GiB"),
                weight: "50",
                arguments: &[
                    "--kernel-us=2000",
                    "--burst=50",
                    "--gap-us=400000",
                    "--until-oom",
                    "--piece=384M",
                ],
                ..ROLE
            },
            Role {
                name: "batch",
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
                ..ROLE
            },
        ],
    },
    Scenario {
        name: "models",
        policy: "off",
        // Room for two and a half of them.
        room: Some(640 << 20),
        cast: &[
            Role {
                name: "chat",
                arguments: &[
                    "--kernel-us=4000",
                    "--burst=40",
                    "--gap-us=700000",
                    "--memory=256M",
                ],
                ..ROLE
            },
            Role {
                name: "code",
                arguments: &[
                    "--kernel-us=4000",
                    "--burst=60",
                    "--gap-us=1900000",
                    "--memory=256M",
                ],
                ..ROLE
            },
            Role {
                name: "speech",
                arguments: &[
                    "--kernel-us=2000",
                    "--burst=30",
                    "--gap-us=3100000",
                    "--memory=256M",
                ],
                ..ROLE
            },
            Role {
                name: "image",
                arguments: &[
                    "--kernel-us=8000",
                    "--burst=60",
                    "--gap-us=5300000",
                    "--memory=256M",
                ],
                ..ROLE
            },
        ],
    },
];

impl Scenario {
    /// Returns the scenario with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Returns the labels of the workloads.
    pub fn names(&self) -> Vec<&'static str> {
        self.cast.iter().map(|role| role.name).collect()
    }

    /// Starts the first workload, or all others. If this program is killed, they end by themselves a while after `limit`.
    pub fn start(&self, stage: &mut Stage, is_first: bool, limit: Duration) -> Result<(), Failure> {
        let (first, others) = self.cast.split_at(1);
        for role in if is_first { first } else { others } {
            let mut settings = Settings::default()
                .with(variables::MEMORY, role.memory)
                .with(variables::WEIGHT, Some(role.weight))
                .with(variables::PRIORITY, Some(role.priority))
                .with(variables::CAP, role.cap)
                .with(variables::NAME, Some(role.name));
            if self.room.is_some() {
                settings = settings.with(variables::ON_FULL, Some("wait"));
                settings.swappable = true;
            }
            stage.start(&settings, role.arguments, limit, &[])?;
        }
        Ok(())
    }

    /// Returns the edits of the scenario, once its first workload is on a device.
    pub fn changes(&self, now: &Snapshot) -> Result<Vec<Change>, Failure> {
        let wrong = |error| Failure::failed(format!("the demo's policy: {error}"));
        let mut changes = vec![Change::Policy {
            device: None,
            policy: Some(self.policy.parse().map_err(wrong)?),
            until: None,
        }];
        let first = now.processes.iter().find(|process| {
            self.cast
                .iter()
                .any(|role| role.name == process.identity.label)
        });
        let used = first.and_then(|process| process.devices.first());
        let device = used.and_then(|used| {
            now.devices
                .iter()
                .find(|device| device.index == used.device)
        });
        if let Some((room, device)) = self.room.zip(device) {
            changes.push(Change::DeviceLimit {
                uuid: device.uuid,
                value: QuotaValue::Bytes(room),
            });
            changes.push(Change::DeviceMemory {
                device: Some(device.uuid),
                settings: DeviceEdit {
                    overcommit: Set::To(true),
                    ..DeviceEdit::default()
                },
            });
        }
        Ok(changes)
    }
}
