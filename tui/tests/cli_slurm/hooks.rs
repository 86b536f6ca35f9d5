//! The hooks without Slurm: they read Slurm's environment and print lines.

use gpushare_testbed::{Need, Testbed, needs, own_run};
use shm_layout::{Identity, LaunchLimits, Segments};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::cli_support::{Run as _, Said, World};

/// Any file works, because no program is started here.
const LIBRARY: &str = env!("CARGO_BIN_EXE_gpushare");

fn hook(world: &World, words: &[&str], environment: &[(&str, &str)]) -> Said {
    let mut command = world.command(&[&["slurm"], words].concat());
    command.env("GPUSHARE_LIB", LIBRARY);
    command.envs(environment.iter().copied());
    command.said()
}

/// Runs a TaskProlog on a machine with a GPU that NVML lists.
fn prolog_on(bed: &Testbed, shard: &str, environment: &[(&str, &str)]) -> Said {
    let mut command = bed.gpushare(&["slurm", "task-prolog", "--shard", shard]);
    command.envs(environment.iter().copied());
    command.said()
}

const STEP: [(&str, &str); 3] = [
    ("SLURM_JOB_ID", "12"),
    ("SLURM_SHARDS_ON_NODE", "2"),
    ("SLURM_JOB_NAME", "train"),
];

fn groups(world: &World) -> Vec<(String, String, u64)> {
    shown(world.gpushare(&SHOW))
}

const SHOW: [&str; 3] = ["group", "show", "--json"];

fn shown(said: Said) -> Vec<(String, String, u64)> {
    let shown = said.done().json();
    let groups = shown["groups"].as_array().expect("a list").iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    groups
        .map(|group| {
            let weight = group["weight"].as_u64().unwrap_or(0);
            (text(&group["name"]), text(&group["memory"]), weight)
        })
        .collect()
}

#[test]
fn a_task_prolog_prints_the_environment_and_makes_the_group_that_an_epilog_removes() {
    let world = World::new();
    let said = hook(&world, &["task-prolog", "--shard", "1/8"], &STEP).done();
    let dir = world.dir().display();
    assert_eq!(
        said.out,
        format!(
            "export LD_PRELOAD={LIBRARY}\nexport GPUSHARE_DIR={dir}\nexport GPUSHARE_NAME=train\nexport \
             GPUSHARE_GROUP=slurm-12\n"
        )
    );
    let one = |memory: &str, weight| vec![("slurm-12".to_owned(), memory.to_owned(), weight)];
    assert_eq!(groups(&world), one("25%", 20));
    // A step with fewer shards than its job takes nothing away; a step with more raises the limit.
    let step = |shards| [STEP[0], ("SLURM_SHARDS_ON_NODE", shards)];
    hook(&world, &["task-prolog", "--shard", "1/8"], &step("1")).done();
    assert_eq!(groups(&world), one("25%", 20));
    hook(&world, &["task-prolog", "--shard", "1/8"], &step("4")).done();
    assert_eq!(groups(&world), one("50%", 40));
    hook(&world, &["epilog"], &STEP).done();
    assert_eq!(groups(&world), []);
    hook(&world, &["epilog"], &STEP).done();
}

#[test]
fn a_job_of_cpus_is_left_alone_and_one_with_a_whole_gpu_is_only_shown() {
    let world = World::new();
    let cpus = hook(
        &world,
        &["task-prolog", "--shard", "1/8"],
        &[STEP[0], STEP[2]],
    )
    .done();
    assert_eq!((cpus.out.as_str(), cpus.err.as_str()), ("", ""));
    let whole = [STEP[0], STEP[2], ("SLURM_GPUS_ON_NODE", "1")];
    let whole = hook(&world, &["task-prolog", "--shard", "1/8"], &whole).done();
    assert!(
        whole.out.contains("export GPUSHARE_NAME=train\n"),
        "{whole:?}"
    );
    assert!(!whole.out.contains("GPUSHARE_GROUP"), "{whole:?}");
}

#[test]
fn a_job_has_what_it_reserves_within_its_memory() {
    let world = World::new();
    let step = [STEP[0], STEP[1], ("GPUSHARE_GPU_RESERVE", "4GiB")];
    hook(&world, &["task-prolog", "--shard", "10GiB"], &step).done();
    let shown = world.gpushare(&["group", "show", "--json"]).done().json();
    assert_eq!(shown["groups"][0]["reserve"], "4GiB", "{shown}");
    let whole = [STEP[0], STEP[2], ("SLURM_GPUS_ON_NODE", "1")];
    let said = hook(&world, &["task-prolog", "--gpu-reserve=4GiB"], &whole).done();
    assert!(said.out.contains("--gpu-reserve needs"), "{said:?}");
}

#[test]
fn a_job_without_a_gpu_reserves_nothing_and_has_no_group() {
    let world = World::new();
    world.gpushare(&["init"]).done();
    let step = [
        STEP[0],
        STEP[2],
        ("GPUSHARE_GPU_RESERVE", "100%"),
        // Slurm leaves these two to the user.
        ("SLURM_JOB_GPUS", "0"),
        ("SLURM_STEP_GPUS", "0"),
    ];
    let said = hook(&world, &["task-prolog", "--gpu-mem=100%"], &step).done();
    assert!(said.out.contains("--gpu-reserve needs"), "{said:?}");
    let each = "--gpu-mem 100% limits each process and not the job, because Slurm gave";
    assert!(said.out.contains(each), "{said:?}");
    assert!(
        said.out.ends_with("export GPUSHARE_MEMORY=100%\n"),
        "{said:?}"
    );
    assert!(!said.out.contains("GPUSHARE_GROUP"), "{said:?}");
    assert_eq!(groups(&world), []);
}

#[test]
fn a_wish_below_the_shards_limits_the_job_and_not_each_process() {
    let world = World::new();
    let step = [STEP[0], STEP[1], ("GPUSHARE_GPU_MEM", "2GiB")];
    let prolog = ["task-prolog", "--shard", "1/8"];
    // Nothing here says how large the GPUs are: any process can enter a device.
    let user = world.actor("user");
    user.enter(0);
    let said = hook(&world, &prolog, &step).done();
    assert!(
        said.out
            .contains("print gpushare: --gpu-mem 2GiB limits each process and not the job"),
        "{said:?}"
    );
    assert!(
        said.out.contains("export GPUSHARE_MEMORY=2GiB\n"),
        "{said:?}"
    );
    // NVML's GPU has 8 GiB, of which the job's shards are 2.
    let bed = Testbed::with_scenario("one-gpu");
    let step = [STEP[0], STEP[1], ("GPUSHARE_GPU_MEM", "1GiB")];
    let said = prolog_on(&bed, "1/8", &step).done();
    assert!(!said.out.contains("GPUSHARE_MEMORY"), "{said:?}");
    let one = |memory: &str| vec![("slurm-12".to_owned(), memory.to_owned(), 20)];
    assert_eq!(shown(bed.gpushare(&SHOW).said()), one("1GiB"));
    // A later step without the wish has all of the shards.
    prolog_on(&bed, "1/8", &STEP).done();
    assert_eq!(shown(bed.gpushare(&SHOW).said()), one("25%"));
}

#[test]
fn a_small_gpu_that_a_process_made_up_gives_a_job_no_more_memory() {
    let bed = Testbed::with_scenario("one-gpu");
    let segments = Segments::open_workload(bed.dir()).expect("our own directory");
    let identity = Identity::of_self("tenant");
    let tenant = shm_layout::register(&segments, &identity, &LaunchLimits::default());
    let tenant = tenant.expect("a free slot");
    let made_up = tenant.add_device([9; 16], 0, "Made-up GPU", 64 << 20, 0);
    made_up.expect("room for a device");
    let step = [STEP[0], STEP[1], ("GPUSHARE_GPU_MEM", "100%")];
    prolog_on(&bed, "1GiB", &step).done();
    let shards = [("slurm-12".to_owned(), "2GiB".to_owned(), 20_u64)];
    assert_eq!(shown(bed.gpushare(&SHOW).said()), shards);
}

#[test]
fn a_hook_ends_well_and_says_what_it_could_not_do() {
    let world = World::new();
    let wrong = [STEP[0], STEP[1], ("GPUSHARE_GPU_MEM", "8Q")];
    let said = hook(&world, &["task-prolog", "--shard", "10GiB"], &wrong).done();
    assert!(
        said.out.starts_with("print gpushare: --gpu-mem: \"8Q\""),
        "{said:?}"
    );
    assert_eq!(
        groups(&world)[0].1,
        "20GiB",
        "the shards limit all the same"
    );
    let said = hook(
        &world,
        &["task-prolog"],
        &[("SLURM_JOB_ID", "../1"), STEP[1]],
    )
    .done();
    assert!(
        said.out.starts_with("print gpushare: SLURM_JOB_ID"),
        "{said:?}"
    );
    let said = hook(&world, &["epilog"], &[]).done();
    assert!(said.err.contains("SLURM_JOB_ID"), "{said:?}");
    let said = hook(
        &world,
        &["task-prolog"],
        &[STEP[0], STEP[1], ("GPUSHARE_DIR", "/dev/null")],
    )
    .done();
    assert!(said.out.starts_with("print gpushare: "), "{said:?}");
}

#[test]
fn root_makes_the_group_in_the_users_own_segments_as_that_user() {
    const USER: u32 = 61_344;
    if !needs(Need::Root) || !needs(Need::Works("mount-namespace", own_run())) {
        return;
    }
    let place = tempfile::Builder::new()
        .prefix("s")
        .tempdir_in("/tmp")
        .expect("room");
    let program = place.path().join("gpushare");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("ours");
    crate::cli_support::copy(env!("CARGO_BIN_EXE_gpushare"), &program, "755");
    std::fs::write(place.path().join("libgpushare.so"), "").expect("ours");
    let segments = format!("/dev/shm/gpushare-{USER}");
    let _ = std::fs::remove_dir_all(&segments);
    let run = |words: &[&str]| -> Said {
        let mut command = Command::new(&program);
        command.env_clear().arg("slurm").args(words).envs(STEP);
        command.env("SLURM_JOB_UID", USER.to_string());
        command.said()
    };
    let said = run(&["task-prolog", "--shard", "1/8"]).done();
    let about = rustix::fs::stat(segments.as_str()).map(|about| about.st_uid);
    // Other users may not even read the groups.
    let defined = || {
        let mut command = Command::new(&program);
        command
            .env_clear()
            .args(["group", "show", "--json"])
            .uid(USER)
            .gid(USER)
            .current_dir("/");
        let said = command.said().done().json();
        said["groups"].as_array().expect("a list").len()
    };
    let (before, ended) = (defined(), run(&["epilog"]));
    let after = defined();
    let _ = std::fs::remove_dir_all(&segments);
    assert!(said.out.contains("GPUSHARE_GROUP=slurm-12"), "{said:?}");
    assert_eq!(
        (about, before, ended.code, after),
        (Ok(USER), 1, 0, 0),
        "{ended:?}"
    );
}
