//! The functions that the kubelet calls: registration, and preparation of claims when pods start and end.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use prost::Message;
use shm_layout::text::without_error_numbers;
use tokio::sync::Notify;

use crate::api::{Api, RESOURCES, Unanswered};
use crate::claim::{DRIVER, ResourceClaim, container_with_two, container_without};
use crate::grpc::{Refusal, Service};
use crate::messages::{
    Claim, Claims, DRA, Device, Empty, PluginInfo, PrepareAnswer, Prepared, REGISTRATION,
    RegistrationStatus, UnprepareAnswer, Unprepared,
};
use crate::node::{Node, Note, is_uid};

/// The driver on this node.
pub struct Plugin {
    /// Client of the cluster's API server.
    pub api: Api,
    /// State of this machine. The lock serializes the claims.
    pub node: Mutex<Node>,
    /// Path of the socket for calls about claims.
    pub endpoint: PathBuf,
    /// Notification of a registration. A starting kubelet has removed the slice, so it is published again.
    pub registered: Notify,
}

/// Writes a message to the log.
pub fn say(what: &str) {
    let _ = writeln!(
        io::stderr(),
        "gpushare-dra: {}",
        without_error_numbers(what)
    );
}

impl Service for Plugin {
    fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (service, function) = path.split_once('/').ok_or(Refusal::Unknown)?;
        let of_driver = DRA.iter().any(|(_, name)| *name == service);
        match function {
            "GetInfo" if service == REGISTRATION => Ok(self.info().encode_to_vec()),
            "NotifyRegistrationStatus" if service == REGISTRATION => {
                let status: RegistrationStatus = read(message)?;
                match status.plugin_registered {
                    true => {
                        say("the kubelet has registered this driver");
                        self.registered.notify_one();
                    }
                    false => say(&format!(
                        "the kubelet does not take this driver: {}",
                        status.error
                    )),
                }
                Ok(Empty {}.encode_to_vec())
            }
            "NodePrepareResources" if of_driver => {
                let claims = each(read(message)?, |claim| {
                    let devices = self.prepare(claim);
                    devices.map_or_else(
                        |error| Prepared {
                            error,
                            ..Prepared::default()
                        },
                        |devices| Prepared {
                            devices,
                            ..Prepared::default()
                        },
                    )
                });
                Ok(PrepareAnswer { claims }.encode_to_vec())
            }
            "NodeUnprepareResources" if of_driver => {
                let claims = each(read(message)?, |claim| Unprepared {
                    error: self.unprepare(claim).err().unwrap_or_default(),
                });
                Ok(UnprepareAnswer { claims }.encode_to_vec())
            }
            _ => Err(Refusal::Unknown),
        }
    }

    /// Keeps the stream of the devices' health open. If it were refused, the kubelet would retry every few seconds and log
    /// an error each time.
    fn is_quiet(&self, path: &str) -> bool {
        path.ends_with("/NodeWatchResources")
    }
}

fn read<M: Message + Default>(message: &[u8]) -> Result<M, Refusal> {
    M::decode(message).map_err(|error| Refusal::Malformed(error.to_string()))
}

fn each<T>(claims: Claims, work: impl Fn(&Claim) -> T) -> BTreeMap<String, T> {
    let claims = claims.claims.into_iter();
    claims
        .map(|claim| (claim.uid.clone(), work(&claim)))
        .collect()
}

impl Plugin {
    fn info(&self) -> PluginInfo {
        PluginInfo {
            kind: "DRAPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: DRA.map(|(version, _)| version.to_owned()).to_vec(),
        }
    }

    fn prepare(&self, claim: &Claim) -> Result<Vec<Device>, String> {
        let named = |why: String| {
            let why = without_error_numbers(&why);
            let why = format!("claim {}/{}: {why}", claim.namespace, claim.name);
            say(&why);
            why
        };
        if !is_uid(&claim.uid) {
            return Err(named(format!("{:?} is no UID", claim.uid)));
        }
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let note = match node.noted(&claim.uid) {
            // The allocation of a claim does not change, so the API server is not queried again.
            Some(note) => note,
            None => {
                let claim = self.read(claim).map_err(named)?;
                let (note, remarks) = node.decide(&claim).map_err(named)?;
                self.check_pods(&node, &claim, &note).map_err(named)?;
                remarks.into_iter().for_each(|remark| drop(named(remark)));
                note
            }
        };
        if let Err(why) = node.put(&note) {
            return Err(named(why));
        }
        drop(named(format!(
            "prepared as group {} {}",
            note.group,
            note.settings.join(" ")
        )));
        Ok(devices(note))
    }

    /// Checks that each container with the claim has a device of this driver, and no other claim of it.
    fn check_pods(&self, node: &Node, claim: &ResourceClaim, note: &Note) -> Result<(), String> {
        let mut others = node.all();
        others.retain(|other| other.uid != note.uid && !other.pods.is_disjoint(&note.pods));
        let names: Vec<&str> = others
            .iter()
            .chain([note])
            .map(|note| &*note.name)
            .collect();
        let requests: Vec<&str> = note.devices.iter().map(|one| &*one.request).collect();
        for pod in claim.pod_names() {
            let path = format!("/api/v1/namespaces/{}/pods/{pod}", note.namespace);
            let pod = match self.api.get(&path) {
                Ok(pod) => pod,
                // Its containers do not start any more.
                Err(Unanswered::Missing) => continue,
                Err(why) => return Err(why.to_string()),
            };
            if let Some(container) = container_without(&pod, &note.name, &requests) {
                return Err(format!(
                    "the container {container} uses this claim without its request {}, so it would have the GPU without the limit; \
                     give the container all of the claim, or that request too",
                    requests.join(" or ")
                ));
            }
            if let Some(container) = container_with_two(&pod, &names) {
                return Err(format!(
                    "the container {container} has two claims of {DRIVER}, and a process keeps to one; give each container one, with \
                     as many requests as it needs"
                ));
            }
        }
        Ok(())
    }

    fn read(&self, claim: &Claim) -> Result<ResourceClaim, String> {
        let path = format!(
            "{RESOURCES}/namespaces/{}/resourceclaims/{}",
            claim.namespace, claim.name
        );
        let object = self.api.get(&path).map_err(|why| why.to_string())?;
        let read: ResourceClaim =
            serde_json::from_value(object).map_err(|error| error.to_string())?;
        match read.metadata.uid == claim.uid {
            true => Ok(read),
            false => Err("the API server has another claim of this name by now".to_owned()),
        }
    }

    fn unprepare(&self, claim: &Claim) -> Result<(), String> {
        if !is_uid(&claim.uid) {
            return Err(format!("{:?} is no UID", claim.uid));
        }
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        node.take(&claim.uid)
    }

    /// Repeats the preparation that a reboot removed, and removes that of claims that were deleted while the driver did not
    /// run.
    pub fn restore(&self) {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        // After one failure the API server is not queried again, because the kubelet waits for this driver.
        let mut answers = true;
        for note in node.all() {
            let claim = Claim {
                namespace: note.namespace.clone(),
                uid: note.uid.clone(),
                name: note.name.clone(),
            };
            let path = format!(
                "{RESOURCES}/namespaces/{}/resourceclaims/{}",
                note.namespace, note.name
            );
            let gone = answers
                && match self.api.get(&path) {
                    Ok(object) => object["metadata"]["uid"] != *note.uid,
                    Err(Unanswered::Missing) => true,
                    Err(why) => {
                        say(&format!("claims are kept as they are: {why}"));
                        answers = false;
                        false
                    }
                };
            let done = if gone {
                node.take(&claim.uid)
            } else {
                node.put(&note)
            };
            if let Err(why) = done {
                say(&format!("claim {}/{}: {why}", note.namespace, note.name));
            }
        }
    }
}

fn devices(note: Note) -> Vec<Device> {
    let device = |given: crate::node::Given| Device {
        request_names: vec![given.request],
        pool_name: given.pool,
        device_name: given.device,
        cdi_device_ids: given.cdi,
        share_id: given.share,
    };
    note.devices.into_iter().map(device).collect()
}
