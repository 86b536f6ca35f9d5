//! A scenario: the devices of a world and the faults to inject, as TOML.
//!
//! ```toml
//! [driver]
//! version = "580.95.05"    # what NVML reports
//!
//! [[device]]
//! memory = "8GiB"
//! compute = "9.0"
//! speed = 2.0              # kernels take half their time
//! slice = "2ms"            # processes take turns of this length; without it each kernel runs to its end
//! context = "500MiB"       # device memory of a process's first context
//! code = "10MiB"           # device memory of each module, and of each kernel from its first launch
//! slowed_by = "heat"       # what keeps the clocks low under load, for NVML: "power-cap", "heat", "power-brake", "hardware"
//! pcie_generation = 3      # of the link under load, for NVML; it could run at generation 5
//! pcie_width = 8           # lanes of the link, for NVML; it could have 16
//!
//! [[device]]
//! memory = "16GiB"
//! [[device.mig]]           # the GPU is in MIG mode; programs see its instances
//! profile = "1g.5gb"
//! memory = "5GiB"
//!
//! [checkpoint]
//! out = "2000MiB"          # per second; without it a checkpoint takes no time
//! back = "5GiB"            # per second
//!
//! [link]
//! out = "50GiB"            # per second from a device to the host, for copies of 1 MiB and more; without it as fast as memory
//! back = "50GiB"           # per second from the host to a device
//!
//! [mishaps]
//! slow_alloc = "2ms"       # each allocation takes this long
//! slow_event = "1ms"       # a stream reaches each event this much later
//! missing = ["cuMemAllocAsync"]   # cuGetProcAddress does not find these
//! no_nvml = true           # the NVML library does not load
//! swap = "unmap"           # fails: "out", "back" copies of 1 MiB and more to and from the host on a stream, "unmap" unmapping,
//!                          # "record" recording an event behind all work of a context, "hash" loading a module
//! checkpoint = "restore"   # "lock" times out, "checkpoint", "restore" and "unlock" fail for good, "room" allows
//!                          # another try after a restore without room
//! ```

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// The built-in scenarios: name and text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("two-gpus", include_str!("../scenarios/two-gpus.toml")),
    ("one-gpu", include_str!("../scenarios/one-gpu.toml")),
    ("mig", include_str!("../scenarios/mig.toml")),
    ("eight-gpus", include_str!("../scenarios/eight-gpus.toml")),
    ("time-slices", include_str!("../scenarios/time-slices.toml")),
    ("ailing", include_str!("../scenarios/ailing.toml")),
    ("small", include_str!("../scenarios/small.toml")),
    ("no-nvml", include_str!("../scenarios/no-nvml.toml")),
    ("no-gpu", include_str!("../scenarios/no-gpu.toml")),
    (
        "slow-checkpoint",
        include_str!("../scenarios/slow-checkpoint.toml"),
    ),
    ("slow-alloc", include_str!("../scenarios/slow-alloc.toml")),
    (
        "missing-symbols",
        include_str!("../scenarios/missing-symbols.toml"),
    ),
];

/// A scenario.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// The driver's properties.
    pub driver: Driver,
    /// The GPUs.
    #[serde(rename = "device")]
    pub devices: Vec<Gpu>,
    /// Speed at which memory leaves and returns.
    pub checkpoint: Rates,
    /// Speed of copies between the host and a device.
    pub link: Rates,
    /// The faults to inject.
    pub mishaps: Mishaps,
}

/// Speeds of moving memory between a device and the host.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// Bytes per second from the device; 0 means at once.
    pub out: Bytes,
    /// Bytes per second to the device; 0 means at once.
    pub back: Bytes,
}

/// A step of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Locking: the process never becomes idle.
    Lock,
    /// Moving its memory off the devices.
    Checkpoint,
    /// Moving its memory back.
    Restore,
    /// A restore that finds no room leaves the process as it was.
    Room,
    /// Unlocking.
    Unlock,
}

/// A step of a program that moves its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Swap {
    /// Recording an event behind all work of a context.
    Record,
    /// Loading the module that hashes memory, or any other.
    Hash,
    /// Copying to the host.
    Out,
    /// Unmapping memory.
    Unmap,
    /// Copying to a device.
    Back,
}

/// The driver's properties.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Driver {
    /// The kernel driver's version, as NVML reports it.
    pub version: String,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            version: "580.95.05".into(),
        }
    }
}

/// A GPU.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gpu {
    /// Name of the GPU; the default says that it is simulated.
    pub name: String,
    /// Device memory.
    pub memory: Bytes,
    /// Compute capability, `major.minor`.
    pub compute: Compute,
    /// Speed of kernels; 2.0 halves each duration.
    pub speed: f64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Length of a process's turn, as with a driver's time slices. Without it kernels run one after the other, in order of
    /// arrival.
    pub slice: Span,
    /// Bytes of device memory that each process's first context takes.
    pub context: Bytes,
    /// Bytes of device memory that code takes in a context: of each module, and of each kernel from its first launch.
    pub code: Bytes,
    /// The reason that NVML gives for low clocks under load.
    pub slowed_by: Option<Slowdown>,
    /// Generation of its PCIe link under load, for NVML.
    pub pcie_generation: u32,
    /// Lanes of its PCIe link, for NVML.
    pub pcie_width: u32,
    /// MIG instances; if there are any, the GPU is in MIG mode.
    pub mig: Vec<Mig>,
}

/// The generation and the width of the fastest PCIe link of a GPU.
pub const FASTEST_PCIE: (u32, u32) = (5, 16);

/// A reason for low clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slowdown {
    /// The power limit is reached.
    PowerCap,
    /// The GPU is too hot.
    Heat,
    /// The machine's power supply demands it.
    PowerBrake,
    /// The hardware, which does not say more.
    Hardware,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            name: "Simulated GPU".into(),
            memory: Bytes(8 << 30),
            compute: Compute { major: 9, minor: 0 },
            speed: 1.0,
            multiprocessors: 132,
            slice: Span::default(),
            context: Bytes(0),
            code: Bytes(0),
            slowed_by: None,
            pcie_generation: FASTEST_PCIE.0,
            pcie_width: FASTEST_PCIE.1,
            mig: Vec::new(),
        }
    }
}

/// A MIG instance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// The profile's name, as `1g.5gb`.
    pub profile: String,
    /// Device memory.
    pub memory: Bytes,
    /// Streaming multiprocessors.
    #[serde(default = "Mig::default_multiprocessors")]
    pub multiprocessors: u32,
}

impl Mig {
    fn default_multiprocessors() -> u32 {
        14
    }
}

/// The faults to inject.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mishaps {
    /// Delay of each allocation.
    pub slow_alloc: Span,
    /// Time by which a stream reaches each event later.
    pub slow_event: Span,
    /// Names that `cuGetProcAddress` reports as not found.
    pub missing: Vec<String>,
    /// Makes the initialisation of NVML fail.
    pub no_nvml: bool,
    /// The step of a checkpoint that fails.
    pub checkpoint: Option<Step>,
    /// The step of a program's own memory movement that fails.
    pub swap: Option<Swap>,
}

/// The reason why a scenario is invalid, as a sentence.
#[derive(Debug)]
pub struct BadScenario(pub String);

impl fmt::Display for BadScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadScenario {}

impl Scenario {
    /// Returns the text of a built-in scenario, or of the file with this path.
    pub fn text_of(name_or_path: &str) -> Result<String, BadScenario> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Ok((*text).to_owned());
        }
        std::fs::read_to_string(name_or_path).map_err(|error| {
            let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            BadScenario(format!(
                "scenario `{name_or_path}` is neither a readable file ({error}) nor one of {}",
                names.join(", ")
            ))
        })
    }

    /// Returns the name of the built-in scenario with this text.
    pub fn name_of(text: &str) -> Option<&'static str> {
        let mut built_in = BUILT_IN.iter();
        built_in
            .find(|(_, known)| *known == text)
            .map(|(name, _)| *name)
    }

    /// Reads a scenario's text and checks it.
    pub fn parse(text: &str) -> Result<Self, BadScenario> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| BadScenario(format!("bad scenario: {error}")))?;
        let units: usize = scenario
            .devices
            .iter()
            .map(|gpu| gpu.mig.len().max(1))
            .sum();
        if units > crate::layout::MAX_DEVICES {
            let limit = crate::layout::MAX_DEVICES;
            return Err(BadScenario(format!(
                "a scenario has at most {limit} devices, not {units}"
            )));
        }
        for gpu in &scenario.devices {
            if !(gpu.speed.is_finite() && gpu.speed > 0.0) {
                return Err(BadScenario(format!(
                    "speed must be greater than 0, not {}",
                    gpu.speed
                )));
            }
        }
        Ok(scenario)
    }
}

/// A compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// The number before the point.
    pub major: u32,
    /// The number after the point.
    pub minor: u32,
}

impl<'de> Deserialize<'de> for Compute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parts = text.split_once('.').and_then(|(major, minor)| {
            Some(Self {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            })
        });
        parts.ok_or_else(|| de::Error::custom(format!("`{text}` is not a version such as \"9.0\"")))
    }
}

/// A number of bytes, written as `8GiB`, `512M` or `4096`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("", 1),
        ];
        scaled(&text, &units)
            .map(Self)
            .ok_or_else(|| de::Error::custom(format!("`{text}` is not a size such as \"8GiB\"")))
    }
}

/// A duration, written as `2ms`, `500us` or `1s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
        ];
        scaled(&text, &units)
            .map(|ns| Self(Duration::from_nanos(ns)))
            .ok_or_else(|| de::Error::custom(format!("`{text}` is not a time such as \"2ms\"")))
    }
}

/// Parses `text` as a whole number with one of these units.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    digits.trim().parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_scenario_is_valid() {
        for (name, text) in BUILT_IN {
            if let Err(error) = Scenario::parse(text) {
                panic!("{name}: {error}");
            }
        }
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(scaled("8G", &[("G", 1 << 30)]), Some(8 << 30));
        assert_eq!(scaled("8Q", &[("G", 1 << 30)]), None);
        assert_eq!(scaled("99999999999G", &[("G", 1 << 30)]), None);
    }

    #[test]
    fn a_bad_scenario_is_refused_with_the_reason() {
        let error = Scenario::parse("[[device]]\nmemory = \"8Q\"").unwrap_err();
        assert!(error.to_string().contains("`8Q` is not a size"), "{error}");
        assert!(Scenario::parse("[[device]]\nspeed = 0.0").is_err());
        assert!(Scenario::parse("[[device]]\ncolour = 1").is_err());
        assert!(Scenario::parse(&"[[device]]\n".repeat(17)).is_err());
        let error = Scenario::text_of("no-such").unwrap_err();
        assert!(error.to_string().contains("two-gpus"), "{error}");
    }
}
