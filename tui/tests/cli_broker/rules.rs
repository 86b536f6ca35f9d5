//! Rules of a file, matched by identities from the kernel.

use crate::support::*;

const RULES: &str = r#"
[[rule]]
name = "mallory"
user = "61302"
memory = "1GiB"
weight = 10

[[rule]]
name = "trainings"
label = "train-*"
memory = "8GiB"

[[rule]]
name = "all"
all = true
memory = "2GiB"
"#;

/// Writes a file that every user may read.
fn file(machine: &Machine, text: &str) -> String {
    let path = machine.path("rules.toml");
    std::fs::write(&path, text).expect("ours");
    path.display().to_string()
}

fn gib(tenant: &mut Tenant) -> String {
    tenant.ask("quota")
}

#[test]
fn a_file_of_rules_holds_for_users_by_the_kernels_word_and_outlives_the_broker() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let rules = file(&machine, RULES);
    let some = |gib: u64| format!("Some({})", gib * GIB);
    let mut before = machine.tenant(ALICE, "train-before");
    before.hear();
    for uid in [ALICE, MALLORY] {
        machine
            .run(uid, &["apply", &rules])
            .refused(4, &["administrator"]);
    }
    assert_eq!(gib(&mut before), "None");
    machine.run(0, &["apply", &rules]).done();
    let mut notebook = machine.tenant(ALICE, "notebook");
    // A process chooses its label, but not its user id.
    let mut mallory = machine.tenant(MALLORY, "train-mallory");
    notebook.hear();
    mallory.hear();
    for (tenant, quota) in [(&mut before, 8), (&mut notebook, 2), (&mut mallory, 1)] {
        assert_eq!(gib(tenant), some(quota));
    }
    assert_eq!(mallory.ask("take 1025MiB"), "denied");
    let seen = machine.process("train-mallory");
    assert_eq!(seen["rule"], "mallory");
    assert_eq!(seen["devices"][0]["quota_source"], "rule");
    assert_eq!(seen["weight"], 10);
    // Another name does not change the rules for a user.
    machine
        .run(MALLORY, &["set", "name:train-mallory", "name=notebook-2"])
        .done();
    assert_eq!(machine.process("notebook-2")["rule"], "mallory");

    machine.kill_broker();
    assert_eq!(gib(&mut notebook), some(2));
    machine.serve(&[]);
    let mut late = machine.tenant(ALICE, "train-late");
    late.hear();
    assert_eq!(gib(&mut late), some(8));
    let fewer = file(
        &machine,
        "[[rule]]\nname = 'all'\nall = true\nmemory = '3GiB'\n",
    );
    machine.run(0, &["apply", &fewer]).done();
    for tenant in [&mut late, &mut notebook, &mut mallory] {
        assert_eq!(gib(tenant), some(3));
    }
    let applied = machine.audit();
    assert!(applied.iter().any(|edit| edit["result"] == "refused"));
}

#[test]
fn a_rule_for_a_container_holds_for_no_process_that_only_says_so() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let container = format!("docker-{}.scope", "9f3c".repeat(16));
    let rules = file(
        &machine,
        "[[rule]]\ncontainer = '9f3c9f3c9f3c'\nmemory = '8GiB'\n[[rule]]\nall = true\nmemory = '1GiB'\n",
    );
    machine.run(0, &["apply", &rules]).done();
    for (uid, gib) in [(0, 8), (MALLORY, 1)] {
        let Some((_tree, mut tenant)) = machine.in_cgroup(uid, &container, "inside") else {
            return;
        };
        assert_eq!(tenant.ask("quota"), format!("Some({})", gib * GIB));
    }
}

#[test]
fn a_pods_processes_share_the_memory_of_its_claim_whatever_their_environment_says() {
    use gpushare_broker::pods;
    const POD: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    let Some(machine) = Machine::new() else {
        return;
    };
    let group = pods::group("11112222-3333-4444-5555-666677778888", false);
    let groups = pods::Groups::from([(POD.to_owned(), [group.clone()].into())]);
    pods::set(&machine.dir(), &groups).expect("root may");
    machine
        .run(0, &["group", "create", &group, "memory=8GiB"])
        .done();
    // It names no group, like a process that has cleared its environment.
    let pod = format!("pod{POD}");
    let Some((_first, mut first)) = machine.in_cgroup(0, &pod, "first") else {
        return;
    };
    let (_second, mut second) = machine.in_cgroup(0, &pod, "second").expect("another");
    assert_eq!(machine.process("first")["group"], *group);
    assert_eq!(first.ask("take 5GiB"), "granted");
    assert_eq!(second.ask("take 4GiB"), "denied");
    assert_eq!(second.ask("take 3GiB"), "granted");
    // A cgroup of that name made by a user is no pod.
    let (_hers, _tenant) = machine.in_cgroup(MALLORY, &pod, "hers").expect("another");
    assert!(machine.process("hers")["group"].is_null());
}

#[test]
fn a_user_is_the_same_one_under_all_numbers_of_its_own_namespaces() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let rules = file(&machine, RULES);
    machine.run(0, &["apply", &rules]).done();
    let mut inside = machine.plays_in_namespace(MALLORY, 3, "tenant train-inside");
    let said = inside.hear();
    assert!(said.starts_with("slot "), "{said}");
    assert_eq!(gib(&mut inside), format!("Some({GIB})"));
    let seen = machine.process("train-inside");
    assert_eq!(seen["rule"], "mallory");
    assert_eq!(seen["user"], MALLORY.to_string());
    // An administrator's quota for the user applies to it, and the user may edit it.
    let user = format!("user:{MALLORY}");
    machine.run(0, &["quota", "set", &user, "512MiB"]).done();
    assert_eq!(gib(&mut inside), format!("Some({})", GIB / 2));
    machine.run(MALLORY, &["pause", "name:train-inside"]).done();
    machine
        .run(ALICE, &["pause", "name:train-inside"])
        .refused(4, &["belongs to another user"]);
    // The log records the user, not the id inside the namespace.
    let other = machine.plays_in_namespace(MALLORY, 4, "meddler");
    assert!(other.hear().starts_with("did "));
    let refused = machine.audit().into_iter().rev();
    let refused = refused.into_iter().find(|edit| edit["result"] == "refused");
    let refused = refused.expect("it asked for a policy");
    assert_eq!(refused["uid"], MALLORY);
    assert_eq!(refused["who"], MALLORY.to_string());
}
