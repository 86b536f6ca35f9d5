//! Kubernetes objects: those that the driver publishes, and the files in `assets/k8s`.

use std::process::Command;

use gpushare_testbed::{Testbed, Watched, eventually, python};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::resource::v1::{self as resource, ResourceSlice};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use shm_layout::{Identity, LaunchLimits, Segments};

use crate::support::*;

/// Checks that a document is an object of this type, without a field that the type does not have.
fn is<T: Serialize + DeserializeOwned>(document: &Value) {
    let read: T = serde_json::from_value(document.clone())
        .unwrap_or_else(|error| panic!("{error}: {document}"));
    let back = serde_json::to_value(read).expect("an object");
    assert_eq!(&back, document);
}

/// A time shorter than the driver's own polling interval.
const SOON: std::time::Duration = std::time::Duration::from_secs(20);
const SLICE: &str = "/apis/resource.k8s.io/v1/resourceslices/gpu01-gpushare.dev";

#[test]
fn the_slice_of_a_node_is_published_and_put_right_and_says_what_there_is() {
    let Some(mut node) = Node::new() else { return };
    node.drive(&[]);
    eventually("the slice is there", PATIENCE, || {
        node.object(SLICE).is_some()
    });
    let slice = node.object(SLICE).expect("there");
    is::<ResourceSlice>(&slice);
    assert_eq!(
        slice["metadata"]["ownerReferences"][0]["uid"],
        "uid-of-the-node"
    );
    assert_eq!(slice["spec"]["devices"][0]["name"], "limits");

    // The slice becomes one of two, and the second never appears.
    let mut half = slice.clone();
    half["spec"]["pool"]["resourceSliceCount"] = 2.into();
    node.put(SLICE, half);
    if let Some(_kubelet) = Kubelet::registering(&node, "v1.DRAPlugin") {
        // At once, because a kubelet that starts removes all slices of its node.
        eventually("the slice is whole", SOON, || {
            node.object(SLICE).expect("there")["spec"]["pool"]["resourceSliceCount"] == 1
        });
    }
    node.put(SLICE, slice);
    node.kill_driver();

    // Any process can enter a device that does not exist.
    std::fs::create_dir_all(node.run()).expect("ours");
    let segments = Segments::open_workload(&node.run()).expect("our own directory");
    let (identity, limits) = (Identity::of_self("tenant"), LaunchLimits::default());
    let tenant = shm_layout::register(&segments, &identity, &limits).expect("a free slot");
    let made_up = tenant.add_device([9; 16], 0, "Made-up GPU", 64 << 20, 0);
    made_up.expect("room for a device");
    let own = node.driver(&["--mode", "gpus"]);
    let silent = Testbed::with_scenario("no-nvml");
    let ended = Watched::spawn(&mut on_simulated(&silent, &own)).wait_output();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("NVML lists no GPU"), "{said}");

    // As after a change of the driver's mode: the GPUs replace the share, in a newer generation.
    let sim = Testbed::with_scenario("two-gpus");
    let driver = Watched::spawn(&mut on_simulated(&sim, &own));
    eventually("the GPUs are published", PATIENCE, || {
        assert!(!driver.ended(), "{}", driver.stderr());
        node.object(SLICE).expect("there")["spec"]["pool"]["generation"] == 2
    });
    let slice = node.object(SLICE).expect("there");
    is::<ResourceSlice>(&slice);
    let devices = slice["spec"]["devices"].as_array().expect("a list");
    assert_eq!(devices.len(), 2, "{slice}");
    let uuid = devices[0]["attributes"]["uuid"]["string"]
        .as_str()
        .expect("text");
    assert_eq!(devices[0]["name"], uuid.to_lowercase());
    assert_eq!(devices[0]["allowMultipleAllocations"], true);
    assert!(
        devices[0]["capacity"]["memory"]["value"]
            .as_str()
            .expect("text")
            .ends_with("Mi")
    );
}

/// Returns the command on a simulated machine.
fn on_simulated(sim: &Testbed, own: &Command) -> Command {
    let like = sim.sim_only("true");
    let mut command = Command::new(own.get_program());
    command.args(own.get_args());
    for (name, value) in like.get_envs().chain(own.get_envs()) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

pub const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/k8s");

/// Returns the documents of a file.
pub fn documents(text: &str) -> Vec<Value> {
    let all = serde_norway::Deserializer::from_str(text);
    let all = all.map(|one| Value::deserialize(one).expect("YAML"));
    all.filter(|one| !one.is_null()).collect()
}

/// Checks that a document is a Kubernetes object.
fn is_object(document: &Value) {
    let kind = document["kind"].as_str().expect("a kind");
    let found = KINDS
        .iter()
        .find(|(version, name, _)| *name == kind && document["apiVersion"] == *version);
    found
        .unwrap_or_else(|| panic!("no such kind: {document}"))
        .2(document);
}

type Check = fn(&Value);
const KINDS: [(&str, &str, Check); 12] = [
    ("v1", "Namespace", is::<core::Namespace>),
    ("v1", "Pod", is::<core::Pod>),
    ("v1", "ServiceAccount", is::<core::ServiceAccount>),
    ("apps/v1", "DaemonSet", is::<DaemonSet>),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        is::<ClusterRole>,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        is::<ClusterRoleBinding>,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        is::<ValidatingAdmissionPolicy>,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        is::<ValidatingAdmissionPolicyBinding>,
    ),
    (
        "resource.k8s.io/v1",
        "DeviceClass",
        is::<resource::DeviceClass>,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceClaim",
        is::<resource::ResourceClaim>,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        is::<resource::ResourceClaimTemplate>,
    ),
    ("resource.k8s.io/v1", "ResourceSlice", is::<ResourceSlice>),
];

/// Helm's own library. `None`, with a message, if it cannot be installed.
struct Helm(Watched);

impl Helm {
    fn new() -> Option<Self> {
        let python = python(&["helm-python-sdk==0.2.2"])?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/helm.py");
        let mut command = Command::new(python);
        command.arg(script).arg(format!("{ASSETS}/chart"));
        Some(Self(Watched::spawn(&mut command)))
    }

    /// Renders the chart. Returns the error if the values are refused.
    fn render(&mut self, values: &Value) -> Result<String, String> {
        let said: Value = serde_json::from_str(&self.0.ask(&values.to_string())).expect("JSON");
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        text("manifests").ok_or_else(|| text("refused").expect("one of the two"))
    }
}

/// Returns what `assets/k8s/manifests` prints with these values, or its error.
pub fn manifests(values: &[&str]) -> Result<Vec<Value>, String> {
    let mut command = Command::new(format!("{ASSETS}/manifests"));
    let made = command.args(values).output().expect("it starts");
    match made.status.success() {
        true => Ok(documents(&String::from_utf8(made.stdout).expect("text"))),
        false => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
    }
}

#[test]
fn the_manifests_are_what_helm_makes_of_the_chart_and_values_that_it_has_not_are_refused() {
    let said = manifests(&["imagee=x"]).expect_err("refused");
    assert!(said.contains("there is no such value: imagee=x"), "{said}");
    let Some(mut helm) = Helm::new() else { return };
    for values in [
        json!({}),
        json!({ "image": "registry:5000/gpushare:1", "mode": "gpus", "gpuKind": "", "runtimeClassName": "nvidia" }),
    ] {
        let words = values.as_object().expect("an object").iter();
        let words: Vec<String> = words
            .map(|(name, value)| format!("{name}={}", value.as_str().expect("text")))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut made = manifests(&words).expect("manifests");
        assert_eq!(made.remove(0)["kind"], "Namespace");
        assert_eq!(made, documents(&helm.render(&values).expect("manifests")));
    }

    let other = json!({
        "mode": "gpus", "image": "registry:5000/gpushare:1", "gpuKind": "", "runtimeClassName": "nvidia",
        "metricsSecret": "other", "kubelet": "/data/kubelet", "nodeSelector": { "gpu": "true" }, "tolerations": [],
    });
    let other = documents(&helm.render(&other).expect("manifests"));
    other.iter().for_each(is_object);
    let set = other.iter().find(|one| one["kind"] == "DaemonSet");
    let pod = &set.expect("one")["spec"]["template"]["spec"];
    assert_eq!(pod["runtimeClassName"], "nvidia");
    assert_eq!(pod["nodeSelector"]["gpu"], "true");
    assert_eq!(pod["tolerations"], Value::Null);
    for container in pod["containers"].as_array().expect("a list") {
        assert_eq!(container["image"], "registry:5000/gpushare:1");
    }
    for wrong in [
        json!({ "mode": "all" }),
        json!({ "imagee": "x" }),
        json!({ "kubelet": "var" }),
        json!({ "nodeSelector": { "gpu": true } }),
    ] {
        let why = helm.render(&wrong).expect_err("refused");
        assert!(why.contains("schema"), "{why}");
    }
}

#[test]
fn the_manifests_and_examples_are_objects_of_kubernetes_and_start_our_programs() {
    let examples = std::fs::read_dir(format!("{ASSETS}/examples")).expect("there");
    let examples =
        examples.map(|file| std::fs::read_to_string(file.expect("readable").path()).expect("text"));
    let examples: Vec<String> = examples.collect();
    assert!(examples.len() >= 5);
    for text in &examples {
        documents(text).iter().for_each(is_object);
    }
    let all = manifests(&[]).expect("manifests");
    all.iter().for_each(is_object);

    // The containers' command lines are valid for our programs.
    let set = all
        .iter()
        .find(|one| one["kind"] == "DaemonSet")
        .expect("one");
    for container in set["spec"]["template"]["spec"]["containers"]
        .as_array()
        .expect("a list")
    {
        // Both ask NVML.
        let env = container["env"].as_array().expect("a list");
        assert!(
            env.iter()
                .any(|one| one["name"] == "NVIDIA_VISIBLE_DEVICES"),
            "{container}"
        );
        let words = container["command"].as_array().expect("a list");
        let words: Vec<&str> = words
            .iter()
            .map(|word| word.as_str().expect("text"))
            .collect();
        let program = match words[0] {
            "gpushare-dra" => env!("CARGO_BIN_EXE_gpushare-dra").into(),
            name => gpushare_testbed::artifact(name),
        };
        let mut command = Command::new(program);
        let said = command
            .args(&words[1..])
            .arg("--help")
            .output()
            .expect("it starts");
        assert!(said.status.success(), "{words:?}: {said:?}");
    }
}

#[test]
fn the_brokers_metrics_have_the_figures_of_nvml() {
    let Some(node) = Node::new() else { return };
    let sim = Testbed::with_scenario("one-gpu");
    let serve = node.gpushare(&["serve", "--everyone", "--metrics", "127.0.0.1:0"]);
    let mut broker = Watched::spawn(&mut on_simulated(&sim, &serve));
    assert!(broker.line().contains("serving"));
    let said = broker.line();
    let url = said.strip_prefix("metrics: ");
    let url = url.unwrap_or_else(|| panic!("{said}"));
    eventually("the page has the GPU's utilisation", PATIENCE, || {
        let mut curl = Command::new("curl");
        let page = curl.args(["--silent", "--noproxy", "*", url]).output();
        let page = page.expect("it starts").stdout;
        String::from_utf8_lossy(&page).contains("gpushare_device_util_ratio{")
    });
}

#[test]
fn the_parameters_of_the_examples_are_understood() {
    let mut seen = 0;
    for (file, source) in [
        ("share.yaml", "FromClaim"),
        ("urgent-class.yaml", "FromClass"),
    ] {
        let text = std::fs::read_to_string(format!("{ASSETS}/examples/{file}")).expect(file);
        let object = documents(&text).remove(0);
        let spec = if object["kind"] == "DeviceClass" {
            &object["spec"]
        } else {
            &object["spec"]["spec"]["devices"]
        };
        for config in spec["config"].as_array().expect("a list") {
            let config =
                json!([{ "source": source, "requests": ["gpu"], "opaque": config["opaque"] }]);
            let claim = json!({
                "metadata": { "name": "gpu", "uid": "1" },
                "status": { "allocation": { "devices": { "results": [allocated("gpushare.dev", "gpu-a", None)], "config": config } } },
            });
            let claim: gpushare_dra::claim::ResourceClaim =
                serde_json::from_value(claim).expect("a claim");
            assert!(claim.asked().expect("understood").weight.is_some());
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}
