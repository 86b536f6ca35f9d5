//! Jobs under the real slurmd, with the plugin and with the scripts.

use serde_json::Value;

use gpushare_testbed::eventually;

use crate::cluster::{Cluster, Hooks, PATIENCE};

/// Returns the bytes that a job's group holds on the GPU, as `group show` reports them.
fn used(cluster: &Cluster, group: &str) -> u64 {
    let shown = cluster.gpushare(&["group", "show", "--json"]).done().json();
    let groups = shown["groups"].as_array().expect("a list");
    let group = groups.iter().find(|known| known["name"] == group);
    let group = group.expect("the job has a group");
    group["used_bytes"][0].as_u64().unwrap_or(0)
}

fn of_group(processes: &[Value], group: &str) -> Vec<Value> {
    let members = processes.iter().filter(|process| process["group"] == group);
    members.cloned().collect()
}

#[test]
fn two_jobs_on_one_gpu_take_turns_within_their_shards_and_leave_nothing() {
    let Some(cluster) = Cluster::new(Hooks::Plugin) else {
        return;
    };
    cluster
        .gpushare(&["policy", "set", "all", "timeslice=5ms", "order=fair"])
        .done();
    let greedy = "--until-oom --piece 256M --seconds 600";
    let two = format!(
        "& {} {greedy}; wait",
        gpushare_testbed::artifact("gpushare-workload").display()
    );
    let first = cluster.submit(
        &["-J", "first", "--gres=shard:2"],
        &format!("{greedy} {two}"),
    );
    let second = cluster.submit(&["-J", "second", "--gres=shard:4"], greedy);
    let (one, other) = (format!("slurm-{first}"), format!("slurm-{second}"));
    let total = 8_u64 << 30;
    eventually(
        "three processes of two jobs wait for each other and are refused memory",
        PATIENCE,
        || {
            let processes = cluster.processes();
            let (a, b) = (of_group(&processes, &one), of_group(&processes, &other));
            let contend = |process: &Value| {
                let device = &process["devices"][0];
                device["lock"]["acquisitions"].as_u64() > Some(2)
                    && device["denials"].as_u64() > Some(0)
            };
            (a.len(), b.len()) == (2, 1) && a.iter().chain(&b).all(contend)
        },
    );
    for _ in 0..5 {
        assert!(used(&cluster, &one) <= total / 4, "two shards of eight");
        assert!(used(&cluster, &other) <= total / 2, "four shards of eight");
    }
    let processes = cluster.processes();
    let a = &of_group(&processes, &one)[0];
    assert_eq!(
        (&a["name"], &a["user"], &a["weight"]),
        (&"first".into(), &"root".into(), &20.into())
    );

    // A requeued job gets a new group at its restart; a killed or cancelled job leaves none.
    cluster.run("scontrol", &["requeue", &second]).done();
    eventually("the requeued job's group is gone", PATIENCE, || {
        !cluster.groups().contains(&other)
    });
    eventually("it starts again, within its shards", PATIENCE, || {
        // By default Slurm waits two minutes.
        cluster.run(
            "scontrol",
            &["update", &format!("JobId={second}"), "StartTime=now"],
        );
        let again = of_group(&cluster.processes(), &other);
        again.len() == 1 && (1..=total / 2).contains(&used(&cluster, &other))
    });
    cluster.run("scancel", &[&second]).done();
    for process in of_group(&cluster.processes(), &one) {
        let pid = process["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    cluster.settles();
}

/// Returns the lines with this prefix in a step's output, sorted.
fn lines(text: &str, prefix: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with(prefix))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

#[test]
fn every_way_to_start_a_step_gives_it_the_jobs_group() {
    let Some(cluster) = Cluster::new(Hooks::Plugin) else {
        return;
    };
    // Only one Slurm command after another: a drained node would delay the next.
    let cpus = cluster.run("srun", &["/usr/bin/env"]).done();
    assert!(
        !cpus.out.contains("GPUSHARE_NAME") && !cpus.out.contains("LD_PRELOAD"),
        "{cpus:?}"
    );
    // Without a GPU the user's word for one counts for nothing.
    let forged = [
        "--gpu-mem=100%",
        "--gpu-reserve=100%",
        "--export=ALL,SLURM_JOB_GPUS=0,SLURM_STEP_GPUS=0",
        "/usr/bin/env",
    ];
    let forged = cluster.run("srun", &forged).done();
    assert!(
        forged.out.contains("GPUSHARE_MEMORY=100%\n") && !forged.out.contains("GPUSHARE_GROUP"),
        "{forged:?}"
    );
    let whole = cluster
        .run("srun", &["-J", "whole", "--gres=gpu:1", "/usr/bin/env"])
        .done();
    assert!(
        whole.out.contains("GPUSHARE_NAME=whole\n") && whole.out.contains("LD_PRELOAD="),
        "{whole:?}"
    );
    assert!(!whole.out.contains("GPUSHARE_GROUP"), "{whole:?}");

    let program = env!("CARGO_BIN_EXE_gpushare");
    let step = format!("/usr/bin/env; {program} group show --json");
    let script = format!("for more in '' --export=NONE; do srun $more /bin/sh -c '{step}'; done");
    let out = cluster.path("batch").display().to_string();
    let batch = [
        "--wait",
        "--parsable",
        "-o",
        &out,
        "--export=NONE",
        "--gres=shard:3",
        "--gpu-mem=2G",
        "--wrap",
        &script,
    ];
    let job = cluster.run("sbatch", &batch).done();
    let job = format!("GPUSHARE_GROUP=slurm-{}", job.out.trim());
    let said = std::fs::read_to_string(&out).expect("the job's output");
    assert_eq!(
        lines(&said, "GPUSHARE_GROUP="),
        [job.clone(), job],
        "{said}"
    );
    // The lesser of the shards and the size applies to the job, and not to each process.
    assert_eq!(said.matches("\"2GiB\"").count(), 2, "{said}");
    assert_eq!(lines(&said, "GPUSHARE_MEMORY="), [""; 0], "{said}");

    let out = cluster.path("array.%a").display().to_string();
    let array = [
        "--wait",
        "-J",
        "many",
        "--array=1-2",
        "-o",
        &out,
        "--gres=shard:1",
        "--wrap",
        "/usr/bin/env",
    ];
    cluster.run("sbatch", &array).done();
    let name = |task: &str| {
        let said =
            std::fs::read_to_string(cluster.path(&format!("array.{task}"))).expect("its output");
        (
            lines(&said, "GPUSHARE_NAME="),
            lines(&said, "GPUSHARE_GROUP="),
        )
    };
    let (first, second) = (name("1"), name("2"));
    assert_eq!(first.0, ["GPUSHARE_NAME=many_1"]);
    assert_eq!(second.0, ["GPUSHARE_NAME=many_2"]);
    assert_ne!(first.1, second.1, "each task of an array is a job");

    let words = [
        "--gpu-mem=512M",
        "--gres=shard:1",
        "srun",
        "/bin/sh",
        "-c",
        &step,
    ];
    let said = cluster.run("salloc", &words).done();
    assert_eq!(said.out.matches("\"512MiB\"").count(), 1, "{said:?}");
    assert_eq!(lines(&said.out, "GPUSHARE_MEMORY="), [""; 0], "{said:?}");
    let wrong = cluster.run("srun", &["--gpu-mem=8Q", "true"]);
    assert!(
        wrong.code != 0 && wrong.err.contains("unknown unit"),
        "{wrong:?}"
    );
    cluster.settles();
}

#[test]
fn a_job_of_two_nodes_has_its_group_on_each_and_leaves_it_on_none() {
    let Some(cluster) = Cluster::of_two(Hooks::Plugin) else {
        return;
    };
    let workload = gpushare_testbed::artifact("gpushare-workload");
    let script = format!("srun {} --memory 64M --seconds 600", workload.display());
    let out = cluster.path("two").display().to_string();
    let words = ["-N2", "-n2", "--parsable", "-o", &out, "--gres=shard:2"];
    let words = [&words[..], &["--wrap", &script]].concat();
    let job = cluster.run("sbatch", &words).done();
    let group = format!("slurm-{}", job.out.trim());
    eventually(
        "a task of the job runs on each node, in its group",
        PATIENCE,
        || {
            let each = cluster.each();
            // NVML shows each node the other node's process too, because they share the GPU.
            each.iter().all(|(groups, processes)| {
                *groups == [group.as_str()] && of_group(processes, &group).len() == 1
            })
        },
    );
    cluster.run("scancel", &[job.out.trim()]).done();
    cluster.settles();
}

#[test]
fn a_plugin_that_cannot_do_its_work_drains_no_node_and_says_so_in_the_job() {
    let Some(cluster) = Cluster::new(Hooks::Plugin) else {
        return;
    };
    let stack = cluster.path("n0.plugstack");
    let line = std::fs::read_to_string(&stack).expect("ours");
    let broken = line.replace("program=", "program=/nonexistent");
    std::fs::write(&stack, broken).expect("ours");
    let said = cluster
        .run("srun", &["--gres=shard:1", "echo", "ran"])
        .done();
    assert!(said.out.contains("ran"), "{said:?}");
    let log = std::fs::read_to_string(cluster.path("slurmd.log")).unwrap_or_default();
    let warned = |text: &str| text.contains("this step runs without limits");
    assert!(warned(&said.err) || warned(&log), "{said:?}\n{log}");
    eventually("the node takes jobs", PATIENCE, || cluster.is_idle());
}

#[test]
fn a_task_prolog_and_an_epilog_do_the_same_without_the_plugin() {
    let Some(cluster) = Cluster::new(Hooks::Scripts) else {
        return;
    };
    let job = cluster.submit(
        &["-J", "plain", "--gres=shard:2", "--comment=x"],
        "--until-oom --piece 256M --seconds 600",
    );
    let group = format!("slurm-{job}");
    eventually("its process is refused memory", PATIENCE, || {
        let members = of_group(&cluster.processes(), &group);
        members
            .iter()
            .any(|process| process["devices"][0]["denials"].as_u64() > Some(0))
    });
    cluster.run("scancel", &[&job]).done();
    cluster.settles();
}
