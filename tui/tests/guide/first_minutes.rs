//! The page of the first ten minutes and the demo, as a reader would go through them: in one shell, from an empty directory, on
//! a machine on which nothing else runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use gpushare_testbed::{Need, artifact, needs};

use crate::{page, workspace};

/// Beginnings of lines that this test leaves out, with the reason.
const LEFT_OUT: [(&str, &str); 1] = [(
    "cargo build",
    "builds a release, whose programs are linked here",
)];

/// Functions for the shell. A reader waits until a program runs; a shell has to be told.
const SHELL: &str = r#"
set -u
await() {
    for _ in $(seq 300); do
        gpushare ps 2>&1 | grep -q -- "$1" && return
        sleep 0.1
    done
    echo "$1 does not appear"; exit 1
}
"#;

/// Runs a script in a mount namespace with an empty /dev/shm, and a broker of this machine out of sight. Returns `None`
/// without root.
fn run(script: &str) -> Option<Output> {
    if !needs(Need::Root) {
        return None;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let (bin, empty) = (place.path().join("bin"), place.path().join("empty"));
    for folder in [&bin, &empty] {
        fs::create_dir(folder).expect("made");
    }
    for (name, program) in [
        ("gpushare", env!("CARGO_BIN_EXE_gpushare").into()),
        ("gpushare-top", env!("CARGO_BIN_EXE_gpushare-top").into()),
        ("gpushare-workload", artifact("gpushare-workload")),
    ] {
        symlink(program, bin.join(name)).expect("linked");
    }
    let file = place.path().join("script.sh");
    fs::write(&file, format!("{SHELL}{script}")).expect("written");
    const APART: &str = "mount --make-rprivate / && mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && exec bash \"$0\"";
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        bin.display()
    );
    let output = Command::new("timeout")
        .args([
            "240",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            APART,
        ])
        .arg(&file)
        .env_clear()
        .envs([("PATH", path.as_str()), ("LC_ALL", "C.UTF-8")])
        .env("HOME", place.path())
        .env("GPUSHARE_LIB", artifact("libgpushare.so"))
        .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent")
        .current_dir(&empty)
        .output();
    Some(output.expect("there is unshare"))
}

fn text(output: &Output) -> String {
    let (out, errors) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(errors)
    )
}

#[test]
fn the_first_ten_minutes_work_as_written_and_leave_nothing_running() {
    let page = page(workspace().join("assets/guide/first-ten-minutes.md"));
    let lines = page
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("    "));
    let mut script = String::new();
    for line in lines.filter(|line| !LEFT_OUT.iter().any(|(begin, _)| line.starts_with(begin))) {
        let command = line.split("   ").next().unwrap_or_default();
        script += &format!("echo '$ {command}'; ");
        script += &match (command.strip_suffix('&'), command) {
            (Some(_), _) => {
                let name = command
                    .split("--name ")
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next());
                format!(
                    "{command}\nawait {}\n",
                    name.expect("a program in the background has a name")
                )
            }
            // A test is no installation, and doctor says so.
            (None, "gpushare doctor") => "gpushare doctor\n".to_owned(),
            (None, _) => format!("{command} || {{ echo FAILED with $?; exit 1; }}\n"),
        };
    }
    script += "wait\necho '$ at the end'; gpushare ps; gpushare export-config; exit 0\n";
    let Some(output) = run(&script) else { return };
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let (_, end) = said.split_once("$ at the end").expect("it came to its end");
    assert!(end.contains("no process uses a GPU here"), "{said}");
    assert!(!said.contains("(os error"), "{said}");
}

#[test]
fn a_second_shell_reaches_the_demo_and_other_programs_are_not_confused_with_it() {
    let Some(output) = run(r#"
        gpushare demo --sim --headless --seconds 120 >/dev/null &
        await serve
        echo "$ alone"; gpushare ps; gpushare policy set all off; echo "$ board"; gpushare-top --once
        gpushare run --sim --name mine -- gpushare-workload --seconds 100 &
        await mine
        echo "$ beside"; gpushare ps; eval "$(gpushare ps 2>&1 >/dev/null | sed -n "s/.*to reach it: //p")"
        exit 0
        "#)
    else {
        return;
    };
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let (alone, beside) = said.split_once("$ beside").expect("two parts");
    let (listed, board) = alone.split_once("$ board").expect("two parts");
    assert!(
        listed.contains("notebook") && board.contains("notebook"),
        "{said}"
    );
    assert!(
        alone.contains("all GPUs: off (was: timeslice=400ms"),
        "{said}"
    );
    assert!(!beside.contains("all GPUs"), "{said}");
    for words in [
        "mine",
        "notebook",
        "a demo runs; to reach it: GPUSHARE_DIR=/dev/shm/gpushare-stage-",
        " gpushare ps",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
