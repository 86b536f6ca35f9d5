//! Several machines in a terminal: no machine delays the display.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cli_support::{Run as _, World, executable};
use crate::session::{ENTER, LEAVE, LIMIT, Session};

/// Makes an `ssh` that knows five machines: this one, and four that fail. Like the real one it passes the arguments to a shell
/// as one line.
pub fn fake_ssh(world: &World) -> String {
    let dir = world.dir().join("bin");
    std::fs::create_dir(&dir).expect("ours");
    // A reader of this pipe gets no data; its name identifies the reader.
    let hush = dir.join("hush");
    assert!(
        Command::new("mkfifo")
            .arg(&hush)
            .status()
            .expect("it starts")
            .success()
    );
    let script = format!(
        r#"#!/bin/sh
printf '%s\n' "$*" >> '{log}'
while [ "$1" != -- ]; do shift; done
host=$2; shift 2
eval "set -- $*"
case $host in
    good) program=$1; shift; export GPUSHARE_DIR='{world}'; case $program in gpushare-top) exec '{top}' "$@";; gpushare) exec '{ctl}' "$@";; esac;;
    hung) cat '{hush}';;
    garbage) printf '\033]0;owned\007\033[2J nonsense\n'; cat '{hush}';;
    endless) exec tr '\0' 'x' < /dev/zero;;
    newer) echo '{{"schema_version":99,"devices":"?"}}';;
    *) printf 'ssh: connect to host %s port 22: \033[31mConnection refused\n' "$host" >&2; exit 255;;
esac
"#,
        hush = hush.display(),
        log = world.dir().join("ssh.log").display(),
        world = world.dir().display(),
        top = env!("CARGO_BIN_EXE_gpushare-top"),
        ctl = env!("CARGO_BIN_EXE_gpushare"),
    );
    executable(&dir.join("ssh"), &script, "755");
    format!(
        "{}:{}",
        dir.display(),
        std::env::var("PATH").unwrap_or_default()
    )
}

fn top(path: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushare-top"));
    command
        .args(words)
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8");
    command
}

fn ssh_log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("ssh.log")).unwrap_or_default()
}

#[test]
fn machines_that_hang_or_speak_nonsense_hold_up_no_frame_and_one_can_be_entered() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 3 << 30));
    let path = fake_ssh(&world);
    let hosts = ["good", "hung", "garbage", "endless", "newer", "dead"];
    let mut session = Session::of(top(&path, &hosts), world.dir());
    // Single words, because blanks are not always drawn.
    for word in ["3.0G", "16.0G", "from", "version", "Connection", "answered"] {
        session.wait_for(word);
    }
    // Text from the machines does not act on this terminal.
    assert!(!session.seen().contains("owned\u{7}"));
    assert!(!session.seen().contains("\u{1b}[31mConnection"));
    // A key has its effect at once, whatever the other machines do.
    let start = Instant::now();
    session.press("jjjjjkkkkk");
    session.press("\r");
    session.wait_for("lanes");
    assert!(start.elapsed() < LIMIT);
    assert!(
        session.count(LEAVE) >= 1 && session.count(ENTER) >= 2,
        "the terminal was lent out"
    );
    session.press("q");
    let back = session.count("machines");
    gpushare_testbed::eventually("the machines are back", LIMIT, || {
        session.count("machines") > back
    });
    session.press("q");
    assert!(session.gone().success());
    assert!(session.is_as_before());
    let log = ssh_log(world.dir());
    assert!(log.lines().all(|line| line.contains(" -- ")), "{log}");
    assert!(
        log.lines()
            .any(|line| line.starts_with("-t ") && line.ends_with("-- good gpushare-top")),
        "{log}"
    );
    nothing_is_left(&world);
}

/// Checks that the dashboard's children, and their children, have ended.
fn nothing_is_left(world: &World) {
    let dir = world.dir().display().to_string();
    gpushare_testbed::eventually("all children have ended", LIMIT, || {
        let all = std::fs::read_dir("/proc").expect("there is one").flatten();
        let ours = |line: Vec<u8>| String::from_utf8_lossy(&line).contains(&dir);
        !all.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default())
            .any(ours)
    });
}

#[test]
fn a_signal_ends_the_machines_and_gives_the_terminal_back() {
    let world = World::new();
    let path = fake_ssh(&world);
    let mut session = Session::of(top(&path, &["hung", "dead"]), world.dir());
    session.wait_for("Connection");
    session.send(Signal::TERM);
    assert_eq!(session.gone().code(), Some(128 + 15));
    assert!(session.is_as_before());
    nothing_is_left(&world);
}

#[test]
fn all_machines_are_printed_once_and_one_that_is_missing_fails_the_whole() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 3 << 30));
    let path = fake_ssh(&world);
    let json = top(&path, &["--once", "--format", "json", "good"])
        .output()
        .expect("it starts");
    assert!(json.status.success(), "{json:?}");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&json["hosts"][0]["gpus"], &json["hosts"][0]["processes"]),
        (&1.into(), &1.into())
    );
    let table = top(&path, &["--once", "good", "dead", "garbage"])
        .output()
        .expect("it starts");
    assert_eq!(table.status.code(), Some(1));
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        table.contains("3.0G of 16.0G") && table.contains("Connection refused"),
        "{table}"
    );
    assert!(
        table.contains("not from gpushare-top") && !table.contains('\u{1b}'),
        "{table}"
    );
    for name in ["-oProxyCommand=touch /tmp/x", "a b", "\u{1b}[2J"] {
        let refused = top(&path, &["--once", "--", name])
            .output()
            .expect("it starts");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(!refused.stderr.contains(&0x1b));
    }
}

#[test]
fn ps_of_other_machines_shows_whole_names_where_there_is_room() {
    let world = World::new();
    let name = |number| format!("serve-llama-3-70b-instruct-of-team-blue-{number}");
    let names = [name(0), name(1)];
    let serve = |name: &String| {
        let actor = world.actor(name);
        actor.enter(0);
        actor
    };
    let _actors: Vec<_> = names.iter().map(serve).collect();
    let path = fake_ssh(&world);
    let ps = || {
        let mut command = world.command(&["ps", "--hosts", "good"]);
        command.env("PATH", &path);
        command
    };
    let said = ps().said().done();
    for name in &names {
        assert!(said.out.contains(name), "{said:?}");
    }
    // The terminal has 120 columns.
    let mut session = Session::of(ps(), world.dir());
    for name in &names {
        session.wait_for(name);
    }
    assert!(session.gone().success());
}

#[test]
fn ps_lists_the_processes_of_other_machines() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 3 << 30));
    let path = fake_ssh(&world);
    let ps = |words: &[&str]| {
        let mut command = world.command(&[&["ps", "--hosts"], words].concat());
        command.env("PATH", &path).said()
    };
    let said = ps(&["good"]).done();
    let row = said
        .out
        .lines()
        .find(|line| line.contains("train"))
        .expect("its row");
    assert!(row.starts_with("good") && row.contains("3.0G"), "{row}");
    let said = ps(&["good,dead,newer", "--json"]);
    assert_eq!(said.code, 1);
    let json = said.json();
    assert_eq!(json["hosts"][0]["processes"][0]["title"], "train");
    assert!(
        json["hosts"][1]["wrong"]
            .as_str()
            .expect("why")
            .contains("Connection refused")
    );
    let planted = world.dir().join("planted");
    for (filter, found) in [
        ("name~tra used>1G".to_owned(), true),
        ("used<1G".to_owned(), false),
        (format!("name~'$(touch {})", planted.display()), false),
    ] {
        let said = ps(&["good", "--filter", &filter]);
        assert_eq!(said.out.contains("train"), found, "{filter}: {said:?}");
    }
    assert!(!planted.exists());
    let url = ps(&["good,http://127.0.0.1:1", "--filter", "used>1G"]);
    url.refused(2, &["--filter", "http://127.0.0.1:1", "ssh"]);
    let twice = ps(&["good", "--watch=0.1", "--count=2"]).done();
    assert_eq!(twice.out.matches("HOST").count(), 2, "{twice:?}");
    ps(&["good,-oProxyCommand=id"]).refused(2, &["is no machine"]);
    let (_, start) = (ps(&["a b"]).refused(2, &["a b"]), Instant::now());
    ps(&["hung"]).refused(1, &["hung", "did not answer in time"]);
    assert!(start.elapsed() < LIMIT && start.elapsed() >= Duration::from_secs(9));
    nothing_is_left(&world);
}
