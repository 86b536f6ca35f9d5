//! `gpushare wrap` and `unwrap`: the program keeps all its properties.

mod cli_support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use cli_support::{Run as _, World};
use gpushare_testbed::{Need, needs};

const PROGRAM: &str =
    "#!/bin/sh\necho \"memory=$GPUSHARE_MEMORY name=$GPUSHARE_NAME args=$*\"\nexit 7\n";

fn program(world: &World) -> PathBuf {
    let path = world.dir().join("it's a program");
    cli_support::executable(&path, PROGRAM, "751");
    path
}

#[test]
fn a_wrapped_program_starts_under_gpushare_and_unwraps_to_the_same_file() {
    let world = World::new();
    let library = world.dir().join("libgpushare.so");
    fs::write(&library, "").expect("ours");
    let path = program(&world);
    let exe = path.display().to_string();
    let before = fs::metadata(&path).expect("there");

    world
        .gpushare(&["wrap", &exe, "--memory", "8GiB", "--name", "two words"])
        .done();
    assert_eq!(
        fs::metadata(&path).expect("the wrapper").mode(),
        before.mode()
    );
    let output = Command::new(&path)
        .args(["a b", "c"])
        .env("GPUSHARE_DIR", world.dir())
        .env("GPUSHARE_LIB", &library)
        .output()
        .expect("the wrapper runs");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "memory=8GiB name=two words args=a b c\n"
    );

    world
        .gpushare(&["wrap", &exe])
        .refused(2, &["already a wrapper"]);
    world.gpushare(&["unwrap", &exe]).done();
    let after = fs::metadata(&path).expect("the program");
    assert_eq!(fs::read_to_string(&path).expect("text"), PROGRAM);
    assert_eq!(
        (after.ino(), after.mode(), after.mtime()),
        (before.ino(), before.mode(), before.mtime())
    );
    let names = fs::read_dir(world.dir())
        .expect("ours")
        .flatten()
        .map(|entry| entry.file_name());
    assert!(
        !names
            .into_iter()
            .any(|name| name.to_string_lossy().contains("wrap")),
        "nothing is left behind"
    );
    world
        .gpushare(&["unwrap", &exe])
        .refused(1, &["not wrapped"]);
}

#[test]
fn a_wrapped_link_is_replaced_and_the_program_that_it_names_stays_as_it_is() {
    let world = World::new();
    let library = world.dir().join("libgpushare.so");
    fs::write(&library, "").expect("ours");
    let shared = program(&world);
    let bin = world.dir().join("bin");
    fs::create_dir(&bin).expect("ours");
    let link = bin.join("tool");
    std::os::unix::fs::symlink("../it's a program", &link).expect("ours");
    // Found in the directory in which the command runs.
    let in_bin = |words: &[&str]| world.command(words).current_dir(&bin).said();
    in_bin(&["wrap", "tool", "--memory", "8GiB"]).done();
    assert_eq!(fs::read_to_string(&shared).expect("text"), PROGRAM);
    let output = Command::new(&link)
        .env("GPUSHARE_DIR", world.dir())
        .env("GPUSHARE_LIB", &library)
        .output()
        .expect("the wrapper runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "memory=8GiB name= args=\n"
    );
    let mode = |path: &PathBuf| fs::symlink_metadata(path).expect("there").mode();
    assert_eq!(mode(&link), mode(&shared));
    // A second link to a wrapper unwraps it.
    let other = world.dir().join("other");
    std::os::unix::fs::symlink(&link, &other).expect("ours");
    let words = other.display().to_string();
    world
        .gpushare(&["wrap", &words])
        .refused(2, &["already a wrapper"]);
    world.gpushare(&["unwrap", &words]).done();
    let target = fs::read_link(&link).expect("a link again");
    assert_eq!(target, PathBuf::from("../it's a program"));
    let names = fs::read_dir(&bin).expect("ours").count();
    assert_eq!(names, 1, "nothing is left behind");
}

/// Python finds an environment by the link that started it. The link names a copy of the interpreter, so that a wrapper in the
/// wrong place harms nothing outside of the test.
#[test]
fn a_wrapped_python_of_an_environment_stays_in_it() {
    let world = World::new();
    let library = world.dir().join("libgpushare.so");
    fs::write(&library, "").expect("ours");
    let venv = world.dir().join("venv");
    let python = venv.join("bin/python");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&venv)
        .status();
    let made = made.is_ok_and(|status| status.success());
    if !needs(Need::Works("python3-venv", made)) {
        return;
    }
    let shared = world.dir().join("shared-python");
    cli_support::copy(&python.display().to_string(), &shared, "755");
    fs::remove_file(&python).expect("ours");
    std::os::unix::fs::symlink(&shared, &python).expect("ours");
    assert!(shared.symlink_metadata().expect("there").is_file());
    assert!(
        fs::canonicalize(&python)
            .expect("there")
            .starts_with(fs::canonicalize(world.dir()).expect("ours"))
    );
    let prefixes = || {
        let output = Command::new(&python)
            .args(["-c", "import sys; print(sys.prefix, sys.base_prefix)"])
            .env("GPUSHARE_DIR", world.dir())
            .env("GPUSHARE_LIB", &library)
            .output()
            .expect("Python runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let before = prefixes();
    assert!(before.starts_with(&venv.display().to_string()), "{before}");
    let text = python.display().to_string();
    world.gpushare(&["wrap", &text]).done();
    assert_eq!(prefixes(), before);
    world.gpushare(&["unwrap", &text]).done();
    assert_eq!(fs::read_link(&python).expect("a link again"), shared);
    assert_eq!(prefixes(), before);
}

#[test]
fn a_wrapper_without_gpushare_starts_the_program_all_the_same() {
    let world = World::new();
    let path = program(&world);
    let gpushare = world.dir().join("gpushare");
    cli_support::copy(env!("CARGO_BIN_EXE_gpushare"), &gpushare, "755");
    let wrapped = Command::new(&gpushare).arg("wrap").arg(&path).status();
    assert!(wrapped.expect("a copy runs as well").success());
    fs::remove_file(&gpushare).expect("ours");
    let output = Command::new(&path)
        .arg("x")
        .env_remove("GPUSHARE_MEMORY")
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).ends_with("args=x\n"),
        "{output:?}"
    );
}

#[test]
fn a_wrapper_without_gpushare_refuses_to_start_a_program_without_its_limit() {
    type Options = &'static [&'static str];
    type Variables = &'static [(&'static str, &'static str)];
    let limits: [(Options, Variables, &str); 7] = [
        (&["--memory", "8GiB", "--weight", "7"], &[], "--memory"),
        (&["--cap", "30%"], &[], "--cap"),
        (&["--group", "team"], &[], "--group"),
        (&["--policy", "always"], &[], "--policy"),
        (
            &["--memory", "none"],
            &[("GPUSHARE_CAP", "20%")],
            "GPUSHARE_CAP",
        ),
        (&[], &[("CUDA_MEM_LIMIT", "8G")], "CUDA_MEM_LIMIT"),
        (&[], &[("WRAPPER_MAX_MEMORY", "0")], "WRAPPER_MAX_MEMORY"),
    ];
    let starts: [(Options, Variables); 4] = [
        (
            &["--memory", "none", "--cap", "100%", "--policy", "off"],
            &[],
        ),
        (
            &["--memory", "8GiB", "--best-effort"],
            &[("GPUSHARE_CAP", "20%")],
        ),
        (
            &["--weight", "7", "--name", "x"],
            &[("GPUSHARE_MEMORY", "none")],
        ),
        (&[], &[("CUDA_DEVICE_MEMORY_LIMIT", "0"), ("PFLOG", "/tmp")]),
    ];
    let cases = limits.map(|(options, variables, named)| (options, variables, Some(named)));
    let starts = starts.map(|(options, variables)| (options, variables, None));
    for (options, variables, named) in cases.into_iter().chain(starts) {
        let world = World::new();
        let path = program(&world);
        let gpushare = world.dir().join("100% gpushare");
        cli_support::copy(env!("CARGO_BIN_EXE_gpushare"), &gpushare, "755");
        let mut wrap = Command::new(&gpushare);
        let wrapped = wrap.arg("wrap").arg(&path).args(options).output();
        assert!(wrapped.expect("a copy runs as well").status.success());
        fs::remove_file(&gpushare).expect("ours");
        let mut command = Command::new(&path);
        for name in ["GPUSHARE_MEMORY", "GPUSHARE_CAP", "CUDA_MEM_LIMIT"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        let said = command.said();
        match named {
            None => assert_eq!(said.code, 7, "{options:?} {variables:?}: {said:?}"),
            Some(named) => {
                assert_eq!(said.out, "", "{options:?}: it was started");
                assert_eq!(said.err.lines().count(), 1, "{said:?}");
                let missing = gpushare.display().to_string();
                let words = ["was not started", named, "--best-effort", &missing];
                let said = said.refused(1, &words);
                assert!(!said.err.contains("--weight"), "{said:?}");
            }
        }
    }
}

#[test]
fn what_cannot_or_should_not_be_wrapped_is_refused_and_left_alone() {
    let world = World::new();
    let refuse = |path: &str, code: i32, word: &str| {
        world.gpushare(&["wrap", path]).refused(code, &[word]);
    };
    refuse("/nonexistent/program", 5, "no file");
    refuse("/bin/sh", 2, "wrapper itself uses");
    refuse(&world.dir().display().to_string(), 2, "not a file");
    let plain = world.dir().join("plain");
    fs::write(&plain, "text").expect("ours");
    refuse(&plain.display().to_string(), 2, "not executable");
    let path = program(&world);
    let exe = path.display().to_string();
    world
        .gpushare(&["wrap", &exe, "--memory", "8Q"])
        .refused(2, &["--memory", "8Q"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("ours");
    refuse(&exe, 2, "setuid");
    assert_eq!(fs::read_to_string(&path).expect("text"), PROGRAM);
}

#[test]
fn a_path_that_is_not_utf_8_is_wrapped_byte_for_byte() {
    let world = World::new();
    let library = world.dir().join("libgpushare.so");
    fs::write(&library, "").expect("ours");
    let dir = world.dir().join(OsStr::from_bytes(b"b\xe4cker \xff'\x80"));
    fs::create_dir(&dir).expect("ours");
    let path = dir.join(OsStr::from_bytes(b"prog\xfcram"));
    cli_support::copy("/bin/echo", &path, "755");
    let wrap = |verb: &str| world.command(&[verb]).arg(&path).said().done();
    wrap("wrap");
    let script = fs::read(&path).expect("the wrapper");
    assert!(
        std::str::from_utf8(&script).is_err(),
        "the bytes stand in it"
    );
    for gpushare in ["there", "gone"] {
        if gpushare == "gone" {
            let own = env!("CARGO_BIN_EXE_gpushare").as_bytes();
            let at = script.windows(own.len()).position(|part| part == own);
            assert!(at.is_some(), "it names the program that is to be missing");
            let missing = replaced(&script, own, b"/nonexistent/gpushare");
            fs::write(&path, missing).expect("ours");
        }
        let output = Command::new(&path)
            .arg("a b")
            .env("GPUSHARE_DIR", world.dir())
            .env("GPUSHARE_LIB", &library)
            .output()
            .expect("the wrapper runs");
        assert_eq!(output.stdout, b"a b\n", "{gpushare}: {output:?}");
    }
    wrap("unwrap");
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut fresh = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|part| part == from) {
        fresh.extend_from_slice(&rest[..at]);
        fresh.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    fresh.extend_from_slice(rest);
    fresh
}
