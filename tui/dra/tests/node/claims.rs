//! Claims: prepared, changed and removed.

use gpushare_dra::messages::Claim;
use serde_json::{Value, json};

use crate::support::*;

const CLAIM: &str = "11112222-3333-4444-5555-666677778888";
const GROUP: &str = "k8s-111122223333444455556666777";
const OTHER: &str = "99992222-3333-4444-5555-666677778888";

fn spec(node: &Node, uid: &str) -> Option<Value> {
    let path = node.cdi.join(format!("gpushare.dev-claim_{uid}.json"));
    Some(serde_json::from_slice(&std::fs::read(path).ok()?).expect("whole JSON"))
}

/// Makes a claim on a share of NVIDIA's driver with short time slices, and on our device.
fn beside(node: &Node, uid: &str) -> Claim {
    let slices = json!({ "apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig",
        "sharing": { "strategy": "TimeSlicing", "timeSlicingConfig": { "interval": "Short" } } });
    node.claim(
        uid,
        json!([allocated("gpu.nvidia.com", "gpu-0", Some("8Gi")), allocated("gpushare.dev", "limits", None)]),
        json!([{ "source": "FromClaim", "requests": ["gpu"], "opaque": { "driver": "gpu.nvidia.com", "parameters": slices } }]),
    )
}

#[test]
fn a_share_beside_nvidias_driver_becomes_a_group_a_cdi_file_and_an_answer() {
    let Some(mut node) = Node::new() else { return };
    node.serve();
    node.drive(&[]);
    for version in ["v1.DRAPlugin", "v1beta1.DRAPlugin"] {
        let Some(mut kubelet) = Kubelet::registering(&node, version) else {
            return;
        };
        let claim = beside(&node, CLAIM);
        let prepared = kubelet.prepare(&claim);
        assert_eq!(prepared.error, "");
        let [device] = &prepared.devices[..] else {
            panic!("{prepared:?}")
        };
        assert_eq!(device.request_names, ["limits"]);
        assert_eq!((&*device.pool_name, &*device.device_name), (NODE, "limits"));
        assert_eq!(device.share_id.as_deref(), Some(SHARE));
        assert_eq!(
            device.cdi_device_ids,
            [format!("gpushare.dev/claim={CLAIM}")]
        );
        let group = node.group(GROUP).expect("defined");
        assert_eq!(
            (&group["memory_bytes"], &group["weight"]),
            (&json!(8u64 << 30), &json!(50))
        );
        let spec_of = spec(&node, CLAIM).expect("there");
        let env = spec_of["devices"][0]["containerEdits"]["env"].to_string();
        for wanted in [
            &format!("GPUSHARE_GROUP={GROUP}"),
            "GPUSHARE_MEMORY=8GiB",
            &format!("GPUSHARE_NAME=ml/claim-{CLAIM}"),
        ] {
            assert!(env.contains(wanted), "{env}");
        }
        let pods = node.path("run-private/pods").join(POD);
        assert_eq!(
            std::fs::read_to_string(&pods).expect("there"),
            format!("{GROUP}\n")
        );

        // Again, after an operator has changed the group and the API server has lost the claim.
        node.delete(&claim_path(&claim.name));
        let set = node
            .gpushare(&["group", "set", GROUP, "memory=9GiB"])
            .output();
        assert!(set.expect("it runs").status.success());
        assert_eq!(kubelet.prepare(&claim), prepared);
        assert_eq!(
            node.group(GROUP).expect("defined")["memory_bytes"],
            9u64 << 30
        );

        for _ in 0..2 {
            assert_eq!(kubelet.unprepare(&claim), "");
            assert_eq!(
                (node.group(GROUP), spec(&node, CLAIM), pods.exists()),
                (None, None, false)
            );
        }
        let left = std::fs::read_dir(node.path("kubelet/plugins/gpushare.dev/claims"));
        assert_eq!(left.expect("there").count(), 0);
    }
    assert!(
        node.log()
            .contains("the kubelet has registered this driver"),
        "{}",
        node.log()
    );
}

#[test]
fn what_cannot_be_done_is_a_sentence_for_the_pods_events_and_leaves_nothing() {
    let Some(mut node) = Node::new() else { return };
    node.drive(&[]);
    let Some(mut kubelet) = Kubelet::registering(&node, "v1.DRAPlugin") else {
        return;
    };
    let claim = beside(&node, CLAIM);
    let error = kubelet.prepare(&claim).error;
    assert!(error.contains("no broker serves"), "{error}");
    node.serve();
    assert_eq!(kubelet.prepare(&claim).error, "");

    let second = beside(&node, "6");
    let third = beside(&node, "7");
    let pod = json!({ "spec": {
        "resourceClaims": [{ "name": "a", "resourceClaimName": claim.name }, { "name": "b", "resourceClaimName": second.name },
            { "name": "c", "resourceClaimName": third.name }],
        "containers": [{ "name": "train", "resources": { "claims": [{ "name": "a" }, { "name": "b" }] } },
            { "name": "eval", "resources": { "claims": [{ "name": "c", "request": "gpu" }] } }],
    } });
    node.put("/api/v1/namespaces/ml/pods/train", pod);
    let differ = json!([
        allocated("gpushare.dev", "gpu-a", Some("1Gi")),
        allocated("gpushare.dev", "gpu-b", Some("2Gi"))
    ]);
    let differ = node.claim(OTHER, differ, json!([]));
    let foreign = node.claim(
        "3",
        json!([allocated("gpu.nvidia.com", "gpu-0", None)]),
        json!([]),
    );
    let of = |uid: &str, name: &str| Claim {
        namespace: "ml".into(),
        uid: uid.into(),
        name: name.into(),
    };
    for (claim, why) in [
        (second, "the container train has two claims"),
        (
            third,
            "the container eval uses this claim without its request limits",
        ),
        (differ, "different shares of memory"),
        (foreign, "no device of gpushare.dev"),
        (of("4", "nowhere"), "there is no such object"),
        (of("5", &claim.name), "another claim of this name"),
        (of("../../etc", "x"), "is no UID"),
    ] {
        let error = kubelet.prepare(&claim).error;
        assert!(error.contains(why), "{error}");
        assert!(error.starts_with("claim ml/"), "{error}");
        assert_eq!(spec(&node, &claim.uid), None);
    }
    let health = "/v1alpha1.DRAResourceHealth/NodeWatchResources";
    let quiet = kubelet.call(&node.endpoint(), health, &[]);
    assert!(quiet.expect_err("nothing").starts_with("DEADLINE_EXCEEDED"));
    let unknown = kubelet
        .ask_driver("NodeForgetResources", &[])
        .expect_err("unknown");
    assert!(unknown.starts_with("UNIMPLEMENTED"), "{unknown}");
    let malformed = kubelet
        .ask_driver("NodePrepareResources", &[0x0a, 0x7f])
        .expect_err("malformed");
    assert!(malformed.starts_with("INVALID_ARGUMENT"), "{malformed}");
}

#[test]
fn claims_outlive_the_driver_and_a_reboot_and_those_that_are_gone_are_undone() {
    let Some(mut node) = Node::new() else { return };
    node.serve();
    node.drive(&[]);
    let Some(mut kubelet) = Kubelet::registering(&node, "v1.DRAPlugin") else {
        return;
    };
    let (stays, goes) = (beside(&node, CLAIM), beside(&node, OTHER));
    // Each request for its own container.
    let pod = json!({ "spec": {
        "resourceClaims": [{ "name": "a", "resourceClaimName": stays.name }, { "name": "b", "resourceClaimName": goes.name }],
        "containers": [{ "name": "one", "resources": { "claims": [{ "name": "a" }] } },
            { "name": "two", "resources": { "claims": [{ "name": "b" }] } }],
    } });
    node.put("/api/v1/namespaces/ml/pods/train", pod);
    assert_eq!(kubelet.prepare(&stays).error, "");
    assert_eq!(kubelet.prepare(&goes).error, "");
    let gone = "k8s-999922223333444455556666777";
    assert!(node.group(gone).is_some());
    node.kill_driver();
    assert!(node.group(GROUP).is_some() && spec(&node, CLAIM).is_some());
    // The state after a kill between two steps, with a half-written file.
    std::fs::remove_file(node.cdi.join(format!("gpushare.dev-claim_{CLAIM}.json"))).expect("there");
    std::fs::write(
        node.cdi.join(format!("gpushare.dev-claim_{CLAIM}.new")),
        "{",
    )
    .expect("ours");
    node.delete(&claim_path(&goes.name));
    node.drive(&[]);
    assert!(spec(&node, CLAIM).is_some());
    assert_eq!((node.group(gone), spec(&node, OTHER)), (None, None));

    node.reboot();
    node.serve();
    assert_eq!(node.group(GROUP), None);
    node.drive(&[]);
    assert!(node.group(GROUP).is_some() && spec(&node, CLAIM).is_some());
    assert!(node.path("run-private/pods").join(POD).exists());
    let mut kubelet = Kubelet::registering(&node, "v1.DRAPlugin").expect("as before");
    assert_eq!(kubelet.prepare(&stays).error, "");
    let other = beside(&node, OTHER);
    assert_eq!(kubelet.prepare(&other).error, "");

    // The kubelet does not wait for an API server that never replies: the driver asks it for one claim, and for the slice.
    node.kill_driver();
    let asked = node.drive_unanswered();
    assert!((1..=2).contains(&asked), "{asked}");
    assert!(node.group(GROUP).is_some() && node.group(gone).is_some());
    let mut kubelet = Kubelet::registering(&node, "v1.DRAPlugin").expect("as before");
    assert_eq!(kubelet.unprepare(&stays), "");
    assert_eq!(node.group(GROUP), None);
}
