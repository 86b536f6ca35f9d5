//! `gpushare run`: it checks everything first and then executes the program in its own process.

mod cli_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cli_support::{Run as _, Said, World, library};
use gpushare_testbed::as_ordinary_user;

fn command(world: &World, args: &[&str]) -> Command {
    let mut command = world.command(&[&["run"], args].concat());
    command.env("GPUSHARE_LIB", library());
    command
}

fn run(world: &World, args: &[&str]) -> Said {
    command(world, args).said()
}

#[test]
fn a_program_ignores_sigpipe_if_whoever_starts_it_had_it_ignored_as_systemd_does() {
    let world = World::new();
    let show = "grep SigIgn /proc/self/status";
    for before in ["trap '' PIPE;", ""] {
        let bare = Command::new("sh")
            .args(["-c", &format!("{before} exec {show}")])
            .output();
        let under = command(&world, &["--", "grep", "SigIgn", "/proc/self/status"]);
        let mut shell = Command::new("sh");
        let words: Vec<_> = under.get_args().collect();
        shell
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .arg(under.get_program())
            .args(words);
        for (name, value) in under.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let said = shell.output().expect("sh");
        assert_eq!(said.stdout, bare.expect("sh").stdout, "{before} {said:?}");
    }
}

#[test]
fn wrong_settings_are_refused_before_anything_starts() {
    let world = World::new();
    let mark = world.dir().join("started");
    let touch = format!("touch {}", mark.display());
    for (option, value, word) in [
        ("--memory", "8Q", "unknown unit"),
        ("--memory", "0:1G,0:2G", "two amounts"),
        ("--weight", "0", "between 1 and 1000"),
        ("--weight", "-1", "between 1 and 1000"),
        ("--priority", "20", "between -20 and 19"),
        ("--cap", "0%", "between 1% and 100%"),
        ("--group", "", "empty"),
        ("--name", "a\nb", "control character U+000A"),
        ("--name", "a\u{202e}b", "U+202E"),
        ("--group", "a\u{200b}b", "U+200B"),
        ("--policy", "timeslice=5", "has no unit; write 5ms"),
    ] {
        run(&world, &[option, value, "--", "sh", "-c", &touch]).refused(2, &[option, word]);
    }
    run(&world, &["--trace", "-", "--", "sh", "-c", &touch])
        .refused(2, &["--trace", "name a file"]);
    run(&world, &["--sim", "sh", "-c", &touch]).refused(2, &["--sim -- sh"]);
    let scenario = |name: &str| run(&world, &["--sim", name, "--", "sh", "-c", &touch]);
    scenario("two-gpu").refused(2, &["--sim", "`two-gpu`", "two-gpus", "no-gpu"]);
    scenario("--swapable").refused(2, &["\"--swapable\" is not an option"]);
    let file = world.dir().join("scenario.toml");
    fs::write(&file, "[[device]]\nmemory = '8Q'").expect("ours");
    scenario(&file.display().to_string()).refused(2, &["--sim", "8Q"]);
    command(&world, &["--sim", "--", "sh", "-c", &touch])
        .env("GPUSHARE_SIM_SCENARIO", "two-gpu")
        .said()
        .refused(2, &["GPUSHARE_SIM_SCENARIO", "`two-gpu`"]);
    run(&world, &["--gpu=-1", "--", "sh", "-c", &touch]).refused(5, &["--gpu -1", "no GPU"]);
    assert!(!mark.exists());
}

#[test]
fn a_wrong_value_that_would_be_inherited_is_refused_too() {
    let world = World::new();
    let start = |options: &[&str]| {
        let options = [options, &["--", "echo", "started"]].concat();
        command(&world, &options)
            .env("GPUSHARE_MEMORY", "8Q")
            .said()
    };
    start(&[]).refused(2, &["GPUSHARE_MEMORY", "8Q"]);
    assert_eq!(
        start(&["--memory", "1G"]).done().out,
        "started\n",
        "what is said here hides it"
    );
}

#[test]
fn the_settings_and_the_preload_reach_the_program() {
    let world = World::new();
    let script = "echo $GPUSHARE_MEMORY $GPUSHARE_WEIGHT $GPUSHARE_PRIORITY $GPUSHARE_CAP $GPUSHARE_GROUP \
                  $GPUSHARE_NAME; echo $GPUSHARE_POLICY; echo $LD_PRELOAD";
    let said = run(
        &world,
        &[
            "--memory=0:8GiB,1:50%",
            "--weight=200",
            "--priority=-5",
            "--cap=30%",
            "--group=team",
            "--name=train",
            "--policy=timeslice=5ms order=fifo",
            "--",
            "sh",
            "-c",
            script,
        ],
    )
    .done();
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines[0], "0:8GiB,1:50% 200 -5 30% team train");
    assert_eq!(lines[1], "timeslice=5ms order=fifo");
    assert_eq!(lines[2], library().display().to_string());
}

#[test]
fn a_preload_that_is_there_stays_behind_ours_and_ours_is_there_once() {
    let world = World::new();
    let ours = library().display().to_string();
    let print = ["--", "sh", "-c", "echo $LD_PRELOAD"];
    let said = command(&world, &print)
        .env("LD_PRELOAD", format!("{ours}:libm.so.6"))
        .said();
    assert_eq!(said.done().out, format!("{ours}:libm.so.6\n"));
}

#[test]
fn the_exit_code_the_pid_and_the_signals_are_the_programs_own() {
    let world = World::new();
    assert_eq!(run(&world, &["--", "sh", "-c", "exit 42"]).code, 42);
    let child = command(&world, &["--", "sh", "-c", "echo $$; kill -TERM $$"])
        .stdout(Stdio::piped())
        .spawn();
    let child = child.expect("built");
    let pid = child.id();
    let output = child.wait_with_output().expect("our child");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        pid.to_string()
    );
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn a_program_that_is_not_there_or_not_executable_has_the_shells_codes() {
    let world = World::new();
    run(&world, &["--", "no-such-program-here"])
        .refused(127, &["no-such-program-here", "not in PATH"]);
    run(&world, &["--", "/nonexistent/program"]).refused(127, &["no such file"]);
    let plain = world.dir().join("plain");
    cli_support::executable(&plain, "echo started\n", "644");
    let path = plain.display().to_string();
    run(&world, &["--", &path]).refused(126, &["may not execute"]);
    run(&world, &["--", "/"]).refused(126, &["a directory"]);
    // An executable text without an interpreter line: a shell would run it, so it is run.
    cli_support::executable(&plain, "echo started\n", "755");
    assert_eq!(run(&world, &["--", &path]).done().out, "started\n");
}

#[test]
fn the_dashes_before_the_program_may_be_left_out() {
    let world = World::new();
    assert_eq!(
        run(&world, &["--name", "x", "echo", "--memory", "y"])
            .done()
            .out,
        "--memory y\n"
    );
    assert_eq!(run(&world, &[]).code, 2);
}

#[test]
fn a_library_that_is_not_there_ends_it_with_what_to_do() {
    let world = World::new();
    world
        .command(&["run", "--", "true"])
        .env("GPUSHARE_LIB", "/nonexistent/lib.so")
        .said()
        .refused(1, &["GPUSHARE_LIB", "/nonexistent/lib.so"]);
}

#[test]
fn a_static_program_runs_with_a_warning_and_not_at_all_with_a_limit() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static.c");
    fs::write(&source, "int main(void) { return 3; }\n").expect("ours");
    let program = gpushare_testbed::cc(&source, "static-program", &["-static"])
        .display()
        .to_string();
    let said = run(&World::new(), &["--", &program]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("statically linked"), "{said:?}");
    run(&World::new(), &["--memory", "1G", "--", &program])
        .refused(1, &["not started", "--memory", "statically linked"]);
    let options = ["--memory", "1G", "--best-effort", "--", &program];
    assert_eq!(run(&World::new(), &options).code, 3);
}

/// Makes a set-user-id program, if this machine allows it.
fn set_user_id_program(world: &World) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/usr/bin/su")).filter(|path| path.exists());
    }
    let copy = world.dir().join("true");
    cli_support::copy("/bin/true", &copy, "755");
    std::os::unix::fs::chown(&copy, Some(65534), None).ok()?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("ours");
    Some(copy)
}

#[test]
fn a_set_user_id_program_runs_with_a_warning_and_with_a_limit_not_at_all() {
    let world = World::new();
    let Some(program) = set_user_id_program(&world) else {
        return;
    };
    let program = [program.display().to_string(), "--version".into()];
    let program = ["--", &program[0], &program[1]];
    let said = run(&world, &program).done();
    assert!(said.err.contains("setuid"), "{said:?}");
    let limited = |options: &[&str]| run(&world, &[options, &program[..]].concat());
    limited(&["--cap", "30%"]).refused(1, &["--cap", "setuid", "--best-effort"]);
    let said = limited(&["--cap", "30%", "--best-effort"]).done();
    assert!(said.err.contains("without limits"), "{said:?}");
    limited(&["--weight", "300"]).done();
}

#[test]
fn the_set_user_id_bit_of_ones_own_program_changes_nothing() {
    let world = World::new();
    let copy = world.dir().join("echo");
    cli_support::copy("/bin/echo", &copy, "4755");
    let said = run(
        &world,
        &["--sim", "--memory", "1G", "--", &copy.display().to_string()],
    )
    .done();
    assert_eq!((said.out.as_str(), said.err.as_str()), ("\n", ""));
}

#[test]
fn a_program_that_steps_aside_is_not_started_under_a_limit() {
    let world = World::new();
    let start = |options: &[&str]| {
        let options = [options, &["--", "echo", "started"]].concat();
        let mut command = command(&world, &options);
        command.env("GPUSHARE_DISABLE", "1").said()
    };
    start(&["--memory", "1G"]).refused(1, &["--memory", "GPUSHARE_DISABLE", "unset it"]);
    let said = start(&[]).done();
    assert_eq!(said.out, "started\n");
    assert!(said.err.contains("GPUSHARE_DISABLE"), "{said:?}");
}

#[test]
fn a_named_device_is_the_only_one_the_program_sees() {
    let world = World::new();
    let actor = world.actor("resident");
    actor.enter(0);
    actor.enter(1);
    let second = gpushare_base::text::uuids::format(cli_support::uuid(1), false);
    let print = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
    let said = run(&world, &[&["--gpu", "1", "--"], &print[..]].concat()).done();
    assert_eq!(said.out.trim(), second);
    let said = run(&world, &[&["--gpu", "auto", "--"], &print[..]].concat()).done();
    assert!(said.out.starts_with("GPU-"), "{said:?}");
    run(&world, &["--gpu", "9", "--", "true"]).refused(5, &["--gpu 9", "no GPU 9"]);
}

#[test]
fn without_a_driver_the_same_command_on_the_simulated_gpu_is_named() {
    const OF_DRIVER: [&str; 3] = ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"];
    if OF_DRIVER.iter().any(|path| Path::new(path).exists()) {
        return;
    }
    let world = World::new();
    for (words, line) in [
        (&["--", "true"][..], "gpushare run --sim -- true"),
        (&["true", "a b"], "gpushare run --sim -- true 'a b'"),
        (&["--name", "x", "true"], "gpushare run --sim --name x true"),
    ] {
        let said = run(&world, words).done();
        assert!(said.err.contains("found no NVIDIA driver"), "{said:?}");
        assert!(said.err.trim_end().ends_with(line), "{said:?}");
    }
    let said = run(&world, &["--sim", "--", "true"]).done();
    assert_eq!(said.err, "");
}

#[test]
fn a_group_that_nobody_defined_is_mentioned() {
    let world = World::new();
    world.gpushare(&["init"]).done();
    let said = run(&world, &["--group", "team", "--", "true"]).done();
    assert!(said.err.contains("gpushare group create team"), "{said:?}");
    world
        .gpushare(&["group", "create", "team", "memory=1G"])
        .done();
    let said = run(&world, &["--group", "team", "--", "true"]).done();
    assert!(!said.err.contains("group create"), "{said:?}");
}

#[test]
fn a_relative_directory_still_means_the_same_after_the_program_has_moved() {
    let world = World::new();
    let print = ["--", "sh", "-c", "cd /; echo $GPUSHARE_DIR"];
    let mut command = command(&world, &print);
    command.current_dir(world.dir().parent().expect("it has one"));
    command.env("GPUSHARE_DIR", world.dir().file_name().expect("it has one"));
    let said = command.said().done();
    let whole = fs::canonicalize(world.dir()).expect("there");
    assert_eq!(said.out.trim(), whole.display().to_string());
}

/// Returns unusable segment directories, each with a word of the message and the exit code.
fn unusable(world: &World) -> Vec<(PathBuf, &'static str, i32)> {
    let file = world.dir().join("file");
    fs::write(&file, "").expect("ours");
    let foreign = world.dir().join("foreign");
    fs::create_dir(&foreign).expect("ours");
    fs::write(foreign.join("state"), "not a segment\n".repeat(1000)).expect("ours");
    fs::write(foreign.join("control"), "not a segment\n".repeat(1000)).expect("ours");
    let locked = world.dir().join("locked");
    fs::create_dir(&locked).expect("ours");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("ours");
    vec![
        (file.join("below"), "below", 1),
        (foreign, "not a gpushare segment", 1),
        (locked, "you may not write there", 4),
    ]
}

#[test]
fn where_nothing_can_be_counted_the_program_starts_all_the_same_and_one_sentence_says_so() {
    library();
    as_ordinary_user(|| {
        let world = World::new();
        for (dir, words, _) in unusable(&world) {
            let mut command = command(
                &world,
                &["--name", "x", "--", "sh", "-c", "echo $LD_PRELOAD started"],
            );
            let said = command.env("GPUSHARE_DIR", &dir).said().done();
            assert_eq!(said.out, "started\n", "without the library");
            assert!(said.err.contains(words), "{said:?}");
            assert!(said.err.contains("without limits"), "{said:?}");
            assert_eq!(said.err.lines().count(), 1, "{said:?}");
        }
    });
}

#[test]
fn a_limit_that_cannot_be_enforced_keeps_the_program_from_starting() {
    library();
    as_ordinary_user(|| {
        let world = World::new();
        for (dir, words, code) in unusable(&world) {
            let start = |options: &[&str], inherited: Option<(&str, &str)>| {
                let options = [options, &["--", "echo", "started"]].concat();
                let mut command = command(&world, &options);
                command.env("GPUSHARE_DIR", &dir).envs(inherited);
                command.said()
            };
            for limit in [
                &["--memory", "1G"][..],
                &["--cap", "30%"],
                &["--group", "team"],
                &["--policy", "always"],
            ] {
                let said = start(limit, None).refused(code, &[limit[0], words, "--best-effort"]);
                assert_eq!(said.out, "");
                let effort = [limit, &["--best-effort"]].concat();
                assert_eq!(start(&effort, None).done().out, "started\n");
            }
            for inherited in [("GPUSHARE_CAP", "30%"), ("CUDA_MEM_LIMIT_1", "1g")] {
                start(&[], Some(inherited)).refused(code, &[inherited.0, words]);
            }
        }
    });
}

/// Environments in which segments have no space, or in which locks of running programs are lost.
const UNFIT: [(&str, &str); 2] = [
    (
        "mount -t tmpfs -o size=64k,mode=700 none \"$GPUSHARE_DIR\"",
        "no room",
    ),
    (
        "mount -t tmpfs none \"$GPUSHARE_DIR\" && cd \"$GPUSHARE_DIR\" && mkdir -m 700 l u w && \
         mount -t overlay -o lowerdir=l,upperdir=u,workdir=w overlay \"$GPUSHARE_DIR\"",
        "forgets the locks",
    ),
];

#[test]
fn an_unfit_file_system_is_a_sentence_and_not_a_program_without_its_limit() {
    for (mount, why) in UNFIT {
        unfit(mount, why);
    }
}

fn unfit(mount: &str, why: &str) {
    let world = World::new();
    let mount = format!("{{ {mount}; }} 2> /dev/null || exit 99; exec \"$@\"");
    let start = |verb: &[&str], options: &[&str]| {
        let mut command = Command::new("unshare");
        let arguments = [
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &mount,
            "sh",
        ];
        command.args(arguments).arg(env!("CARGO_BIN_EXE_gpushare"));
        command.args(verb).args(options);
        command
            .env("GPUSHARE_DIR", world.dir())
            .env("GPUSHARE_LIB", library());
        command.said()
    };
    let run = |options: &[&str]| start(&["run"], &[options, &["--", "echo", "started"]].concat());
    let said = run(&[]);
    if said.code != 0 && said.out.is_empty() && !said.err.contains("gpushare: ") {
        // Not every user may mount on every machine.
        return;
    }
    assert_eq!(said.done().out, "started\n");
    let said = run(&["--memory", "1G"]).refused(1, &["--memory", why, "GPUSHARE_DIR"]);
    assert_eq!(said.out, "");
    // Without space nothing has been made yet.
    let examined = start(&["doctor"], &[]);
    assert_eq!(
        examined.out.contains(why),
        why == "forgets the locks",
        "{examined:?}"
    );
}

#[test]
fn a_directory_that_cannot_be_used_is_the_reason_that_the_simulator_cannot_start() {
    let world = World::new();
    let open = world.dir().join("open");
    fs::create_dir(&open).expect("ours");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("ours");
    let start = |options: &[&str]| {
        let options = [options, &["--", "echo", "started"]].concat();
        let mut command = command(&world, &options);
        command.env("GPUSHARE_DIR", &open);
        command.said()
    };
    let bare = start(&[]).done();
    let why = bare.err.trim().rsplit("limits: ").next().expect("a reason");
    let said = start(&["--sim"]).refused(4, &["--sim needs a directory", why]);
    assert_eq!(said.out, "");
}

#[test]
fn a_variable_that_means_nothing_is_named_with_the_one_that_was_meant() {
    let world = World::new();
    let start = |args: &[&str]| {
        let mut command = world.command(args);
        command
            .env("GPUSHARE_LIB", library())
            .env("GPUSHARE_MEMRY", "8GiB")
            .env("GPUSHARE_QUOTA", "8GiB")
            .env("GPUSHARE_SERVICE_HOST", "10.0.0.1");
        command.said()
    };
    let said = start(&["run", "--", "echo", "started"]).done();
    assert_eq!(said.out, "started\n");
    let doctor = start(&["doctor"]);
    for (text, source) in [(&said.err, "run"), (&doctor.out, "doctor")] {
        for words in [
            "GPUSHARE_MEMRY is set and means nothing to gpushare; did you mean GPUSHARE_MEMORY?",
            "GPUSHARE_QUOTA is set and means nothing",
        ] {
            assert!(text.contains(words), "{source}: {words}: {text}");
        }
        assert!(!text.contains("SERVICE_HOST"), "{source}: {text}");
    }
    assert!(
        !doctor.out.contains("no GPUSHARE_* variable is inherited"),
        "{doctor:?}"
    );
}
