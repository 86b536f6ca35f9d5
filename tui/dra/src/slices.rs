//! The ResourceSlice that this node publishes for the scheduler. It has the GPUs and their memory, or the one device by
//! which a claim for NVIDIA's driver asks for enforcement of its share.

use serde_json::{Value, json};

use crate::api::{Api, RESOURCES, Unanswered};
use crate::claim::DRIVER;
use crate::quantity;

/// The devices that a node offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Beside NVIDIA's DRA driver, which gives out the GPUs: one device, `limits`, for any number of claims
    Limits,
    /// Without it: the GPUs themselves, of whose memory claims take shares
    Gpus,
}

/// A GPU, or an instance of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// UUID of the GPU: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Name of the product.
    pub product: String,
    /// Memory in bytes.
    pub bytes: u64,
}

impl Gpu {
    /// Returns its name as a device, in which only lower-case letters, digits and dashes are valid.
    pub fn device(&self) -> String {
        self.uuid.to_ascii_lowercase()
    }
}

/// Returns the UUID of a device with a name that [`Gpu::device`] made.
pub fn uuid_of(device: &str) -> Option<String> {
    let (kind, rest) = device.split_once('-')?;
    matches!(kind, "gpu" | "mig").then(|| format!("{}-{rest}", kind.to_ascii_uppercase()))
}

/// Maximum length of an attribute; the API server refuses a slice with a longer one.
const LONGEST_ATTRIBUTE: usize = 64;

fn fitting(text: &str) -> String {
    let mut text = text.to_owned();
    while text.len() > LONGEST_ATTRIBUTE {
        text.pop();
    }
    text
}

/// Returns the devices of a slice.
pub fn devices(mode: Mode, gpus: &[Gpu]) -> Value {
    let gpu = |gpu: &Gpu| {
        let all = quantity::mebibytes(gpu.bytes);
        json!({
            "name": gpu.device(),
            "allowMultipleAllocations": true,
            "attributes": {
                "type": { "string": "gpu" },
                "uuid": { "string": gpu.uuid },
                "productName": { "string": fitting(&gpu.product) },
            },
            "capacity": { "memory": {
                "value": all,
                // A claim without an amount gets the whole GPU.
                "requestPolicy": { "default": all, "validRange": { "min": "1Mi", "max": all, "step": "1Mi" } },
            } },
        })
    };
    match mode {
        Mode::Gpus => gpus.iter().map(gpu).collect(),
        Mode::Limits => json!([{
            "name": "limits",
            "allowMultipleAllocations": true,
            "attributes": { "type": { "string": "limits" } },
        }]),
    }
}

/// Returns the slice of a node.
pub fn slice(node: &str, node_uid: &str, devices: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name(node),
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true }],
        },
        "spec": spec(node, 1, devices),
    })
}

fn spec(node: &str, generation: u64, devices: &Value) -> Value {
    json!({
        "driver": DRIVER,
        "nodeName": node,
        "pool": { "name": node, "generation": generation, "resourceSliceCount": 1 },
        "devices": devices,
    })
}

fn name(node: &str) -> String {
    format!("{node}-{DRIVER}")
}

/// Publishes the slice if it is missing or different. Returns true if a change was made. The kubelet removes the slice
/// while the driver is away for long. The API server adds defaults, so only our own fields are compared.
pub fn publish(api: &Api, node: &str, devices: &Value) -> Result<bool, Unanswered> {
    let all = format!("{RESOURCES}/resourceslices");
    let one = format!("{all}/{}", name(node));
    let there = match api.get(&one) {
        Ok(there) => there,
        Err(Unanswered::Missing) => {
            let owner = api.get(&format!("/api/v1/nodes/{node}"))?;
            let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
            let made = api.create(&all, &slice(node, uid, devices))?;
            return kept(&made, devices);
        }
        Err(why) => return Err(why),
    };
    let generation = there["spec"]["pool"]["generation"].as_u64().unwrap_or(0);
    if says(&there["spec"], &spec(node, generation, devices)) {
        return Ok(false);
    }
    let mut better = there;
    better["spec"] = spec(node, generation + 1, devices);
    kept(&api.replace(&one, &better)?, devices)
}

/// Checks that the API server kept all fields, because it silently drops those of features that it does not have.
fn kept(made: &Value, devices: &Value) -> Result<bool, Unanswered> {
    if says(&made["spec"]["devices"], devices) {
        return Ok(true);
    }
    let why = "the API server dropped a part of the ResourceSlice; switch on its feature gate DRAConsumableCapacity, and the \
               scheduler's and the kubelet's (they are on since Kubernetes 1.36)";
    Err(Unanswered::Failed(why.to_owned()))
}

/// Returns true if `there` has all fields of `wanted`. Equal amounts may be written differently.
fn says(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| there.get(name).is_some_and(|there| says(there, wanted))),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there
                    .iter()
                    .zip(wanted)
                    .all(|(there, wanted)| says(there, wanted))
        }
        (Value::String(a), Value::String(b)) => {
            a == b || quantity::bytes(a).is_some_and(|a| quantity::bytes(b) == Some(a))
        }
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_that_kubernetes_takes_and_its_uuid_comes_back() {
        let gpu = Gpu {
            uuid: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".into(),
            product: "H".repeat(96),
            bytes: 1 << 36,
        };
        assert_eq!(uuid_of(&gpu.device()).as_ref(), Some(&gpu.uuid));
        assert_eq!(uuid_of("limits"), None);
        let devices = devices(Mode::Gpus, &[gpu]);
        assert_eq!(devices[0]["capacity"]["memory"]["value"], "65536Mi");
        let product = &devices[0]["attributes"]["productName"]["string"];
        assert_eq!(*product, "H".repeat(LONGEST_ATTRIBUTE));
        let mut there = devices.clone();
        there[0]["capacity"]["memory"]["value"] = "64Gi".into();
        there[0]["more"] = "of the server's".into();
        assert!(says(&there, &devices));
        there[0]["name"] = "another".into();
        assert!(!says(&there, &devices) && !says(&serde_json::json!([]), &devices));
    }
}
