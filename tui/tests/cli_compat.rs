//! The older tools' names, which work as those tools' documents say. Each test is named after a sentence of a document.

mod cli_support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use cli_support::{Run as _, Said, scripted};
use gpushare_testbed::{Testbed, Watched, artifact, eventually};

/// A simulated machine, and a directory with the old names.
struct Old {
    bed: Testbed,
    bin: PathBuf,
}

impl Old {
    fn new(scenario: &str) -> Self {
        let bed = Testbed::with_scenario(scenario);
        let bin = bed.dir().join("bin");
        bed.gpushare(&["compat"]).arg(&bin).said().done();
        Self { bed, bin }
    }

    /// Returns a program's command with the environment of the testbed's gpushare.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let like = self.bed.gpushare(&[]);
        let mut command = Command::new(program);
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(args);
        command
    }

    fn call(&self, name: &str, args: &[&str]) -> Said {
        self.command(self.bin.join(name), args).said()
    }

    fn devices(&self) -> Vec<String> {
        let json = self.bed.gpushare(&["pick", "--json"]).said().done().json();
        let devices = json["devices"].as_array().expect("a list").clone();
        let uuid = |device: serde_json::Value| device["uuid"].as_str().map(str::to_owned);
        devices.into_iter().filter_map(uuid).collect()
    }

    /// Makes a program that prints its visible device and its arguments.
    fn program(&self, name: &str) -> PathBuf {
        let path = self.bed.dir().join(name);
        fs::write(&path, "#!/bin/sh\necho \"$CUDA_VISIBLE_DEVICES $*\"\n").expect("ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        path
    }

    fn workload(&self, device: &str) -> Watched {
        let mut workload = scripted(&mut self.bed.gpushare(&["run", "--gpu", device, "--"]));
        assert_eq!(workload.ask("alloc 1M"), "ok");
        workload
    }
}

fn claims_are_over(old: &Old) {
    eventually("the claims have ended", Duration::from_secs(60), || {
        let json = old
            .bed
            .gpushare(&["pick", "0", "--json"])
            .said()
            .done()
            .json();
        let devices = json["devices"].as_array().expect("a list").clone();
        devices[1..].iter().all(|device| device["claims"] == 0)
    });
}

#[test]
fn getgpu_returns_a_random_instance_with_no_processes_running() {
    let old = Old::new("mig");
    let all = old.devices();
    assert!(
        all.iter().any(|uuid| uuid.starts_with("MIG-")) && all.len() > 1,
        "{all:?}"
    );
    claims_are_over(&old);
    let _busy = old.workload(&all[1]);
    claims_are_over(&old);
    let said = old.call("getgpu", &[]).done();
    assert!(all.iter().any(|uuid| *uuid == said.out.trim()), "{said:?}");
    assert_ne!(said.out.trim(), all[1], "a process runs there");
}

#[test]
fn getgpu_with_an_index_returns_that_instance_whether_it_is_in_use_or_not() {
    let old = Old::new("mig");
    let all = old.devices();
    let _busy = old.workload(&all[1]);
    for (index, uuid) in all.iter().enumerate() {
        let said = old.call("getgpu", &[&index.to_string()]).done();
        assert_eq!(said.out, format!("{uuid}\n"));
    }
    old.call("getgpu", &["99"]).refused(5, &["no GPU 99"]);
    old.call("getgpu", &["first"]).refused(2, &["number"]);
}

#[test]
fn only_guids_of_the_list_are_returned() {
    let old = Old::new("mig");
    let all = old.devices();
    let list = old.bed.dir().join("ids");
    fs::write(&list, format!("{}\n", all[1])).expect("ours");
    claims_are_over(&old);
    let mut command = old.command(old.bin.join("getgpu"), &[]);
    let said = command.env("GPUSHARE_ALLOWED_GPUS", &list).said();
    assert_eq!(said.done().out, format!("{}\n", all[1]));
}

#[test]
fn applications_that_start_at_once_do_not_get_the_same_instance() {
    let old = Old::new("mig");
    let all = old.devices();
    claims_are_over(&old);
    let children: Vec<_> = (0..all.len().min(2))
        .map(|_| {
            let mut command = old.command(old.bin.join("getgpu"), &[]);
            command.stdout(std::process::Stdio::piped());
            command.spawn().expect("it starts")
        })
        .collect();
    let got: BTreeSet<String> = children
        .into_iter()
        .map(|child| {
            Said::from(child.wait_with_output().expect("it ends"))
                .done()
                .out
        })
        .collect();
    assert_eq!(got.len(), all.len().min(2), "{got:?}");
}

#[test]
fn create_cudawrap_renames_the_executable_and_links_its_name_to_cudawrap_which_starts_it() {
    let old = Old::new("mig");
    let exe = old.program("my_cuda_executable");
    let path = exe.display().to_string();
    old.call("create_cudawrap", &[&path]).done();
    assert!(exe.with_file_name("CUDAWRAP_my_cuda_executable").is_file());
    assert_eq!(
        fs::read_link(&exe).expect("a link"),
        old.bin.join("cudawrap")
    );
    let said = old.command(&exe, &["one", "two words"]).said().done();
    assert!(said.out.starts_with(['M', 'G']), "{said:?}");
    assert!(said.out.ends_with(" one two words\n"), "{said:?}");
    old.call("create_cudawrap", &[&path])
        .refused(1, &["wrapped already"]);
    old.call("cudawrap", &[]).refused(2, &["create_cudawrap"]);
    fs::remove_file(exe.with_file_name("CUDAWRAP_my_cuda_executable")).expect("ours");
    old.command(&exe, &[])
        .said()
        .refused(1, &["CUDAWRAP_my_cuda_executable is missing"]);
}

#[test]
fn cudarun_runs_a_program_on_the_least_busy_device() {
    let old = Old::new("two-gpus");
    let all = old.devices();
    let mut busy = old.workload(&all[0]);
    assert_eq!(busy.ask("alloc 1G"), "ok");
    claims_are_over(&old);
    let program = old.program("cuda_program");
    let said = old
        .call("cudarun", &["run", &program.display().to_string(), "-x"])
        .done();
    assert_eq!(said.out, format!("{} -x\n", all[1]));
    old.call("cudarun", &["run", "/no/such/program"])
        .refused(1, &["/no/such/program"]);
    old.call("cudarun", &["walk"]).refused(2, &["daemon.check"]);
}

#[test]
fn the_daemon_is_asked_about_and_started_and_stopped_though_none_is_needed() {
    let old = Old::new("two-gpus");
    for verb in [
        "daemon.check",
        "daemon.start",
        "daemon.restart",
        "daemon.stop",
    ] {
        let said = old.call("cudarun", &[verb]).done();
        assert!(said.out.contains("no daemon"), "{said:?}");
    }
}

#[test]
fn device_information_serves_so_many_requests_and_for_so_long() {
    let old = Old::new("two-gpus");
    let etc = old.bin.join("etc");
    fs::create_dir(&etc).expect("ours");
    let config = |seconds: &str, requests: u32| {
        let text = format!(
            "server.addr = /tmp/unused\ndaemon.max-cache-time-interval = {seconds}\ndaemon.max-cache-request = {requests}\n"
        );
        fs::write(etc.join("config.conf"), text).expect("ours");
    };
    let check = || old.call("cudarun", &["daemon.check"]).done().out;
    config("3600", 3);
    let program = old.program("cuda_program").display().to_string();
    for uses in [1, 2, 3, 1] {
        old.call("cudarun", &["run", &program]).done();
        assert!(
            check().contains(&format!("used {uses} times")),
            "{}",
            check()
        );
    }
    config("0", 100);
    for _ in 0..2 {
        old.call("cudarun", &["run", &program]).done();
        assert!(check().contains("used 1 times"), "{}", check());
    }
    config("soon", 1);
    old.call("cudarun", &["run", &program])
        .refused(2, &["max-cache-time-interval"]);
}

#[test]
fn a_link_to_the_program_has_the_configuration_of_the_directory_it_leads_to() {
    let old = Old::new("one-gpu");
    let home = old.bed.dir().join("home");
    for dir in [home.as_path(), &old.bin.join("etc")] {
        fs::create_dir(dir).expect("ours");
    }
    fs::write(
        old.bin.join("etc/config.conf"),
        "daemon.max-cache-request = 77\n",
    )
    .expect("ours");
    let link = home.join("cudarun");
    std::os::unix::fs::symlink(old.bin.join("cudarun"), &link).expect("ours");
    let said = old.command(link, &["daemon.check"]).said().done();
    assert!(said.out.contains("or 77 uses"), "{said:?}");
}

#[test]
fn a_program_that_waits_for_memory_of_a_named_device_says_so_and_does_not_start_without() {
    let old = Old::new("one-gpu");
    let run = |words: &[&str]| {
        let mut command = old.bed.gpushare(&["run", "--gpu", "0"]);
        command.args(words).arg("--");
        command
    };
    let mut holder = run(&[]);
    holder.arg(artifact("gpushare-workload")).args(["--script"]);
    let mut holder = Watched::spawn(&mut holder);
    assert!(holder.line().starts_with("ready"));
    let said = holder.ask("alloc 6GiB");
    assert!(said.starts_with("ok"), "{said}");
    let mut waits = run(&["--memory", "4GiB", "--wait", "--timeout", "3s"]);
    waits
        .args(["echo", "started"])
        .said()
        .refused(1, &["the program waits", "only 2.0 GiB free", "waited 3 s"]);
    let mut starts = run(&["--memory", "4GiB"]);
    assert_eq!(
        starts.args(["echo", "started"]).said().done().out,
        "started\n"
    );
}

#[test]
fn a_program_that_waits_gets_the_device_when_it_is_free_and_keeps_others_away() {
    let old = Old::new("one-gpu");
    let run = |words: &[&str]| {
        let mut command = old.bed.gpushare(&["run", "--exclusive"]);
        command
            .args(words)
            .arg("--")
            .arg(artifact("gpushare-workload"))
            .arg("--script");
        command
    };
    let mut first = Watched::spawn(&mut run(&["--wait"]));
    assert!(first.line().starts_with("ready"));
    run(&[]).said().refused(1, &["--gpu auto"]);
    run(&["--wait", "--timeout", "300ms"])
        .said()
        .refused(1, &["waited"]);
    old.bed
        .gpushare(&["pick"])
        .said()
        .refused(1, &["no GPU is free"]);
    let mut second = Watched::spawn(&mut run(&["--wait", "--timeout", "60s"]));
    first.close_input();
    first.wait_output();
    assert!(
        second
            .line_within(Duration::from_secs(60))
            .is_some_and(|line| line.starts_with("ready"))
    );
}
