//! `gpushare run`: a limit that was asked for is in force, or the program is not started.

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cli_support::{Run as _, World, processes, scripted};
use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use serde_json::{Value, json};
use shm_layout::variables::{Reader, TABLE};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns an invalid value of the variable and a word of the message about it, or `None` if every value is valid.
fn bad_value(variable: &str) -> Option<(&'static str, &'static str)> {
    Some(match variable {
        "GPUSHARE_MEMORY" => ("8Q", "use "),
        "GPUSHARE_WEIGHT" => ("0", "between 1 and 1000"),
        "GPUSHARE_PRIORITY" => ("20", "between -20 and 19"),
        "GPUSHARE_EVICT_AFTER" => ("soon", "a time such as"),
        "GPUSHARE_ON_FULL" => ("later", "wait"),
        "GPUSHARE_CAP" => ("101%", "between 1% and 100%"),
        "GPUSHARE_RESERVE" => ("2048TiB", "out of range"),
        "GPUSHARE_GROUP" => ("a group's name of thirty-two bytes", "at most 31 fit"),
        "GPUSHARE_NAME" | "GPUSHARE_GANG" => ("a\u{202e}b", "U+202E"),
        "GPUSHARE_POLICY" => ("sometimes", "expected"),
        "GPUSHARE_DISABLE" | "GPUSHARE_NVML_VIEW" | "GPUSHARE_SWAPPABLE" | "CUDA_OVERSUBSCRIBE"
        | "ACTIVE_OOM_KILLER" => ("perhaps", "1 or 0"),
        "GPUSHARE_PIN" => ("perhaps", "yes or no"),
        "GPUSHARE_LOG" => ("loud", "off, warn or info"),
        "GPUSHARE_TRACE" => ("on", "expected"),
        "WRAPPER_MAX_MEMORY" => ("bogus", "a number of bytes"),
        "CUDA_DEVICE_MEMORY_LIMIT" | "CUDA_MEM_LIMIT" => ("bogus", "expected"),
        "CUDA_DEVICE_MEMORY_LIMIT_n" | "CUDA_MEM_LIMIT_n" => ("1q", "use "),
        "CUDA_DEVICE_SM_LIMIT" | "CUDA_CORE_LIMIT" | "CUDA_CORE_LIMIT_n" => ("half", "expected"),
        "ALNAIR_VGPU_COMPUTE_PERCENTILE" => ("half", "expected"),
        "CUDA_TASK_PRIORITY" => ("4", "between 0 and 3"),
        "GPU_CORE_UTILIZATION_POLICY" => ("sometimes", "expected"),
        "CUDA_MEM_RATIO" | "CUDA_MEM_RATIO_n" => ("double", "expected"),
        "CUDA_OVERRIDE_KERNEL_N_SYNC" | "CUDA_OVERRIDE_SYNC_LOCK_SKIPS" => ("few", "expected"),
        "CUDA_OVERRIDE_MAX_SYNC_MS" => ("soon", "milliseconds"),
        "PFLOG" => ("/nonexistent/profile", "cannot write a profile"),
        // The directory is checked when the segments are made; the lock wrapper accepts every value and treats all but 0 as
        // yes.
        "GPUSHARE_DIR" | "CUDA_OVERRIDE_ALWAYS_LOCK" => return None,
        other => panic!("{other} has no row here"),
    })
}

#[test]
fn a_variable_that_the_library_would_ignore_keeps_the_program_from_starting() {
    let world = World::new();
    let library = TABLE
        .iter()
        .filter(|variable| variable.reader == Reader::Library);
    for variable in library {
        let Some((value, allowed)) = bad_value(variable.name) else {
            continue;
        };
        let name = variable.name.strip_suffix("_n").map_or_else(
            || variable.name.to_owned(),
            |of_each| format!("{of_each}_1"),
        );
        let mut command = world.command(&["run", "--", "echo", "started"]);
        command.env("GPUSHARE_LIB", artifact("libgpushare.so"));
        let said = command
            .env(&name, value)
            .said()
            .refused(2, &[&name, allowed]);
        // A value that cannot be displayed or is too long is not repeated.
        let is_shown = value.is_ascii() && value.len() <= 31;
        assert!(!is_shown || said.err.contains(value), "{said:?}");
        assert_eq!(said.out, "", "{name}");
    }
}

#[test]
fn a_library_whose_path_the_linker_would_split_is_preloaded_by_a_link() {
    let bed = Testbed::with_scenario("one-gpu");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let library = in_odd_folder(folder.path());
    let mut command = bed.gpushare(&["run", "--memory", "1M", "--"]);
    let mut workload = scripted(command.env("GPUSHARE_LIB", &library));
    let refused = workload.ask("alloc 2M");
    assert!(refused.starts_with("error 2 "), "{refused}");
    let process = first_process(&bed);
    assert_eq!(process["devices"][0]["quota_bytes"], json!(1 << 20));
    workload.close_input();
    let output = workload.wait_output();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!words.contains("ld.so"), "{words}");
}

#[test]
fn a_link_for_the_preload_that_points_elsewhere_is_replaced() {
    let world = World::new();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let library = in_odd_folder(folder.path());
    let print = || {
        let mut command = world.command(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
        let said = command.env("GPUSHARE_LIB", &library).said().done();
        PathBuf::from(said.out.trim())
    };
    let link = print();
    assert!(link.starts_with(world.dir()), "{}", link.display());
    assert_eq!(fs::read_link(&link).expect("a link"), library);
    fs::remove_file(&link).expect("ours");
    std::os::unix::fs::symlink("/nonexistent/library.so", &link).expect("ours");
    assert_eq!(print(), link);
    assert_eq!(fs::read_link(&link).expect("a link"), library);
}

#[test]
fn where_the_segments_have_such_a_path_too_a_limit_keeps_the_program_from_starting() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let library = in_odd_folder(folder.path());
    let segments = folder.path().join("segments here");
    fs::create_dir(&segments).expect("ours");
    let world = World::new();
    let start = |options: &[&str]| {
        let options = [
            &["run"],
            options,
            &["--", "sh", "-c", "echo $LD_PRELOAD started"],
        ]
        .concat();
        let mut command = world.command(&options);
        command.env("GPUSHARE_LIB", &library);
        command.env("GPUSHARE_DIR", &segments).said()
    };
    start(&["--memory", "1G"]).refused(1, &["--memory", "not started", "segments here", "a blank"]);
    let said = start(&[]).done();
    assert_eq!(said.out, "started\n");
    assert!(said.err.contains("a blank"), "{said:?}");
    assert_eq!(
        start(&["--memory", "1G", "--best-effort"]).done().out,
        "started\n"
    );
}

/// Copies the library to a folder whose name the dynamic linker would split.
fn in_odd_folder(parent: &Path) -> PathBuf {
    let folder = fs::canonicalize(parent).expect("there").join("a b:c");
    fs::create_dir(&folder).expect("ours");
    let library = folder.join("libgpushare.so");
    fs::copy(artifact("libgpushare.so"), &library).expect("room for it");
    library
}

#[test]
fn an_amount_for_a_device_that_the_program_will_not_see_is_refused() {
    let bed = Testbed::with_scenario("two-gpus");
    let run = |options: &[&str], environment: &[(&str, &str)]| {
        let options = [&["run"], options, &["--", "echo", "started"]].concat();
        let mut command = bed.gpushare(&options);
        command.envs(environment.iter().copied());
        command.said()
    };
    let visible = ("CUDA_VISIBLE_DEVICES", "1");
    run(&["--memory", "5:1GiB"], &[]).refused(2, &["--memory", "device 5", "devices 0 to 1"]);
    run(&["--memory", "1:1GiB"], &[visible]).refused(2, &["--memory", "only device 0"]);
    run(&["--memory", "1:1GiB", "--gpu", "0"], &[]).refused(2, &["--memory", "only device 0"]);
    run(&[], &[("GPUSHARE_MEMORY", "2:1GiB")]).refused(2, &["GPUSHARE_MEMORY", "device 2"]);
    run(&[], &[("CUDA_MEM_LIMIT_2", "1g")]).refused(2, &["CUDA_MEM_LIMIT_2", "device 2"]);
    for fits in ["1:1GiB", "0:1GiB,1:2GiB", "1GiB"] {
        assert_eq!(run(&["--memory", fits], &[]).done().out, "started\n");
    }
    let one = run(&["--memory", "0:1GiB"], &[visible]).done();
    assert_eq!(one.out, "started\n");
}

#[test]
fn where_nothing_counts_the_devices_before_the_start_the_library_says_so_at_cu_init() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut command = bed.preloaded(artifact("gpushare-workload"));
    command.arg("--script").env("GPUSHARE_MEMORY", "5:1GiB");
    let mut workload = Watched::spawn(&mut command);
    assert!(workload.line().starts_with("ready"));
    let process = first_process(&bed);
    for device in [0, 1] {
        assert_eq!(process["devices"][device]["quota_source"], "invalid");
    }
    workload.close_input();
    let output = workload.wait_output();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<&str> = words
        .lines()
        .filter(|line| line.contains("device 5"))
        .collect();
    assert_eq!(said.len(), 1, "{words}");
    assert!(said[0].contains("GPUSHARE_MEMORY"), "{words}");
}

fn first_process(bed: &Testbed) -> Value {
    let show = || processes(bed).first().cloned().unwrap_or_default();
    eventually("it has entered its devices", LIMIT, || {
        show()["devices"].is_array()
    });
    show()
}

/// Returns an ELF file with this linker and machine, with the word size and byte order of this machine.
fn elf(linker: &str, machine: u16) -> Vec<u8> {
    let mut file = vec![0_u8; 120];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..18].copy_from_slice(&3_u16.to_le_bytes());
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[20..24].copy_from_slice(&1_u32.to_le_bytes());
    // One program header, directly after this one: the path of the linker, at the end of the file.
    file[32..40].copy_from_slice(&64_u64.to_le_bytes());
    file[52..54].copy_from_slice(&64_u16.to_le_bytes());
    file[54..56].copy_from_slice(&56_u16.to_le_bytes());
    file[56..58].copy_from_slice(&1_u16.to_le_bytes());
    file[64..68].copy_from_slice(&3_u32.to_le_bytes());
    file[72..80].copy_from_slice(&120_u64.to_le_bytes());
    let length = linker.len() as u64 + 1;
    file[96..104].copy_from_slice(&length.to_le_bytes());
    file[104..112].copy_from_slice(&length.to_le_bytes());
    file.extend_from_slice(linker.as_bytes());
    file.push(0);
    file
}

#[test]
fn a_program_that_the_preload_cannot_reach_is_not_started_under_a_limit() {
    const X86_64: u16 = 62;
    const AARCH64: u16 = 183;
    let (ours, other) = match cfg!(target_arch = "aarch64") {
        true => (AARCH64, X86_64),
        false => (X86_64, AARCH64),
    };
    let world = World::new();
    let musl = world.dir().join("musl-program");
    let foreign = world.dir().join("foreign-program");
    fs::write(&musl, elf("/lib/ld-musl-x86_64.so.1", ours)).expect("ours");
    fs::write(&foreign, elf("/lib64/ld-linux-x86-64.so.2", other)).expect("ours");
    let mut programs = Vec::new();
    for (program, word) in [(musl, "musl"), (foreign, "another kind of processor")] {
        executable(&program);
        let script = program.with_extension("script");
        fs::write(&script, format!("#!{}\n", program.display())).expect("ours");
        executable(&script);
        programs.extend([(program, word), (script, word)]);
    }
    for (program, word) in programs {
        let program = program.display().to_string();
        for limit in [["--memory", "1G"], ["--cap", "30%"], ["--policy", "always"]] {
            let arguments = ["run", limit[0], limit[1], "--", &program];
            let mut command: Command = world.command(&arguments);
            command.env("GPUSHARE_LIB", artifact("libgpushare.so"));
            command
                .said()
                .refused(1, &["not started", limit[0], word, "--best-effort"]);
        }
    }
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

#[test]
fn a_variable_that_means_no_limit_keeps_no_program_from_starting() {
    let world = World::new();
    let run = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = world.command(&[&["run"], options, &["--", "echo", "started"]].concat());
        // Any library works: with this variable nothing is enforced anyway.
        let library = gpushare_base::host::elf::libc().expect("a machine with glibc");
        command
            .env("GPUSHARE_LIB", library)
            .env("GPUSHARE_DISABLE", "1");
        command.envs(variables.iter().copied());
        command.said()
    };
    for (options, variables) in [
        (&[][..], &[("CUDA_MEM_LIMIT", "0")][..]),
        (
            &[],
            &[
                ("CUDA_DEVICE_MEMORY_LIMIT", "0"),
                ("CUDA_DEVICE_MEMORY_LIMIT_1", "0"),
            ],
        ),
        (&[], &[("CUDA_DEVICE_SM_LIMIT", "0")]),
        (&[], &[("CUDA_DEVICE_SM_LIMIT", "100")]),
        (&[], &[("ALNAIR_VGPU_COMPUTE_PERCENTILE", "0")]),
        (
            &[],
            &[("GPUSHARE_MEMORY", "none"), ("GPUSHARE_CAP", "100%")],
        ),
        (&[], &[("GPUSHARE_POLICY", "off")]),
        (&["--memory", "none"], &[("CUDA_MEM_LIMIT", "8G")]),
        (&["--policy", "off", "--cap", "100%"], &[]),
    ] {
        let said = run(options, variables);
        assert_eq!(said.out, "started\n", "{options:?} {variables:?}: {said:?}");
    }
    for (options, variables, named) in [
        (&[][..], &[("CUDA_MEM_LIMIT", "8G")][..], "CUDA_MEM_LIMIT"),
        (
            &[],
            &[("CUDA_DEVICE_MEMORY_LIMIT_1", "8G")],
            "CUDA_DEVICE_MEMORY_LIMIT_1",
        ),
        (&[], &[("WRAPPER_MAX_MEMORY", "0")], "WRAPPER_MAX_MEMORY"),
        (
            &[],
            &[("CUDA_OVERRIDE_ALWAYS_LOCK", "1")],
            "CUDA_OVERRIDE_ALWAYS_LOCK",
        ),
        (&["--memory", "1:8G"], &[], "--memory"),
        (&["--group", "team"], &[], "--group"),
    ] {
        let said = run(options, variables);
        assert_eq!(said.out, "", "{options:?} {variables:?}: {said:?}");
        said.refused(1, &["was not started", named]);
    }
}
