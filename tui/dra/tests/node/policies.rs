//! The expressions in `assets/k8s`, evaluated as in the admission of an API server and in a scheduler's choice of devices.

use std::process::Command;

use gpushare_dra::slices::{Gpu, Mode, devices};
use gpushare_testbed::{Watched, python};
use serde_json::{Value, json};

use crate::objects::{ASSETS, documents, manifests};

/// Google's own CEL.
struct Cel(Watched);

impl Cel {
    /// Returns `None`, with a message, if it cannot be installed.
    fn new() -> Option<Self> {
        let python = python(&["cel-expr-python==0.1.3"])?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/cel.py");
        Some(Self(Watched::spawn(Command::new(python).arg(script))))
    }

    fn value(&mut self, expression: &Value, data: &Value) -> Value {
        let asked = json!({ "expression": expression, "data": data });
        let said: Value = serde_json::from_str(&self.0.ask(&asked.to_string())).expect("JSON");
        assert_eq!(said["error"], Value::Null, "{expression} of {data}");
        said["value"].clone()
    }

    /// Evaluates a policy as an API server does. Returns the message of the first validation that fails.
    fn judged(&mut self, policy: &Value, object: &Value, user: &Value) -> Option<String> {
        let list = |name: &str| policy["spec"][name].as_array().cloned().unwrap_or_default();
        let request = json!({ "userInfo": user });
        let mut data = json!({ "object": object, "request": request, "variables": {} });
        let meant = list("matchConditions");
        if !meant
            .iter()
            .all(|one| self.value(&one["expression"], &data) == true)
        {
            return None;
        }
        for variable in list("variables") {
            let name = variable["name"].as_str().expect("a name");
            data["variables"][name] = self.value(&variable["expression"], &data);
        }
        let mut validations = list("validations").into_iter();
        let failed = validations.find(|one| self.value(&one["expression"], &data) != true);
        failed.map(|one| one["message"].as_str().expect("text").to_owned())
    }
}

/// Returns the objects of this kind in a file of the examples.
fn of_example(file: &str, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{ASSETS}/examples/{file}")).expect(file);
    of_kind(documents(&text), kind)
}

fn of_kind(mut all: Vec<Value>, kind: &str) -> Vec<Value> {
    all.retain(|one| one["kind"] == kind);
    all
}

#[test]
fn a_share_of_nvidias_gpu_is_admitted_only_beside_our_device_in_each_way_of_asking_for_it() {
    let Some(mut cel) = Cel::new() else { return };
    let policy = of_example("require-limits.yaml", "ValidatingAdmissionPolicy");
    let share = json!({ "deviceClassName": "gpu.nvidia.com", "capacity": { "requests": { "memory": "8Gi" } } });
    let whole = json!({ "deviceClassName": "gpu.nvidia.com" });
    let ours = json!({ "deviceClassName": "limits.gpushare.dev" });
    let exactly = |what: &Value| json!({ "name": "a", "exactly": what });
    let first = |any: &[&Value]| json!({ "name": "b", "firstAvailable": any });
    for (requests, admitted) in [
        (json!([exactly(&share)]), false),
        (json!([exactly(&share), exactly(&ours)]), true),
        (json!([exactly(&whole)]), true),
        (json!([first(&[&whole, &share])]), false),
        (json!([first(&[&whole, &share]), exactly(&ours)]), true),
        // The second alternative may be chosen.
        (json!([exactly(&share), first(&[&ours, &whole])]), false),
        (json!([first(&[&whole])]), true),
        // A claim without requests, in the form that an API server makes of it.
        (json!(null), true),
        (json!([]), true),
    ] {
        let spec = json!({ "devices": { "requests": requests } });
        let claim = json!({ "kind": "ResourceClaim", "spec": spec });
        let template = json!({ "kind": "ResourceClaimTemplate", "spec": { "spec": spec } });
        for object in [claim, template] {
            let said = cel.judged(&policy[0], &object, &json!({}));
            assert_eq!(said.is_none(), admitted, "{object}: {said:?}");
        }
    }
    for object in [
        json!({ "kind": "ResourceClaim", "spec": {} }),
        json!({ "kind": "ResourceClaimTemplate", "spec": { "spec": {} } }),
    ] {
        assert_eq!(cel.judged(&policy[0], &object, &json!({})), None);
    }
}

#[test]
fn a_nodes_driver_writes_the_slice_of_its_node_alone_and_no_other_drivers() {
    let Some(mut cel) = Cel::new() else { return };
    let policy = of_kind(
        manifests(&[]).expect("manifests"),
        "ValidatingAdmissionPolicy",
    );
    let slice = |driver: &str, node: Option<&str>| {
        let mut slice = json!({ "kind": "ResourceSlice", "spec": { "driver": driver } });
        if let Some(node) = node {
            slice["spec"]["nodeName"] = node.into();
        }
        slice
    };
    let ours = "system:serviceaccount:gpushare:gpushare";
    let from = |node: Value| json!({ "username": ours, "extra": { "authentication.kubernetes.io/node-name": node } });
    let here = from(json!(["gpu01"]));
    let own = slice("gpushare.dev", Some("gpu01"));
    let (alone, driver) = (
        Some("gpushare may write the ResourceSlice of the node that it runs on alone"),
        Some("gpushare may write its own ResourceSlices alone"),
    );
    for (user, slice, wanted) in [
        (&here, &own, None),
        (&here, &slice("gpushare.dev", Some("gpu02")), alone),
        (&here, &slice("gpushare.dev", None), alone),
        (&here, &slice("gpu.nvidia.com", Some("gpu01")), driver),
        // A token made by hand names no node.
        (&json!({ "username": ours }), &own, alone),
        (&json!({ "username": ours, "extra": {} }), &own, alone),
        (&from(json!([])), &own, alone),
        (&from(json!([""])), &slice("gpushare.dev", None), alone),
        // A request of another driver.
        (
            &json!({ "username": "system:serviceaccount:nvidia:dra" }),
            &slice("gpu.nvidia.com", Some("gpu02")),
            None,
        ),
    ] {
        let said = cel.judged(&policy[0], slice, user);
        assert_eq!(said.as_deref(), wanted, "{user} {slice}");
    }
}

#[test]
fn each_class_has_the_devices_that_it_is_for() {
    let Some(mut cel) = Cel::new() else { return };
    let gpu = Gpu {
        uuid: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".into(),
        product: "H100".into(),
        bytes: 1 << 36,
    };
    // The form in which the scheduler shows a device to an expression.
    let shown = |driver: &str, device: &Value| {
        let mut attributes = json!({});
        for (name, value) in device["attributes"].as_object().expect("attributes") {
            attributes[name] = value["string"].clone();
        }
        json!({ "device": { "driver": driver, "attributes": { driver: attributes } } })
    };
    let limits = shown("gpushare.dev", &devices(Mode::Limits, &[])[0]);
    let share = shown("gpushare.dev", &devices(Mode::Gpus, &[gpu])[0]);
    let foreign = json!({ "attributes": { "type": { "string": "gpu" } } });
    let foreign = shown("gpu.nvidia.com", &foreign);
    let mut classes = of_kind(manifests(&[]).expect("manifests"), "DeviceClass");
    classes.extend(of_example("urgent-class.yaml", "DeviceClass"));
    assert_eq!(classes.len(), 3);
    for class in classes {
        let of_limits = class["metadata"]["name"] == "limits.gpushare.dev";
        let expression = &class["spec"]["selectors"][0]["cel"]["expression"];
        for (device, wanted) in [
            (&limits, of_limits),
            (&share, !of_limits),
            (&foreign, false),
        ] {
            assert_eq!(cel.value(expression, device), wanted, "{device}");
        }
    }
}
