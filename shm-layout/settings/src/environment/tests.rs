//! Each variable means what the table says; each older tool's name gives that tool's behaviour.

use std::collections::HashMap;

use super::*;
use crate::policy::{Order, PolicyKind};
use crate::value::OnFull;
use crate::variables::{self, ALIASES};

const GIB: u64 = 1 << 30;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let map: HashMap<_, _> = variables.iter().copied().collect();
    Environment::read(&|name| map.get(name).map(|value| (*value).to_owned()))
}

fn alias(name: &str) -> Source {
    let index = ALIASES
        .iter()
        .position(|alias| *alias == name)
        .expect("an alias");
    Source::Alias(u8::try_from(index).expect("few"))
}

#[test]
fn what_to_do_when_memory_is_refused_is_read_and_nonsense_is_complained_of() {
    let read = |value: &str| {
        Environment::read(&|name| (name == "GPUSHARE_ON_FULL").then(|| value.to_owned()))
    };
    assert_eq!(
        read("wait=10m").limits.settings.on_full,
        Some(OnFull::WaitFor(600_000_000_000))
    );
    assert_eq!(read("").limits.settings.on_full, None);
    let wrong = read("queue");
    assert_eq!(
        (wrong.limits.settings.on_full, wrong.limits.invalid),
        (None, true)
    );
    assert_eq!(wrong.complaints[0].variable, "GPUSHARE_ON_FULL");
}

#[test]
fn nothing_set_asks_for_nothing() {
    let environment = environment(&[]);
    assert_eq!(environment.limits.memory, [MemoryLimit::Unset; 16]);
    assert_eq!(environment.limits.memory_source, Source::Default);
    assert_eq!(environment.limits.policy, None);
    assert!(!environment.disabled && environment.nvml_view && environment.complaints.is_empty());
    assert_eq!(environment.log, Log::Warn);
}

#[test]
fn our_own_variables_are_read() {
    let read = environment(&[
        ("GPUSHARE_MEMORY", "0:8GiB,1:50%,2:none"),
        ("GPUSHARE_WEIGHT", "200"),
        ("GPUSHARE_PRIORITY", "-5"),
        ("GPUSHARE_CAP", "30%"),
        ("GPUSHARE_GROUP", "training"),
        ("GPUSHARE_NAME", "resnet"),
        ("GPUSHARE_POLICY", "timeslice=5ms order=fifo"),
        ("GPUSHARE_LOG", "info"),
        ("GPUSHARE_DISABLE", "1"),
        ("GPUSHARE_NVML_VIEW", "0"),
        ("GPUSHARE_TRACE", "5000"),
    ]);
    let limits = &read.limits;
    assert_eq!(read.trace, Some(5000));
    assert_eq!(
        limits.memory[..4],
        [
            MemoryLimit::Bytes(8 * GIB),
            MemoryLimit::Percent(50),
            MemoryLimit::None,
            MemoryLimit::Unset
        ]
    );
    assert_eq!(
        (
            limits.settings.weight,
            limits.settings.priority,
            limits.settings.cap
        ),
        (Some(200), Some(-5), Some(30))
    );
    assert_eq!(
        (limits.group.as_deref(), read.label.as_str()),
        (Some("training"), "resnet")
    );
    let policy = limits.policy.expect("set");
    assert_eq!(
        (policy.kind, policy.order),
        (PolicyKind::Timeslice(5_000_000), Order::Fifo)
    );
    assert!(read.disabled && !read.nvml_view && read.log == Log::Info);
    for source in [
        limits.memory_source,
        limits.share_source,
        limits.policy_source,
    ] {
        assert_eq!(source, Source::LaunchEnv);
    }
}

#[test]
fn a_bad_value_is_one_line_and_the_source_invalid() {
    for (name, value) in [
        ("GPUSHARE_MEMORY", "8Q"),
        ("GPUSHARE_WEIGHT", "0"),
        ("GPUSHARE_PRIORITY", "20"),
        ("GPUSHARE_CAP", "101%"),
        ("GPUSHARE_POLICY", "timeslice=5"),
        ("GPUSHARE_POLICY", "idle=11m"),
        ("GPUSHARE_POLICY", "max-hold=1h"),
        ("GPUSHARE_POLICY", "launches=1000001"),
        ("GPUSHARE_LOG", "loud"),
        ("GPUSHARE_GROUP", "a name of more than thirty-one bytes"),
        ("GPUSHARE_DISABLE", "perhaps"),
        ("GPUSHARE_TRACE", "10"),
        ("GPUSHARE_TRACE", "on"),
        ("WRAPPER_MAX_MEMORY", "8GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "lots"),
        ("CUDA_DEVICE_SM_LIMIT", "half"),
        ("CUDA_OVERRIDE_MAX_SYNC_MS", "-1"),
    ] {
        let read = environment(&[(name, value)]);
        assert_eq!(read.complaints.len(), 1, "{name}");
        let line = read.complaints[0].to_string();
        assert!(
            line.starts_with(&format!("{name}: ")) && !line.contains('\n'),
            "{line}"
        );
        assert!(read.limits.invalid);
    }
    assert_eq!(
        environment(&[("GPUSHARE_MEMORY", "8Q")])
            .limits
            .memory_source,
        Source::Invalid
    );
    assert_eq!(
        environment(&[("GPUSHARE_CAP", "0")]).limits.share_source,
        Source::Invalid
    );
    for policy in [
        "of",
        "timeslice=0",
        "timeslice=-5ms",
        "timeslice=5",
        "timeslice=61s",
        "idle=11m",
        "max-hold=1h",
        "launches=0",
        "timeslice=5ms colour=red",
    ] {
        let read = environment(&[("GPUSHARE_POLICY", policy)]);
        assert_eq!(read.limits.policy, None, "{policy}");
        assert_eq!(read.limits.policy_source, Source::Invalid, "{policy}");
    }
}

#[test]
fn an_amount_without_a_unit_holds_and_is_asked_about() {
    for name in [
        "GPUSHARE_MEMORY",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_MEM_LIMIT_0",
    ] {
        let read = environment(&[(name, "8")]);
        assert_eq!(read.limits.memory[0], MemoryLimit::Bytes(8), "{name}");
        assert_eq!(read.complaints, [], "{name}");
        assert!(!read.limits.invalid, "{name}");
        let said: Vec<String> = read.doubts.iter().map(ToString::to_string).collect();
        let sentence = "\"8\" means 8 bytes; write 8GiB, or 8B for bytes";
        assert_eq!(said, [format!("{name}: {sentence}")]);
    }
    let read = environment(&[("GPUSHARE_MEMORY", "0:8,1:1GiB")]);
    assert_eq!(read.limits.memory[0], MemoryLimit::Bytes(8));
    assert_eq!(read.limits.memory[1], MemoryLimit::Bytes(1 << 30));
    assert_eq!(read.doubts.len(), 1);
    // Its name says that it is in bytes.
    let read = environment(&[("WRAPPER_MAX_MEMORY", "4096")]);
    assert!(read.doubts.is_empty());
    let read = environment(&[("GPUSHARE_MEMORY", "4217928960")]);
    assert!(read.doubts.is_empty());
    let read = environment(&[("GPUSHARE_MEMORY", "8,8Q")]);
    assert_eq!((read.complaints.len(), read.doubts.len()), (1, 0));
}

#[test]
fn ours_stands_above_another_tools() {
    let read = environment(&[
        ("GPUSHARE_MEMORY", "1GiB"),
        ("WRAPPER_MAX_MEMORY", "4096"),
        ("GPUSHARE_CAP", "10"),
        ("ALNAIR_VGPU_COMPUTE_PERCENTILE", "50"),
        ("GPUSHARE_POLICY", "off"),
        ("CUDA_OVERRIDE_ALWAYS_LOCK", "1"),
    ]);
    assert_eq!(read.limits.memory[0], MemoryLimit::Bytes(GIB));
    assert_eq!(read.limits.settings.cap, Some(10));
    assert_eq!(
        read.limits.policy.map(|policy| policy.kind),
        Some(PolicyKind::Off)
    );
}

#[test]
fn wrapper_max_memory_is_bytes_on_every_device() {
    let limits = environment(&[("WRAPPER_MAX_MEMORY", "4217928960")]).limits;
    assert_eq!(limits.memory, [MemoryLimit::Bytes(4_217_928_960); 16]);
    assert_eq!(limits.memory_source, alias("WRAPPER_MAX_MEMORY"));
}

#[test]
fn cuda_device_memory_limit_takes_suffixes_and_a_device_each() {
    for (text, bytes) in [
        ("1g", GIB),
        ("1024m", GIB),
        ("1048576k", GIB),
        ("1073741824", GIB),
    ] {
        let limits = environment(&[("CUDA_DEVICE_MEMORY_LIMIT", text)]).limits;
        assert_eq!(limits.memory[3], MemoryLimit::Bytes(bytes), "{text}");
        assert_eq!(limits.memory_source, alias("CUDA_DEVICE_MEMORY_LIMIT"));
    }
    let limits = environment(&[
        ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "1g"),
    ])
    .limits;
    assert_eq!(
        limits.memory[..2],
        [MemoryLimit::Bytes(2 * GIB), MemoryLimit::Bytes(GIB)]
    );
    let limits = environment(&[("CUDA_DEVICE_MEMORY_LIMIT", "0")]).limits;
    assert_eq!(limits.memory[0], MemoryLimit::Unset, "0 is no limit there");
}

#[test]
fn cuda_mem_limit_is_read_when_the_others_are_silent() {
    let limits = environment(&[("CUDA_MEM_LIMIT_1", "512m")]).limits;
    assert_eq!(
        limits.memory[..2],
        [MemoryLimit::Unset, MemoryLimit::Bytes(GIB / 2)]
    );
    assert_eq!(limits.memory_source, alias("CUDA_MEM_LIMIT"));
}

#[test]
fn alnair_vgpu_compute_percentile_is_a_cap() {
    let limits = environment(&[("ALNAIR_VGPU_COMPUTE_PERCENTILE", "40")]).limits;
    assert_eq!(
        (limits.settings.cap, limits.share_source),
        (Some(40), alias("ALNAIR_VGPU_COMPUTE_PERCENTILE"))
    );
    for none in ["0", "100", "250", "-3"] {
        assert_eq!(
            environment(&[("ALNAIR_VGPU_COMPUTE_PERCENTILE", none)])
                .limits
                .settings
                .cap,
            None,
            "{none}"
        );
    }
}

#[test]
fn cuda_device_sm_limit_is_a_cap() {
    let limits = environment(&[("CUDA_DEVICE_SM_LIMIT", "50")]).limits;
    assert_eq!(
        (limits.settings.cap, limits.share_source),
        (Some(50), alias("CUDA_DEVICE_SM_LIMIT"))
    );
    assert_eq!(
        environment(&[("CUDA_DEVICE_SM_LIMIT", "100")])
            .limits
            .settings
            .cap,
        None
    );
}

#[test]
fn cuda_override_kernel_n_sync_yields_after_n_launches() {
    let limits = environment(&[("CUDA_OVERRIDE_KERNEL_N_SYNC", "25")]).limits;
    assert_eq!(
        limits.policy.map(|policy| policy.kind),
        Some(PolicyKind::Launches(25))
    );
    assert_eq!(limits.policy_source, alias("CUDA_OVERRIDE_KERNEL_N_SYNC"));
    let limits = environment(&[("CUDA_OVERRIDE_KERNEL_N_SYNC", "0")]).limits;
    assert_eq!(
        limits.policy.map(|policy| policy.kind),
        Some(PolicyKind::Launches(1)),
        "0 is every launch there"
    );
}

#[test]
fn cuda_override_max_sync_ms_is_a_timeslice() {
    let limits = environment(&[
        ("CUDA_OVERRIDE_MAX_SYNC_MS", "2.5"),
        ("CUDA_OVERRIDE_KERNEL_N_SYNC", "25"),
    ])
    .limits;
    assert_eq!(
        limits.policy.map(|policy| (policy.kind, policy.overlap_ns)),
        Some((PolicyKind::Timeslice(2_500_000), 0)),
        "exclusive, as the wrapper was"
    );
    assert_eq!(limits.policy_source, alias("CUDA_OVERRIDE_MAX_SYNC_MS"));
    let limits = environment(&[("CUDA_OVERRIDE_MAX_SYNC_MS", "0.001")]).limits;
    assert_eq!(
        limits.policy.map(|policy| policy.kind),
        Some(PolicyKind::Timeslice(100_000)),
        "our shortest"
    );
}

#[test]
fn cuda_override_always_lock_stands_above_its_sisters() {
    let read = |value| {
        environment(&[
            ("CUDA_OVERRIDE_ALWAYS_LOCK", value),
            ("CUDA_OVERRIDE_MAX_SYNC_MS", "2"),
        ])
        .limits
    };
    assert_eq!(
        read("1").policy.map(|policy| policy.kind),
        Some(PolicyKind::Always)
    );
    assert_eq!(read("1").policy_source, alias("CUDA_OVERRIDE_ALWAYS_LOCK"));
    assert_eq!(
        read("0").policy.map(|policy| policy.kind),
        Some(PolicyKind::Timeslice(2_000_000))
    );
}

#[test]
fn cuda_override_sync_lock_skips_keeps_the_lock_and_the_default_of_ten_launches() {
    let limits = environment(&[("CUDA_OVERRIDE_SYNC_LOCK_SKIPS", "3")]).limits;
    let policy = limits.policy.expect("set");
    assert_eq!(
        (policy.kind, policy.sync_skips),
        (PolicyKind::Launches(10), 3)
    );
    assert_eq!(limits.policy_source, alias("CUDA_OVERRIDE_SYNC_LOCK_SKIPS"));
}

#[test]
fn every_example_of_the_table_is_understood() {
    let ours = variables::TABLE
        .iter()
        .filter(|variable| variable.reader == variables::Reader::Library);
    for variable in ours {
        let name = variable
            .name
            .strip_suffix("_n")
            .map_or(variable.name.to_owned(), |name| format!("{name}_0"));
        // A directory has to be there.
        let example = match variable.name {
            variables::PFLOG => "/tmp",
            _ => variable.example,
        };
        let read = environment(&[(&name, example)]);
        assert!(read.complaints.is_empty(), "{name}: {:?}", read.complaints);
    }
}

#[test]
fn a_name_that_run_accepts_is_not_ignored_for_being_longer_than_a_groups() {
    let name = "n".repeat(63);
    let read = environment(&[("GPUSHARE_NAME", &name)]);
    assert_eq!(read.label, name);
    assert!(read.complaints.is_empty(), "{:?}", read.complaints);
}

#[test]
fn an_endless_name_is_not_repeated_to_its_end() {
    let read = environment(&[("GPUSHARE_NAME", &"n".repeat(5000))]);
    assert_eq!(read.label, "");
    let line = read.complaints[0].to_string();
    assert!(line.len() < 200, "{line}");
    assert!(line.contains("at most 63 fit"), "{line}");
}

#[test]
fn an_amount_for_a_device_that_is_not_there_is_a_complaint_and_not_a_limit() {
    let expect = |variables: &[(&str, &str)], count| {
        let mut read = environment(variables);
        read.expect_devices(count);
        let lines: Vec<String> = read.complaints.iter().map(ToString::to_string).collect();
        (lines, read.limits)
    };
    let (lines, limits) = expect(&[("GPUSHARE_MEMORY", "5:1GiB")], 2);
    let said = "GPUSHARE_MEMORY: it names device 5, but the program sees the devices 0 to 1";
    assert_eq!(lines, [said]);
    assert!(limits.invalid);
    assert_eq!(limits.memory_source, Source::Invalid);
    let (lines, limits) = expect(&[("GPUSHARE_MEMORY", "0:1GiB,1:1GiB")], 1);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(limits.memory[0], MemoryLimit::Bytes(GIB));
    assert_eq!(
        limits.memory_source,
        Source::LaunchEnv,
        "the device that is there keeps its own"
    );
    let (lines, limits) = expect(&[("CUDA_MEM_LIMIT_3", "1g")], 2);
    assert!(lines[0].starts_with("CUDA_MEM_LIMIT_3: "), "{lines:?}");
    assert_eq!(limits.memory_source, Source::Invalid);
    for (fits, count) in [
        (("GPUSHARE_MEMORY", "1GiB"), 1),
        (("GPUSHARE_MEMORY", "0:1GiB,1:2GiB"), 2),
        (("CUDA_MEM_LIMIT", "1g"), 1),
        (("CUDA_MEM_LIMIT_3", "0"), 2),
    ] {
        let (lines, limits) = expect(&[fits], count);
        assert!(lines.is_empty() && !limits.invalid, "{fits:?}: {lines:?}");
    }
}

fn gang(variables: &[(&str, &str)]) -> Option<Gang> {
    environment(variables).limits.gang
}

#[test]
fn the_processes_of_one_job_are_a_gang_and_a_job_of_one_process_is_none() {
    let torch = |size, port| {
        gang(&[
            ("WORLD_SIZE", size),
            ("RANK", "0"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", port),
        ])
    };
    assert!(matches!(torch("2", "29500"), Some(Gang::Found(_))));
    assert_eq!(torch("2", "29500"), torch("2", "29500"));
    assert_ne!(torch("2", "29500"), torch("2", "29501"));
    assert_eq!(torch("1", "29500"), None);
    assert_eq!(gang(&[("WORLD_SIZE", "8")]), None, "nothing names the job");
    let slurm = [
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_JOB_ID", "17"),
        ("SLURM_STEP_ID", "0"),
    ];
    assert!(gang(&slurm).is_some());
    let mpi = [
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("PMIX_NAMESPACE", "prterun-1@1"),
    ];
    assert!(gang(&mpi).is_some());
    assert_eq!(gang(&[]), None);
}

#[test]
fn a_named_gang_stands_above_the_launchers_and_none_means_none() {
    let job = [("WORLD_SIZE", "2"), ("MASTER_PORT", "1")];
    let with = |name| gang(&[job[0], job[1], ("GPUSHARE_GANG", name)]);
    assert_eq!(with("mine"), Some(Gang::Named("mine".into())));
    assert_eq!(with("none"), None);
}

#[test]
fn a_core_limit_is_a_cap_and_of_several_devices_the_lowest_one() {
    let read = environment(&[("CUDA_CORE_LIMIT", "60")]);
    assert_eq!(read.limits.settings.cap, Some(60));
    assert_eq!(read.limits.share_source, alias("CUDA_CORE_LIMIT"));
    let read = environment(&[("CUDA_CORE_LIMIT_0", "60"), ("CUDA_CORE_LIMIT_1", "30")]);
    assert_eq!((read.limits.settings.cap, read.advice.len()), (Some(30), 1));
    assert!(read.advice[0].contains("30%"), "{:?}", read.advice);
    assert_eq!(
        environment(&[("CUDA_CORE_LIMIT", "100")])
            .limits
            .settings
            .cap,
        None
    );
    let ours = environment(&[("CUDA_CORE_LIMIT", "60"), ("GPUSHARE_CAP", "20%")]);
    assert_eq!(
        (ours.limits.settings.cap, ours.limits.share_source),
        (Some(20), Source::LaunchEnv)
    );
    let wrong = environment(&[("CUDA_CORE_LIMIT_3", "half")]);
    assert_eq!(wrong.limits.share_source, Source::Invalid);
}

#[test]
fn a_core_policy_of_disable_leaves_the_sm_limit_out_and_no_other() {
    let cap = |policy: &str| {
        environment(&[
            ("CUDA_DEVICE_SM_LIMIT", "50"),
            ("GPU_CORE_UTILIZATION_POLICY", policy),
        ])
        .limits
        .settings
        .cap
    };
    assert_eq!(
        (cap("force"), cap("DEFAULT"), cap("disable")),
        (Some(50), Some(50), None)
    );
    let other = [
        ("ALNAIR_VGPU_COMPUTE_PERCENTILE", "40"),
        ("GPU_CORE_UTILIZATION_POLICY", "disable"),
    ];
    assert_eq!(environment(&other).limits.settings.cap, Some(40));
    let wrong = environment(&[("GPU_CORE_UTILIZATION_POLICY", "sometimes")]);
    assert_eq!(wrong.complaints.len(), 1);
}

#[test]
fn a_task_priority_of_zero_is_above_one_that_says_nothing() {
    for (value, priority) in [("0", 10), ("1", 0), ("2", -10), ("3", -20)] {
        let read = environment(&[("CUDA_TASK_PRIORITY", value)]);
        assert_eq!(read.limits.settings.priority, Some(priority));
        assert_eq!(read.limits.share_source, alias("CUDA_TASK_PRIORITY"));
    }
    let ours = environment(&[("CUDA_TASK_PRIORITY", "0"), ("GPUSHARE_PRIORITY", "3")]);
    assert_eq!(ours.limits.settings.priority, Some(3));
    assert_eq!(
        environment(&[("CUDA_TASK_PRIORITY", "4")]).complaints.len(),
        1
    );
}

#[test]
fn what_we_do_another_way_is_said_only_where_it_is_asked_for() {
    for (name, yes, no) in [
        ("CUDA_OVERSUBSCRIBE", "true", "false"),
        ("CUDA_MEM_RATIO", "1.5", "1"),
        ("CUDA_MEM_RATIO_3", "2", "0"),
        ("ACTIVE_OOM_KILLER", "1", "0"),
    ] {
        let asked = environment(&[(name, yes)]);
        assert_eq!(asked.advice.len(), 1, "{name}");
        let line = &asked.advice[0];
        assert!(line.starts_with(&format!("{name}={yes}: ")), "{line}");
        assert!(line.contains("gpushare"), "{line}");
        assert!(!asked.limits.invalid && environment(&[(name, no)]).advice.is_empty());
    }
    assert_eq!(
        environment(&[("CUDA_MEM_RATIO", "much")]).complaints.len(),
        1
    );
}

#[test]
fn what_was_started_as_members_of_a_group_is_a_gang_unless_a_launcher_or_the_user_says_otherwise() {
    let group = ("GPUSHARE_GROUP", "serve");
    assert_eq!(gang(&[group]), Some(Gang::Group("serve".into())));
    let launched = [group, ("WORLD_SIZE", "2"), ("MASTER_PORT", "1")];
    assert!(matches!(gang(&launched), Some(Gang::Found(_))));
    assert_eq!(gang(&[group, ("GPUSHARE_GANG", "none")]), None);
}
