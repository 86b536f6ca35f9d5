//! A Slurm cluster of one node or two: Debian's daemons with our plugin, as root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use gpushare_testbed::{Need, Testbed, Watched, artifact, eventually, needs};

use crate::cli_support::{Said, gpushare, processes};

pub const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster whose daemons end on drop.
pub struct Cluster {
    pub bed: Testbed,
    other: Option<Testbed>,
    place: tempfile::TempDir,
}

impl Cluster {
    /// Returns `None`, with a message, if there is no Slurm or no root to run it.
    pub fn new(hooks: Hooks) -> Option<Self> {
        Self::of(hooks, None)
    }

    /// Makes a cluster of two nodes with separate segments. They share the simulated GPU, because jobs inherit the submitter's
    /// environment.
    pub fn of_two(hooks: Hooks) -> Option<Self> {
        let cluster = Self::of(hooks, Some(Testbed::with_scenario("one-gpu")))?;
        for (_, bed) in cluster.nodes() {
            gpushare(bed, &["init"]).done();
        }
        Some(cluster)
    }

    fn of(hooks: Hooks, other: Option<Testbed>) -> Option<Self> {
        let programs = ["slurmd", "slurmctld", "srun", "sbatch", "scontrol"];
        if !needs(Need::Root) || !programs.iter().all(|name| needs(Need::Tool(name))) {
            return None;
        }
        let place = tempfile::Builder::new()
            .prefix("s")
            .tempdir_in("/tmp")
            .expect("room");
        let cluster = Self {
            bed: Testbed::with_scenario("one-gpu"),
            other,
            place,
        };
        cluster.configure(hooks);
        let start = |program: &str, words: &[&str], conf: &str| {
            let mut command = cluster.command(program);
            command
                .args(words)
                .env("SLURM_CONF", cluster.path(conf))
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            assert!(command.status().expect("it starts").success(), "{program}");
        };
        start("slurmctld", &["-i"], "slurm.conf");
        for (node, _) in cluster.nodes() {
            start("slurmd", &["-N", node], &format!("{node}.conf"));
        }
        eventually("the nodes are idle", PATIENCE, || cluster.is_idle());
        Some(cluster)
    }

    fn nodes(&self) -> impl Iterator<Item = (&'static str, &Testbed)> {
        let beds = std::iter::once(&self.bed).chain(&self.other);
        ["n0", "n1"].into_iter().zip(beds)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn configure(&self, hooks: Hooks) {
        let dir = self.place.path().display();
        let names = Command::new("hostname")
            .output()
            .expect("everywhere")
            .stdout;
        let host = String::from_utf8_lossy(&names).trim().to_owned();
        for name in ["state", "dev", "spool.n0", "spool.n1"] {
            fs::create_dir(self.path(name)).expect("a fresh directory");
        }
        fs::write(self.path("dev/nvidia0"), "").expect("a fresh directory");
        let controller = port();
        let program = artifact("gpushare").display().to_string();
        let mut nodes = String::new();
        for (node, _) in self.nodes() {
            let line = format!(
                "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=8 Gres=gpu:1,shard:8\n",
                port()
            );
            nodes.push_str(&line);
        }
        for (node, bed) in self.nodes() {
            let more = self.hook(hooks, node, &program, bed);
            // NO_CONF_HASH: the nodes' files differ in the commands of gpushare.
            let conf = format!(
                "ClusterName=t\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmUser=root\nSlurmdUser=root\n\
                 AuthType=auth/none\nCredType=cred/none\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
                 JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
                 SwitchType=switch/none\nMpiDefault=none\nStateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool.%n\n\
                 SlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/%n.pid\nSlurmctldLogFile={dir}/slurmctld.log\n\
                 SlurmdLogFile={dir}/slurmd.log\nReturnToService=0\nSlurmdParameters=config_overrides\nGresTypes=gpu,shard\n\
                 KillWait=1\nSchedulerParameters=sched_min_interval=0\nDebugFlags=NO_CONF_HASH\n{more}{nodes}\
                 PartitionName=p Nodes=ALL Default=YES\n"
            );
            for name in [format!("{node}.conf"), "slurm.conf".to_owned()] {
                fs::write(self.path(&name), &conf).expect("ours");
            }
        }
        let gres =
            format!("Name=gpu File={dir}/dev/nvidia0\nName=shard Count=8 File={dir}/dev/nvidia0\n");
        fs::write(self.path("gres.conf"), gres).expect("ours");
    }

    /// Returns the lines of a node's configuration that call gpushare.
    fn hook(&self, hooks: Hooks, node: &str, program: &str, bed: &Testbed) -> String {
        let (dir, segments) = (self.place.path().display(), bed.dir().display());
        let stack = self.path(&format!("{node}.plugstack"));
        let (plugins, more) = match hooks {
            Hooks::Plugin => {
                let plugin = artifact("libgpushare_spank.so");
                let line = format!(
                    "optional {} program={program} shard=1/8 dir={segments}\n",
                    plugin.display()
                );
                (line, String::new())
            }
            Hooks::Scripts => {
                for (name, verb) in [("prolog", "task-prolog --shard 1/8"), ("epilog", "epilog")] {
                    let script = format!(
                        "#!/bin/sh\nexport GPUSHARE_DIR={segments}\n{program} slurm {verb} || :\n"
                    );
                    let path = self.path(&format!("{node}.{name}"));
                    crate::cli_support::executable(&path, &script, "755");
                }
                let lines = format!("TaskProlog={dir}/{node}.prolog\nEpilog={dir}/{node}.epilog\n");
                (String::new(), lines)
            }
        };
        fs::write(&stack, plugins).expect("ours");
        format!("PlugStackConfig={}\n{more}", stack.display())
    }

    /// Returns a command of a Slurm program in this cluster and in the simulated world.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.bed.sim_only(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SLURM") {
                command.env_remove(name);
            }
        }
        command
            .env("SLURM_CONF", self.path("slurm.conf"))
            .current_dir(self.place.path());
        command
    }

    pub fn run(&self, program: &str, words: &[&str]) -> Said {
        let mut command = self.command(program);
        command.args(words);
        Watched::spawn(&mut command).wait_output().into()
    }

    /// Returns true if all nodes accept jobs and none was drained.
    pub fn is_idle(&self) -> bool {
        let said = self.run("scontrol", &["-o", "show", "node"]);
        said.out.matches("State=IDLE ").count() == self.nodes().count()
    }

    /// Runs gpushare on the first node and returns its output.
    pub fn gpushare(&self, words: &[&str]) -> Said {
        gpushare(&self.bed, words)
    }

    /// Returns the processes that `ps` shows.
    pub fn processes(&self) -> Vec<Value> {
        processes(&self.bed)
    }

    pub fn groups(&self) -> Vec<String> {
        groups(&self.bed)
    }

    /// Returns the groups and the processes of each node.
    pub fn each(&self) -> Vec<(Vec<String>, Vec<Value>)> {
        let nodes = self.nodes();
        nodes
            .map(|(_, bed)| (groups(bed), processes(bed)))
            .collect()
    }

    /// Waits until nothing of any job is left.
    pub fn settles(&self) {
        eventually("nothing of a job is left", PATIENCE, || {
            let empty = |node: &(Vec<String>, Vec<Value>)| node.0.is_empty() && node.1.is_empty();
            self.each().iter().all(empty) && self.is_idle()
        });
    }

    /// Starts a job that keeps the GPU busy, and returns its number.
    pub fn submit(&self, words: &[&str], workload: &str) -> String {
        let script = format!("{} {workload}", artifact("gpushare-workload").display());
        let out = self.path("out").display().to_string();
        let words = [&["--parsable", "-o", &out], words, &["--wrap", &script]].concat();
        self.run("sbatch", &words).done().out.trim().to_owned()
    }
}

fn groups(bed: &Testbed) -> Vec<String> {
    let shown = gpushare(bed, &["group", "show", "--json"]).done().json();
    let groups = shown["groups"].as_array().expect("a list").iter();
    let defined = groups.filter(|group| group["defined"] == true);
    defined
        .map(|group| group["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// The way in which Slurm calls gpushare.
#[derive(Clone, Copy)]
pub enum Hooks {
    Plugin,
    Scripts,
}

fn port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound").port()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.run("scancel", &["--signal=KILL", "--user=root"]);
        for (node, _) in self.nodes() {
            end(&self.path(&format!("{node}.pid")));
        }
        end(&self.path("slurmctld.pid"));
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path("slurmd.log")).unwrap_or_default();
            eprintln!("slurmd.log:\n{log}");
        }
    }
}

/// Ends the daemon of this file, and waits until it has ended.
fn end(pid: &Path) {
    let text = fs::read_to_string(pid).unwrap_or_default();
    let Some(pid) = text
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while rustix::process::test_kill_process(pid).is_ok() {
        if std::time::Instant::now() > until {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
