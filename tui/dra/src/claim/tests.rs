//! Tests of the limits that a claim asks for.

use super::*;
use serde_json::json;

fn claim(results: Value, config: Value) -> ResourceClaim {
    let claim = json!({
        "metadata": { "name": "gpu", "namespace": "ml", "uid": "1", "ownerReferences": [{ "kind": "Pod", "uid": "2" }] },
        "status": { "allocation": { "devices": { "results": results, "config": config } } },
    });
    serde_json::from_value(claim).expect("a claim")
}

fn result(driver: &str, memory: Option<&str>) -> Value {
    let consumed = memory.map_or(json!({}), |memory| json!({ "memory": memory }));
    json!({ "request": "gpu", "driver": driver, "pool": "node", "device": "d", "consumedCapacity": consumed })
}

fn config(source: &str, driver: &str, parameters: Value) -> Value {
    json!([{ "source": source, "requests": ["gpu"], "opaque": { "driver": driver, "parameters": parameters } }])
}

#[test]
fn a_share_of_nvidias_driver_becomes_a_quota_and_its_interval_a_weight() {
    let results = json!([result(NVIDIA, Some("8Gi")), result(DRIVER, None)]);
    let slices = |interval: &str| json!({ "sharing": { "strategy": "TimeSlicing", "timeSlicingConfig": { "interval": interval } } });
    let asked = |source: &str, interval: &str| {
        claim(results.clone(), config(source, NVIDIA, slices(interval)))
            .asked()
            .expect("fine")
    };
    assert_eq!(asked("FromClaim", "Short").memory, Some(8 << 30));
    assert_eq!(asked("FromClaim", "Short").weight, Some(50));
    assert_eq!(asked("FromClaim", "Default").weight, Some(100));
    assert_eq!(asked("FromClass", "Long").weight, Some(200));
    let long = asked("FromClaim", "Long");
    assert_eq!((long.weight, long.remarks.len()), (Some(100), 1));
}

#[test]
fn a_container_with_two_claims_is_found_and_two_containers_with_one_each_are_fine() {
    let pod = |claims: Value| {
        json!({
            "spec": {
                "resourceClaims": [{ "name": "a", "resourceClaimName": "one" }, { "name": "b", "resourceClaimTemplateName": "t" }],
                "containers": [
                    { "name": "first", "resources": { "claims": claims } },
                    { "name": "second", "resources": { "claims": [{ "name": "b", "request": "gpu" }] } },
                ],
            },
            "status": { "resourceClaimStatuses": [{ "name": "b", "resourceClaimName": "two" }] },
        })
    };
    let both = pod(json!([{ "name": "a" }, { "name": "b" }]));
    assert_eq!(
        container_with_two(&both, &["one", "two"]).as_deref(),
        Some("first")
    );
    assert_eq!(container_with_two(&both, &["one", "three"]), None);
    assert_eq!(
        container_with_two(&pod(json!([{ "name": "a" }])), &["one", "two"]),
        None
    );
    // Two requests of one claim count as one claim.
    let twice = pod(json!([{ "name": "a", "request": "x" }, { "name": "a", "request": "y" }]));
    assert_eq!(container_with_two(&twice, &["one", "two"]), None);
}

#[test]
fn a_container_with_the_gpu_alone_is_found_and_one_with_the_limits_is_fine() {
    let pod = |kind: &str, claims: Value| {
        json!({ "spec": {
            "resourceClaims": [{ "name": "a", "resourceClaimName": "one" }, { "name": "b", "resourceClaimName": "two" }],
            kind: [{ "name": "train", "resources": { "claims": claims } }],
        } })
    };
    let gpu = json!({ "name": "a", "request": "gpu" });
    for (claims, is_found) in [
        (json!([gpu]), true),
        (json!([gpu, { "name": "a", "request": "limits" }]), false),
        (json!([{ "name": "a" }]), false),
        (json!([gpu, { "name": "a" }]), false),
        // A request of another claim does not limit this claim's GPU.
        (json!([gpu, { "name": "b", "request": "limits" }]), true),
        (json!([{ "name": "b", "request": "gpu" }]), false),
        (json!([]), false),
    ] {
        for kind in ["containers", "initContainers"] {
            let found = container_without(&pod(kind, claims.clone()), "one", &["limits"]);
            assert_eq!(found.is_some(), is_found, "{claims}");
        }
    }
}

#[test]
fn a_claim_may_ask_for_less_than_others_have_and_a_class_for_more_weight() {
    let results = json!([result(DRIVER, Some("2Gi"))]);
    let asked = |source: &str, more: Value| {
        let mut parameters = json!({ "apiVersion": PARAMETERS, "kind": "Share" });
        let fields = parameters.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        claim(results.clone(), config(source, DRIVER, parameters)).asked()
    };
    let fine = asked(
        "FromClaim",
        json!({ "weight": 50, "cap": "30%", "onFull": "wait=10m" }),
    );
    let fine = fine.expect("fine");
    assert_eq!((fine.weight, fine.cap.as_deref()), (Some(50), Some("30%")));
    assert_eq!(
        fine.env,
        [(variables::ON_FULL.to_owned(), "wait=10m".to_owned())]
    );
    assert!(asked("FromClass", json!({ "weight": 300, "priority": -5 })).is_ok());
    // No group has a priority, and the broker takes none above 0 from a launch.
    let lost = asked("FromClass", json!({ "weight": 300, "priority": 5 }));
    assert!(lost.expect_err("refused").contains("a priority up to 0"));
    for wrong in [
        json!({ "weight": 101 }),
        json!({ "priority": 1 }),
        json!({ "cap": "200%" }),
        json!({ "onFull": "never" }),
        json!({ "memory": "1Gi" }),
        json!({ "weight": -1 }),
    ] {
        assert!(asked("FromClaim", wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn a_claim_may_reserve_at_most_its_share() {
    let asked = |memory: Option<&str>, reserve: &str| {
        let parameters = json!({ "apiVersion": PARAMETERS, "kind": "Share", "reserve": reserve });
        let results = json!([result(DRIVER, memory)]);
        claim(results, config("FromClaim", DRIVER, parameters)).asked()
    };
    let fine = asked(Some("8Gi"), "4GiB").expect("fine");
    assert_eq!((fine.memory, fine.reserve), (Some(8 << 30), Some(4 << 30)));
    assert_eq!(fine.env, [], "its group has it");
    assert_eq!(asked(Some("8Gi"), "none").expect("fine").reserve, None);
    for (memory, reserve) in [
        (Some("8Gi"), "9GiB"),
        (None, "1GiB"),
        (Some("8Gi"), "50%"),
        (Some("8Gi"), "all"),
    ] {
        assert!(asked(memory, reserve).is_err(), "{memory:?} {reserve}");
    }
}

#[test]
fn shares_that_differ_are_refused_and_a_claim_without_one_has_no_limit() {
    let on = |device: &str, memory: &str| {
        let mut result = result(DRIVER, Some(memory));
        result["device"] = device.into();
        result
    };
    let memory = |results: Value| Some(claim(results, json!([])).asked().ok()?.memory);
    assert_eq!(memory(json!([on("a", "2Gi"), on("b", "4Gi")])), None);
    // The scheduler gives a claim two shares of one device unless that is forbidden.
    let twice = json!([on("a", "2Gi"), on("a", "2Gi"), on("b", "4Gi")]);
    assert_eq!(memory(twice), Some(Some(4 << 30)));
    let none = json!([result(DRIVER, None), result("other", Some("1Gi"))]);
    let none = claim(none, json!([]));
    assert_eq!(none.asked(), Ok(Asked::default()));
    assert_eq!((none.ours().len(), none.is_shared()), (1, false));
    assert_eq!(none.pods(), ["2".to_owned()].into());
}
