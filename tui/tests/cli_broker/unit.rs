//! The systemd unit that starts a broker at boot.

use gpushare_base::text::exit::Exit;
use gpushare_testbed::{Need, needs};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cli_support::copy;
use crate::support::*;

const UNIT: &str = include_str!("../../../assets/systemd/gpushare.service");

/// Returns systemd's complaints about a unit, or `None` with a message if there is no systemd.
fn verified(text: &str) -> Option<String> {
    let dir = tempfile::tempdir().expect("there is room");
    let unit = dir.path().join("gpushare.service");
    // The unit's program and its manual page are not installed here.
    let text = text
        .replace("/usr/bin/gpushare", env!("CARGO_BIN_EXE_gpushare"))
        .replace("Documentation=", "#");
    fs::write(&unit, text).expect("ours");
    let said = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&unit)
        .output();
    if !needs(Need::Works("systemd-analyze", said.is_ok())) {
        return None;
    }
    let said = said.expect("it started");
    Some(String::from_utf8_lossy(&said.stderr).into_owned())
}

#[test]
fn systemd_knows_every_line_of_the_unit() {
    let Some(said) = verified(UNIT) else { return };
    // It also checks the units on which this unit depends; only complaints about gpushare count.
    assert!(!said.contains("gpushare"), "{said}");
    let misspelt = UNIT.replace("ProtectHome=", "ProtectHomme=");
    let said = verified(&misspelt).expect("it is here");
    assert!(said.contains("ProtectHomme"), "the test can fail: {said}");
}

#[test]
fn the_unit_is_not_started_again_where_that_cannot_help() {
    let codes = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    let hopeless =
        [Exit::Usage, Exit::NotPermitted, Exit::NoSuchTarget].map(|exit| exit.code().to_string());
    assert_eq!(codes, Some(&*hopeless.join(" ")));
}

#[test]
fn the_unit_makes_its_directories_itself() {
    for line in [
        "RuntimeDirectory=gpushare",
        "RuntimeDirectoryMode=0755",
        "RuntimeDirectoryPreserve=yes",
        "LogsDirectory=gpushare",
    ] {
        assert!(UNIT.lines().any(|one| one == line), "{line}");
    }
}

/// Does the unit's steps, as systemd would, in a mount namespace.
const MACHINE: &str = r#"
set -e
for place in /etc/systemd /run /var/log; do mount -t tmpfs none $place; done
mkdir -p /etc/systemd/system /run/systemd/system
cat > "$1/systemctl" <<'END'
#!/bin/sh
echo "$@" >> "$LOG"
if [ "$1" = restart ]; then
    [ ! -e "$LOG.pid" ] || kill "$(cat "$LOG.pid")"
    $(sed -n 's/^ExecStart=//p' /etc/systemd/system/gpushare.service) > "$LOG.served" 2>&1 &
    echo $! > "$LOG.pid"
fi
END
chmod 755 "$1/systemctl"
export LOG="$1/log" PATH="$1:$PATH"
"$1/gpushare" init --group 61300
for _ in $(seq 600); do [ -S /run/gpushare/socket ] && break; sleep 0.1; done
"$1/gpushare" policy set all always
echo "policy: $("$1/gpushare" policy show)"
echo "socket: $(stat -c '%a %g' /run/gpushare/socket)"
echo "logged: $(ls /var/log/gpushare)"
echo "units: $(ls /etc/systemd/system | tr '\n' ' ')"
"$1/gpushare" init --group 61300 > /dev/null
kill "$(cat "$LOG.pid")"
"#;

#[test]
fn init_installs_and_starts_a_broker() {
    let places = [Path::new("/etc/systemd")];
    if !needs(Need::Root) || !needs(Need::File("systemd", &places)) {
        return;
    }
    let place = tempfile::tempdir_in("/dev/shm").expect("there is room");
    copy(
        env!("CARGO_BIN_EXE_gpushare"),
        &place.path().join("gpushare"),
        "755",
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", MACHINE, "sh"])
        .arg(place.path())
        .env_remove("GPUSHARE_DIR")
        .current_dir("/");
    let done = said(&mut command);
    assert_eq!(done.code, 0, "{done:?}");
    let log = fs::read_to_string(place.path().join("log")).expect("systemctl was called");
    let twice = "daemon-reload\nenable gpushare.service\nrestart gpushare.service\n".repeat(2);
    assert_eq!(log, twice);
    for words in [
        "started, and will be at every boot",
        "always",
        "socket: 660 61300",
        "logged: audit.jsonl",
        "gpushare.service",
    ] {
        assert!(done.out.contains(words), "{words:?} in {done:?}");
    }
}
