//! A claim of Kubernetes, and the limits that it asks for: memory by its shares, weight and others by its parameters.
//!
//! Only the fields that are read here are declared; other fields of a claim are ignored.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use shm_layout::environment::Environment;
use shm_layout::{Reserve, SETTINGS, variables};

use crate::quantity;

/// Name of this driver in a cluster.
pub const DRIVER: &str = "gpushare.dev";
/// Name of NVIDIA's driver, whose shares this driver enforces.
pub const NVIDIA: &str = "gpu.nvidia.com";
/// API version of our parameters in a claim or a class.
const PARAMETERS: &str = "gpushare.dev/v1alpha1";
/// Weight of a process without a setting.
const PLAIN_WEIGHT: u32 = 100;

/// A claim.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaim {
    /// Names of the claim.
    pub metadata: Metadata,
    /// Decisions of the scheduler.
    #[serde(default)]
    pub status: Status,
}

/// The names of an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Name in the namespace.
    pub name: String,
    /// Namespace.
    #[serde(default)]
    pub namespace: String,
    /// Unique id, which differs from those of earlier objects with this name.
    pub uid: String,
    /// Objects whose end also ends this one.
    #[serde(default)]
    pub owner_references: Vec<Owner>,
}

/// An owner of an object.
#[derive(Debug, Deserialize)]
pub struct Owner {
    /// Kind of the owner: `Pod` for a claim that was made from a template.
    pub kind: String,
    /// Unique id of the owner.
    pub uid: String,
}

/// The scheduler's decisions.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    allocation: Option<Allocation>,
    #[serde(default)]
    reserved_for: Vec<Consumer>,
}

#[derive(Debug, Deserialize)]
struct Allocation {
    #[serde(default)]
    devices: Devices,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    results: Vec<Allocated>,
    config: Vec<Config>,
}

/// A device that is allocated to a claim.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocated {
    /// Request that the device is for.
    pub request: String,
    /// Driver of the device.
    pub driver: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device in the pool.
    pub device: String,
    /// Share of the device, if it can have several.
    #[serde(rename = "shareID")]
    pub share: Option<String>,
    /// Amount of each capacity of the device.
    #[serde(default)]
    pub consumed_capacity: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(default)]
    source: String,
    #[serde(default)]
    requests: Vec<String>,
    opaque: Option<Opaque>,
}

#[derive(Debug, Deserialize)]
struct Opaque {
    driver: String,
    parameters: Value,
}

#[derive(Debug, Deserialize)]
struct Consumer {
    resource: String,
    name: String,
    uid: String,
}

/// Returns the name of a container that uses more than one of these claims. A process can be in one group only, so the
/// limits of the others would be lost.
pub fn container_with_two(pod: &Value, claims: &[&str]) -> Option<String> {
    let uses_it = |container: &Value, claim: &str| !uses(pod, container, claim).is_empty();
    container(pod, |container| {
        let used = claims.iter().filter(|claim| uses_it(container, claim));
        used.count() > 1
    })
}

/// Returns the name of a container that uses a claim without any of these requests of it. It would have no device of this driver, and
/// so no limit.
pub fn container_without(pod: &Value, claim: &str, requests: &[&str]) -> Option<String> {
    // Without a request, all of the claim is meant.
    let has_ours = |used: &&Value| {
        let request = used["request"].as_str().unwrap_or_default();
        request.is_empty() || requests.contains(&request)
    };
    container(pod, |container| {
        let used = uses(pod, container, claim);
        !used.is_empty() && !used.iter().any(has_ours)
    })
}

/// Returns the name of the first container that is meant.
fn container(pod: &Value, is_meant: impl Fn(&Value) -> bool) -> Option<String> {
    let mut kinds = ["initContainers", "containers"].into_iter();
    let found = kinds.find_map(|kind| list(&pod["spec"][kind]).iter().find(|one| is_meant(one)))?;
    Some(found["name"].as_str().unwrap_or_default().to_owned())
}

/// Returns a container's uses of a claim.
fn uses<'c>(pod: &Value, container: &'c Value, claim: &str) -> Vec<&'c Value> {
    // The pod names its claims, or Kubernetes made them from a template.
    let named = list(&pod["spec"]["resourceClaims"]).iter();
    let made = list(&pod["status"]["resourceClaimStatuses"]).iter();
    let of_claim = named
        .chain(made)
        .filter(|entry| entry["resourceClaimName"] == *claim);
    let names: Vec<&Value> = of_claim.map(|entry| &entry["name"]).collect();
    let used = list(&container["resources"]["claims"]).iter();
    used.filter(|used| names.contains(&&used["name"])).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The limits that a claim asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Memory in bytes of all its processes together, on each device.
    pub memory: Option<u64>,
    /// Weight of each process, under `order=fair`.
    pub weight: Option<u32>,
    /// Cap of each process, in percent.
    pub cap: Option<String>,
    /// Memory on each device that no process outside the claim can take, in bytes: the request beside the limit.
    pub reserve: Option<u64>,
    /// Variables for the other settings.
    pub env: Vec<(String, String)>,
    /// Sentences about requests that are not supported.
    pub remarks: Vec<String>,
}

impl ResourceClaim {
    /// Returns its devices of this driver.
    pub fn ours(&self) -> Vec<Allocated> {
        let all = self.allocated();
        all.filter(|one| one.driver == DRIVER).cloned().collect()
    }

    fn allocated(&self) -> impl Iterator<Item = &Allocated> {
        let allocation = self.status.allocation.iter();
        allocation.flat_map(|allocation| &allocation.devices.results)
    }

    /// Returns true if pods that are not known now may use it later.
    pub fn is_shared(&self) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        !owners.any(|owner| owner.kind == "Pod")
    }

    /// Returns the UIDs of its pods, as far as they are known.
    pub fn pods(&self) -> BTreeSet<String> {
        let consumers = self.status.reserved_for.iter();
        let pods = consumers.filter(|consumer| consumer.resource == "pods");
        let owners = self.metadata.owner_references.iter();
        let owners = owners.filter(|owner| owner.kind == "Pod");
        pods.map(|pod| pod.uid.clone())
            .chain(owners.map(|owner| owner.uid.clone()))
            .collect()
    }

    /// Returns the names of the pods that it is reserved for.
    pub fn pod_names(&self) -> Vec<&str> {
        let consumers = self.status.reserved_for.iter();
        let pods = consumers.filter(|consumer| consumer.resource == "pods");
        pods.map(|pod| &*pod.name).collect()
    }

    /// Returns the limits that it asks for. The error is a sentence about a request that cannot be fulfilled.
    pub fn asked(&self) -> Result<Asked, String> {
        let mut asked = Asked {
            memory: self.memory()?,
            ..Asked::default()
        };
        let allocation = self.status.allocation.iter();
        let configs = allocation.flat_map(|allocation| &allocation.devices.config);
        for config in configs.filter(|config| self.concerns(config)) {
            let Some(opaque) = &config.opaque else {
                continue;
            };
            // Users who may make classes administer the cluster, but any user can make a claim.
            let of_class = config.source == "FromClass";
            match opaque.driver.as_str() {
                DRIVER => asked.read(&opaque.parameters, of_class)?,
                NVIDIA => asked.read_nvidia(&opaque.parameters, of_class),
                _ => {}
            }
        }
        if asked.reserve > asked.memory {
            return Err("a claim may reserve at most its share of memory".into());
        }
        Ok(asked)
    }

    /// Returns its memory in bytes on each device, which must be equal on all. A device may give it several shares.
    fn memory(&self) -> Result<Option<u64>, String> {
        let mut of_device = BTreeMap::new();
        for one in self
            .allocated()
            .filter(|one| [DRIVER, NVIDIA].contains(&&*one.driver))
        {
            let capacity = one.consumed_capacity.iter();
            let mut memory = capacity.filter(|(name, _)| name.rsplit('/').next() == Some("memory"));
            if let Some((_, text)) = memory.next() {
                let bytes = quantity::bytes(text);
                let bytes =
                    bytes.ok_or_else(|| format!("its share of memory, {text:?}, is no amount"))?;
                let sum = of_device
                    .entry((&one.driver, &one.pool, &one.device))
                    .or_insert(0u64);
                *sum = sum.saturating_add(bytes);
            }
        }
        let mut shares: BTreeSet<u64> = of_device.into_values().collect();
        match shares.len() {
            0 | 1 => Ok(shares.pop_first()),
            _ => Err("its devices have different shares of memory; ask for the same of each, or make a claim for each".into()),
        }
    }

    /// Returns true if the parameters are for an allocated device of ours or of NVIDIA's.
    fn concerns(&self, config: &Config) -> bool {
        let of = |request: &String| {
            let mut names = config.requests.iter();
            // For a request with alternatives, the parameters name the request or the chosen alternative.
            names.any(|name| {
                let rest = request.strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let mut all = self.allocated();
        config.requests.is_empty() || all.any(|one| of(&one.request))
    }
}

/// Our parameters in a claim or a class.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parameters {
    api_version: String,
    kind: String,
    /// Settings of a process, each by its word in camel case.
    #[serde(flatten)]
    settings: BTreeMap<String, Value>,
}

impl Asked {
    fn read(&mut self, parameters: &Value, of_class: bool) -> Result<(), String> {
        let read: Parameters = serde_json::from_value(parameters.clone())
            .map_err(|error| format!("its parameters for {DRIVER}: {error}"))?;
        if (&*read.api_version, &*read.kind) != (PARAMETERS, "Share") {
            return Err(format!(
                "its parameters for {DRIVER} are {} {}, and this release knows {PARAMETERS} Share",
                read.api_version, read.kind
            ));
        }
        let mut set = Vec::new();
        for (key, value) in read.settings {
            let about = SETTINGS
                .iter()
                .find(|about| !about.variable.is_empty() && camel_case(about.word) == key);
            let text = match value {
                Value::String(text) => Some(text),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            };
            let (Some(about), Some(text)) = (about, text) else {
                return Err(format!(
                    "its parameters for {DRIVER}: {key} is unknown, or its value has no place there"
                ));
            };
            set.push((about.variable, text));
        }
        // Checked in the same way as the library will read them.
        let get = |name: &str| Some(set.iter().find(|(set, _)| *set == name)?.1.clone());
        let environment = Environment::read(&get);
        if let Some(complaint) = environment.complaints.first() {
            return Err(format!("its parameters for {DRIVER}: {complaint}"));
        }
        let asked = environment.limits.settings;
        if asked.weight.is_some_and(|weight| weight > PLAIN_WEIGHT) && !of_class {
            return Err(format!(
                "a claim may ask for a weight up to {PLAIN_WEIGHT}; more is for a DeviceClass"
            ));
        }
        // The group of the claim has no priority, and the broker takes none above 0 from a launch: it would be lost in silence.
        if asked.priority.is_some_and(|priority| priority > 0) {
            return Err(
                "a claim and a DeviceClass may ask for a priority up to 0; what is urgent gets more weight by a DeviceClass, under \
                 order=fair"
                    .into(),
            );
        }
        self.weight = asked.weight.or(self.weight);
        match asked.reserve {
            None => {}
            Some(Reserve::Nothing) => self.reserve = None,
            Some(Reserve::Percent(_)) => {
                return Err(format!("its parameters for {DRIVER}: reserve is a size"));
            }
            Some(reserve) => self.reserve = Some(reserve.of_device(0)),
        }
        for (variable, text) in set {
            match variable {
                // The group of the claim has these.
                variables::WEIGHT | variables::RESERVE => {}
                variables::CAP => self.cap = Some(text),
                _ => {
                    self.env.retain(|(set, _)| set != variable);
                    self.env.push((variable.to_owned(), text));
                }
            }
        }
        Ok(())
    }

    /// Converts NVIDIA's setting for the length of a time slice to a weight.
    fn read_nvidia(&mut self, parameters: &Value, of_class: bool) {
        let sharing = &parameters["sharing"];
        if sharing["strategy"] != "TimeSlicing" {
            return;
        }
        let weight = match sharing["timeSlicingConfig"]["interval"].as_str() {
            Some("Short") => PLAIN_WEIGHT / 2,
            Some("Long") if of_class => PLAIN_WEIGHT * 2,
            Some("Long") => {
                let remark = format!(
                    "the interval Long counts as weight {PLAIN_WEIGHT}: a claim may not ask for more than others have"
                );
                self.remarks.push(remark);
                PLAIN_WEIGHT
            }
            _ => PLAIN_WEIGHT,
        };
        self.weight = Some(weight);
    }
}

/// Returns a setting's word as a key of Kubernetes: `onFull`.
fn camel_case(word: &str) -> String {
    let mut parts = word.split('-');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |key, part| {
        key + &part[..1].to_ascii_uppercase() + &part[1..]
    })
}

#[cfg(test)]
mod tests;
