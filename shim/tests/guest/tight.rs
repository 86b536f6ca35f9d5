//! Restricted environments: forbidden system calls, low limits, a full or read-only file system.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::{Command, Output},
};

use gpushare_testbed::{Need, Watched, artifact, needs};

use super::{
    behaviours::{in_words, says, told},
    stage::Stage,
};

/// Runs a program that may have to continue unmanaged: it completes its work, and at most one line gives the reason.
fn at_most_one_line(source: &str, words: &[&str], says_this: &str) -> String {
    continues(says(&Stage::new(), source, words), words, says_this)
}

/// Checks the output and the stderr of such a program, and returns the latter.
fn continues(told: (String, String), words: &[&str], says_this: &str) -> String {
    let (said, complained) = told;
    assert_eq!(said, says_this, "{words:?}: {complained}");
    is_at_most_one_line(&complained, &format!("{words:?}"));
    complained
}

/// Checks that stderr is empty or one line of the library.
fn is_at_most_one_line(complained: &str, about: &str) {
    let ours = complained
        .lines()
        .all(|line| line.starts_with("gpushare: "));
    assert!(
        ours && complained.lines().count() <= 1,
        "{about}: {complained}"
    );
}

const MEMBARRIER: i64 = libc::SYS_membarrier;
const FUTEX: i64 = libc::SYS_futex;
const FUTEX_WAITV: i64 = 449;
const SET_ROBUST_LIST: i64 = libc::SYS_set_robust_list;

#[test]
fn a_sandbox_may_forbid_what_we_would_like_to_have() {
    for error in [libc::ENOSYS, libc::EPERM] {
        for calls in [
            &[MEMBARRIER][..],
            &[FUTEX_WAITV],
            &[MEMBARRIER, FUTEX_WAITV, SET_ROBUST_LIST],
        ] {
            for when in ["before", "after"] {
                let mut words = vec![when.to_owned(), error.to_string()];
                words.extend(calls.iter().map(i64::to_string));
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                at_most_one_line("forbidden_calls.c", &words, "answers 0, at rest");
            }
        }
    }
}

/// System calls that the library makes but may have to do without: see `shim/GUESTS.md`.
const OURS: [i64; 22] = [
    libc::SYS_statx,
    libc::SYS_fcntl,
    libc::SYS_madvise,
    libc::SYS_munmap,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_geteuid,
    libc::SYS_prlimit64,
    libc::SYS_flock,
    libc::SYS_fallocate,
    libc::SYS_pwrite64,
    libc::SYS_fchmod,
    libc::SYS_linkat,
    libc::SYS_clone3,
    libc::SYS_clone,
    libc::SYS_rt_sigprocmask,
    libc::SYS_prctl,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    SET_ROBUST_LIST,
];

#[test]
fn whatever_call_of_ours_is_refused_the_program_does_its_work() {
    for error in [libc::ENOSYS, libc::EPERM] {
        let stages: Vec<_> = OURS.iter().map(|call| (call, Stage::new())).collect();
        let started: Vec<_> = stages
            .iter()
            .map(|(call, stage)| {
                let mut command = stage.program("forbidden_calls.c", "timeslice=5ms");
                command.args(["before", &error.to_string(), &call.to_string()]);
                (call, Watched::spawn(&mut command))
            })
            .collect();
        for (call, program) in started {
            let (said, complained) = told("forbidden_calls.c", program);
            assert_eq!(said, "answers 0, at rest", "{call} {complained}");
            is_at_most_one_line(&complained, &call.to_string());
        }
    }
}

/// glibc ends a program with this where two of its threads want one of glibc's own locks and the kernel refuses futexes.
const GLIBCS_END: &str = "The futex facility returned an unexpected error code.";

#[test]
fn a_sandbox_without_any_futex_makes_nobody_turn_in_circles() {
    for error in [libc::ENOSYS, libc::EPERM] {
        for when in ["before", "after"] {
            let words = [
                when,
                &error.to_string(),
                &FUTEX.to_string(),
                &FUTEX_WAITV.to_string(),
            ];
            let stage = Stage::new();
            let mut outputs = (0..5).map(|_| {
                let mut command = stage.program("forbidden_calls.c", "timeslice=5ms");
                Watched::spawn(command.args(words)).wait_output()
            });
            let is_glibcs =
                |output: &Output| String::from_utf8_lossy(&output.stderr).contains(GLIBCS_END);
            let output = outputs.find(|output| !is_glibcs(output));
            let output = output.expect("glibc ends few of them");
            let told = in_words("forbidden_calls.c", &output);
            continues(told, &words, "answers 0, at rest");
        }
    }
}

#[test]
fn low_limits_leave_it_unmanaged_at_worst() {
    for (limit, value) in [
        ("nofile", "3"),
        ("nofile", "4"),
        ("nofile", "5"),
        ("nofile", "8"),
        ("memlock", "0"),
        ("fsize", "100000"),
        ("fsize", "1000000"),
        ("stack", "65536"),
        ("as", "1000000"),
        ("as", "8000000"),
        ("as", "9000000"),
        ("as", "20000000"),
    ] {
        at_most_one_line("low_limits.c", &[limit, value], "answers 0");
    }
}

/// Checks that a requested limit is in force, or that CUDA is not initialised and one line gives the reason. Returns which.
fn keeps_the_limit(
    stage: &Stage,
    words: &[&str],
    variables: &[(&str, &str)],
    because: &str,
) -> bool {
    let mut command = stage.program("low_limits.c", "");
    command.args(words).envs(variables.iter().copied());
    let (said, complained) = told("low_limits.c", Watched::spawn(&mut command));
    let about = format!("{words:?} {variables:?}: {said} {complained}");
    is_at_most_one_line(&complained, &about);
    if said == "answers 0" {
        assert_eq!(complained, "", "{about}");
        return true;
    }
    // CUDA_ERROR_SYSTEM_NOT_READY.
    assert_eq!(said, "answers 802", "{about}");
    let named = complained.contains(because);
    let refused = complained.contains("a limit was asked for, so CUDA is not initialised");
    assert!(named && refused, "{about}");
    false
}

#[test]
fn a_limit_is_not_lost_where_descriptors_run_short() {
    for memory in ["GPUSHARE_MEMORY", "GPUSHARE_CAP"] {
        let value = if memory == "GPUSHARE_CAP" {
            "50%"
        } else {
            "1GiB"
        };
        let mut kept = 0;
        for most in 3..=12 {
            let words = ["nofile", &most.to_string()];
            let limit = [(memory, value)];
            kept += u32::from(keeps_the_limit(&Stage::new(), &words, &limit, "ulimit -n"));
        }
        assert!(
            (1..10).contains(&kept),
            "{kept} of 10: nothing was short, or all was"
        );
    }
}

#[test]
fn a_limit_is_not_lost_for_any_other_want() {
    let limit = ("GPUSHARE_MEMORY", "1GiB");
    let refused = |words: &[&str], more: (&str, &str), because: &str| {
        let kept = keeps_the_limit(&Stage::new(), words, &[limit, more], because);
        assert!(!kept, "{words:?} {more:?}: it was managed");
    };
    let plenty = &["memlock", "0"][..];
    refused(
        plenty,
        ("GPUSHARE_DIR", "/nonexistent/gpushare"),
        "/nonexistent/gpushare: No such file",
    );
    refused(
        plenty,
        ("DEVICES", "17"),
        "list fewer in CUDA_VISIBLE_DEVICES",
    );
    refused(&["fsize", "100000"], limit, "File too large");
    refused(&["as", "1000000"], limit, "");
    let stage = Stage::new();
    fs::write(stage.segments().join("state"), vec![7; 9000]).expect("our own directory");
    assert!(!keeps_the_limit(
        &stage,
        plenty,
        &[limit],
        "is not a gpushare segment"
    ));
}

/// Makes a stage whose segments belong to user 65534, who may use them. Returns `None` if this test cannot change owners.
fn of_nobody() -> Option<Stage> {
    let stage = Stage::new();
    if !needs(Need::Root) {
        return None;
    }
    chown(stage.segments(), Some(65534), None).expect("given away");
    let around = stage
        .segments()
        .parent()
        .map(Path::to_owned)
        .expect("a temporary directory");
    fs::set_permissions(around, fs::Permissions::from_mode(0o777)).expect("our own directory");
    Some(stage)
}

#[test]
fn a_user_who_may_start_no_thread_has_no_cap_and_does_not_begin() {
    let Some(stage) = of_nobody() else {
        return;
    };
    let words = ["nproc", "0", "65534"];
    let cap = [("GPUSHARE_CAP", "50%")];
    assert!(!keeps_the_limit(&stage, &words, &cap, "ulimit -u"));
}

#[test]
fn a_user_who_may_start_no_thread_runs_without_a_lock() {
    let Some(stage) = of_nobody() else {
        return;
    };
    let (said, complained) = says(&stage, "low_limits.c", &["nproc", "0", "65534"]);
    assert_eq!(said, "answers 0");
    assert!(complained.contains("cannot start a thread"), "{complained}");
    assert_eq!(complained.lines().count(), 1, "{complained}");
}

#[test]
fn what_it_says_can_be_switched_off() {
    let stage = Stage::new();
    let quiet = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = stage.program("low_limits.c", "");
        command.args(words).env("GPUSHARE_LOG", "off");
        command.envs(variables.iter().copied());
        let said = told("quiet", Watched::spawn(&mut command));
        assert_eq!(said, ("answers 0".to_owned(), String::new()), "{words:?}");
    };
    quiet(&["as", "1000000"], &[]);
    quiet(&["memlock", "0"], &[("GPUSHARE_MEMORY", "8Q")]);
    quiet(
        &["memlock", "0"],
        &[("GPUSHARE_DIR", "/nonexistent/gpushare")],
    );
}

/// Returns a shell with a private file system over the segments' directory, or `None` if that is not allowed.
fn with_a_file_system(stage: &Stage, prepare: &str, then: &str) -> Option<Command> {
    let wrapped = ["--user", "--map-root-user", "--mount"];
    let allowed = Command::new("unshare").args(wrapped).arg("true").output();
    let allowed = allowed.is_ok_and(|output| output.status.success());
    if !needs(Need::Works("user-namespaces", allowed)) {
        return None;
    }
    let program = stage.program("peace.c", "timeslice=5ms");
    let mut command = Command::new("unshare");
    command
        .args(wrapped)
        .args(["env", "-u", "LD_PRELOAD", "sh", "-ec"])
        .arg(format!("{prepare}\nexport LD_PRELOAD=\"$OURS\"\n{then}"))
        .args(["sh"])
        .arg(program.get_program())
        .env("OURS", artifact("libgpushare.so"));
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
        .env_remove("LD_PRELOAD")
        .env("DIR", stage.segments());
    Some(command)
}

/// An overlay over the segments' directory, as in a container.
const OVERLAY: &str = "side=\"$(dirname \"$DIR\")/side\"; mkdir \"$side\"; mount -t tmpfs none \"$side\"
    mkdir -m 700 \"$side/lower\" \"$side/upper\" \"$side/work\"; cp -a \"$DIR\"/. \"$side/lower\"
    mount -t overlay -o \"lowerdir=$side/lower,upperdir=$side/upper,workdir=$side/work\" overlay \"$DIR\"";

#[test]
fn a_limit_is_not_lost_on_a_file_system_that_forgets_locks() {
    for (before, limit, answers, then) in [
        (false, "", "answers 0", "this process runs unmanaged"),
        (false, "1GiB", "answers 802", "CUDA is not initialised"),
        // Segments from elsewhere: an image of a running container contains them.
        (true, "", "answers 0", "this process runs unmanaged"),
        (true, "1GiB", "answers 802", "CUDA is not initialised"),
    ] {
        let stage = Stage::new();
        if before {
            assert_eq!(
                says(&stage, "peace.c", &["plain"]),
                ("answers 0".to_owned(), String::new())
            );
        }
        let Some(mut command) = with_a_file_system(&stage, OVERLAY, "exec \"$1\" plain") else {
            return;
        };
        command.env("GPUSHARE_MEMORY", limit);
        let (said, complained) = told("overlay", Watched::spawn(&mut command));
        let about = format!("{before} {limit}: {said} {complained}");
        assert_eq!(said, answers, "{about}");
        assert_eq!(complained.lines().count(), 1, "{about}");
        assert!(
            complained.contains("forgets the locks") && complained.contains(then),
            "{about}"
        );
    }
}

#[test]
fn a_full_file_system_is_a_sentence() {
    let stage = Stage::new();
    let prepare = "mount -t tmpfs -o size=64k,mode=700 none \"$DIR\"";
    let Some(mut command) = with_a_file_system(&stage, prepare, "exec \"$1\" plain") else {
        return;
    };
    let (said, complained) = told("full", Watched::spawn(&mut command));
    assert_eq!(said, "answers 0");
    assert_eq!(complained.lines().count(), 1, "{complained}");
    assert!(
        complained.contains("no room") && complained.contains("unmanaged"),
        "{complained}"
    );
}

#[test]
fn a_file_system_that_fills_up_later_stops_nobody() {
    let stage = Stage::new();
    let prepare = "mount -t tmpfs -o size=64m,mode=700 none \"$DIR\"";
    let then = "\"$1\" plain; cat /dev/zero >\"$DIR/rest\" 2>/dev/null || :; exec \"$1\" threads";
    let Some(mut command) = with_a_file_system(&stage, prepare, then) else {
        return;
    };
    let said = told("filling", Watched::spawn(&mut command));
    assert_eq!(said, ("answers 0\nanswers 0".to_owned(), String::new()));
}

#[test]
fn a_read_only_file_system_is_a_sentence() {
    let stage = Stage::new();
    let mount = "mount -t tmpfs -o size=64m,mode=700 none \"$DIR\"";
    for (prepare, then) in [
        (
            format!("{mount}; mount -o remount,ro \"$DIR\""),
            "exec \"$1\" plain",
        ),
        // The segments exist and become read-only.
        (
            mount.to_owned(),
            "\"$1\" plain; mount -o remount,ro \"$DIR\"; exec \"$1\" plain",
        ),
    ] {
        let Some(mut command) = with_a_file_system(&stage, &prepare, then) else {
            return;
        };
        let (said, complained) = told("read-only", Watched::spawn(&mut command));
        assert!(said.ends_with("answers 0"), "{said}");
        assert_eq!(complained.lines().count(), 1, "{complained}");
        assert!(complained.contains("unmanaged"), "{complained}");
    }
}
