//! A machine with a broker and users. The users are real, so each test needs root.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub use gpushare_testbed::eventually;
use gpushare_testbed::{Need, artifact, needs};
use serde_json::Value;
use shm_layout::{
    Entry, Identity, LaunchLimits, Reason, Registration, Segments, clock, control_bell, register,
    snapshot, text,
};

use crate::cli_support::{Said, copy, uuid};

pub const ALICE: u32 = 61_301;
pub const MALLORY: u32 = 61_302;
/// A user whose own directory no other test uses.
pub const LAUNCHER: u32 = 61_304;
/// A user who is in no group that may use the broker.
pub const STRANGER: u32 = 61_303;
pub const USERS: u32 = 61_300;
/// The group of administrators, who may change everything.
pub const ADMINS: u32 = 61_310;
pub const GIB: u64 = 1 << 30;

pub const ROLE: &str = "GPUSHARE_TEST_ROLE";
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of the clock of [`take_turns`].
pub const TICK: Duration = Duration::from_millis(10);

/// A directory that all users may enter, with the program, and a broker that serves it.
pub struct Machine {
    place: tempfile::TempDir,
    broker: Option<Child>,
}

impl Machine {
    /// Returns `None` if this test cannot run as other users.
    pub fn new() -> Option<Self> {
        Self::serving(&[])
    }

    /// Makes a machine with more arguments for `gpushare serve`.
    pub fn serving(words: &[&str]) -> Option<Self> {
        if !needs(Need::Root) {
            return None;
        }
        let place = tempfile::Builder::new()
            .prefix("b")
            .tempdir_in("/tmp")
            .expect("there is room");
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("ours");
        copy(
            env!("CARGO_BIN_EXE_gpushare"),
            &place.path().join("gpushare"),
            "755",
        );
        let this = std::env::current_exe()
            .expect("our own path")
            .display()
            .to_string();
        copy(&this, &place.path().join("test"), "755");
        let mut machine = Self {
            place,
            broker: None,
        };
        machine.serve(words);
        Some(machine)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Copies an artifact of the build to a place that all users can read.
    pub fn bring(&self, name: &str, to: &str) {
        let from = artifact(name).display().to_string();
        copy(&from, &self.path(to), "755");
    }

    /// Returns the directory of the socket.
    pub fn dir(&self) -> PathBuf {
        self.path("run")
    }

    pub fn serve(&mut self, words: &[&str]) -> String {
        let users = USERS.to_string();
        let admins = ADMINS.to_string();
        let mut all = vec!["serve", "--group", &users, "--admin-group", &admins];
        all.extend(words);
        self.serve_as(&all)
    }

    pub fn serve_everyone(&mut self) -> String {
        self.serve_as(&["serve", "--everyone"])
    }

    fn serve_as(&mut self, words: &[&str]) -> String {
        let mut command = self.command(0, words);
        self.serving_child(&mut command)
    }

    /// Starts a broker through a script that executes it.
    pub fn serve_by(&mut self, script: &str) -> String {
        self.serve_given(script, Stdio::null())
    }

    /// Starts a broker through a script with this standard input.
    pub fn serve_given(&mut self, script: &str, stdin: impl Into<Stdio>) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(stdin);
        command.env("GPUSHARE_DIR", self.dir());
        self.serving_child(&mut command)
    }

    fn serving_child(&mut self, command: &mut Command) -> String {
        let earlier = self.broker.take().map(Ended);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("readable");
        self.broker = Some(child);
        drop(earlier);
        assert!(line.contains("serving"), "{line:?}");
        line
    }

    pub fn broker_pid(&self) -> u32 {
        self.broker.as_ref().expect("one runs").id()
    }

    /// Kills the broker, as in a crash.
    pub fn kill_broker(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }

    /// Takes the broker out, for a test that ends it otherwise.
    pub fn take_broker(&mut self) -> Ended {
        Ended(self.broker.take().expect("one runs"))
    }

    /// Returns a command of the control program as this user. Every user but the stranger is in the users' group.
    pub fn command(&self, uid: u32, words: &[&str]) -> Command {
        self.program("gpushare", uid, words)
    }

    fn program(&self, name: &str, uid: u32, words: &[&str]) -> Command {
        let mut command = Command::new(self.path(name));
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent/ids")
            .env("GPUSHARE_DIR", self.dir())
            .args(words)
            .uid(uid)
            .gid(if matches!(uid, 0 | STRANGER) {
                uid
            } else {
                USERS
            })
            .current_dir("/");
        command
    }

    pub fn run(&self, uid: u32, words: &[&str]) -> Said {
        said(&mut self.command(uid, words))
    }

    /// Runs the control program as an administrator who is not root.
    pub fn run_admin(&self, uid: u32, words: &[&str]) -> Said {
        said(self.command(uid, words).gid(ADMINS))
    }

    /// Starts a process of this user that registers and applies settings.
    pub fn tenant(&self, uid: u32, label: &str) -> Tenant {
        self.plays(uid, "tenant", &[label])
    }

    /// Starts such a process and waits until it has its slot.
    pub fn joined(&self, uid: u32, label: &str) -> Tenant {
        let tenant = self.tenant(uid, label);
        let said = tenant.hear();
        assert!(said.starts_with("slot "), "{said}");
        tenant
    }

    /// Starts a role as this user, in its own process.
    pub fn plays(&self, uid: u32, role: &str, words: &[&str]) -> Tenant {
        let mut command = self.program("test", uid, &["--exact", "plays_a_role", "--nocapture"]);
        command
            .env(
                ROLE,
                std::iter::once(role)
                    .chain(words.iter().copied())
                    .collect::<Vec<_>>()
                    .join(" "),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Tenant::start(&mut command)
    }

    /// Starts a role through a program that changes its privileges.
    pub fn plays_through(&self, through: &[&str], role: &str) -> Tenant {
        let mut command = Command::new(through[0]);
        command.args(&through[1..]).arg(self.path("test"));
        command.args(["--exact", "plays_a_role", "--nocapture"]);
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("GPUSHARE_DIR", self.dir())
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/");
        Tenant::start(&mut command)
    }

    /// Starts a role with this user id of a user namespace that the user made, as in a rootless container. The machine's
    /// directory is mounted at its usual place.
    pub fn plays_in_namespace(&self, uid: u32, number: u32, role: &str) -> Tenant {
        let script = format!(
            "mount -t tmpfs none /run && mkdir /run/gpushare && mount --bind {dir} /run/gpushare || exit; \
             setpriv --reuid {uid} --regid {USERS} --clear-groups unshare --user sleep 60 & \
             inside=/proc/$!; \
             until [ \"$(readlink $inside/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ]; do sleep 0.01; done; \
             printf '0 {uid} 1\\n1 7000000 10' > $inside/uid_map; echo 0 {USERS} 1 > $inside/gid_map; \
             exec nsenter --target $! --user --setuid {number} --setgid 0 env GPUSHARE_DIR=/run/gpushare \"$@\"",
            dir = self.dir().display()
        );
        let words = ["unshare", "--mount", "sh", "-c", &script, "sh"];
        self.plays_through(&words, role)
    }

    /// Starts a tenant in a cgroup of this name that its user made in a tree of its own. Returns `None` without cgroups.
    pub fn in_cgroup(&self, uid: u32, name: &str, label: &str) -> Option<(Tree, Tenant)> {
        let tree = Tree::of(uid)?;
        let script = format!(
            "echo $$ > {0}/cgroup.procs; exec setpriv --reuid {uid} --regid {USERS} --clear-groups \
             sh -c 'mkdir {0}/{name} && echo $$ > {0}/{name}/cgroup.procs && exec \"$@\"' sh \"$@\"",
            tree.0.display()
        );
        let words = ["sh", "-c", &script, "sh"];
        let tenant = self.plays_through(&words, &format!("tenant {label}"));
        let said = tenant.hear();
        assert!(said.starts_with("slot "), "{said}");
        Some((tree, tenant))
    }

    /// Returns the processes that `ps` shows to root.
    pub fn processes(&self) -> Vec<Value> {
        let said = self.run(0, &["ps", "--json"]).done();
        said.json()["processes"].as_array().expect("a list").clone()
    }

    /// Waits for the process of this name and returns it.
    pub fn process(&self, name: &str) -> Value {
        let mut found = Value::Null;
        eventually(name, PATIENCE, || {
            let all = self.processes();
            found = all
                .iter()
                .find(|one| one["name"] == name)
                .cloned()
                .unwrap_or_default();
            !found.is_null()
        });
        found
    }

    pub fn audit(&self) -> Vec<Value> {
        let said = self.run(0, &["audit", "--json"]).done();
        said.json()["edits"].as_array().expect("a list").clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_broker();
    }
}

/// A cgroup that is removed on drop with its processes.
pub struct Tree(pub PathBuf);

impl Tree {
    /// Makes one for this user. Returns `None` if cgroups cannot be made.
    pub fn of(uid: u32) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let unified = Path::new("/sys/fs/cgroup/unified");
        let all = match unified.exists() {
            true => unified,
            false => Path::new("/sys/fs/cgroup"),
        };
        let dir = all.join(format!(
            "gpushare-test-{uid}-{}-{number}",
            std::process::id()
        ));
        if !needs(Need::Works("cgroups", fs::create_dir(&dir).is_ok())) {
            return None;
        }
        let tree = Self(dir);
        for name in ["", "cgroup.procs"] {
            std::os::unix::fs::chown(tree.0.join(name), Some(uid), None).expect("root may");
        }
        Some(tree)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        eventually("no process is in there", PATIENCE, || {
            let inner = fs::read_dir(&self.0).into_iter().flatten().flatten();
            inner.for_each(|one| drop(fs::remove_dir(one.path())));
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

/// A process that ends at the latest when its guard is dropped.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command that must not wait for another process, and returns its output.
pub fn said(command: &mut Command) -> Said {
    gpushare_testbed::Watched::spawn(command)
        .wait_output()
        .into()
}

/// A user's own directory, removed on drop.
pub struct Own(pub PathBuf);

impl Own {
    pub fn of(uid: u32) -> Self {
        let own = Self(format!("/dev/shm/gpushare-{uid}").into());
        let _ = fs::remove_dir_all(&own.0);
        own
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that plays a role.
pub struct Tenant {
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Tenant {
    /// Starts the process, with pipes.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("started");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once("said: ")
                    && send.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    /// Returns the next line that it reports.
    pub fn hear(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("it says something")
    }

    /// Sends a command and returns the next line that it reports.
    pub fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear()
    }

    pub fn tell(&mut self, what: &str) {
        let stdin = self.stdin.as_mut().expect("open");
        writeln!(stdin, "{what}")
            .and_then(|()| stdin.flush())
            .expect("it listens");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: returns the words of its role.
pub fn role() -> Option<Vec<String>> {
    let role = std::env::var(ROLE).ok()?;
    Some(role.split(' ').map(str::to_owned).collect())
}

pub fn say(what: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "\nsaid: {what}").and_then(|()| out.flush());
}

/// In a child: returns the segments' directory.
pub fn dir() -> PathBuf {
    std::env::var_os("GPUSHARE_DIR").expect("given").into()
}

/// In a child: iterates over the parent's commands until it closes the pipe.
pub fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

/// In a child: sleeps until the parent ends.
pub fn sleep_on() {
    orders().for_each(drop);
}

/// In a child: reports the settings that its launch asks for, and the files that exist.
pub fn environment() {
    let asked = shm_layout::environment::Environment::of_self()
        .limits
        .memory[0];
    let socket = std::path::Path::new("/run/gpushare/socket").exists();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there");
    let library = maps.contains("/opt/gpushare/libgpushare.so");
    let word = |there: bool, word| if there { word } else { "nothing" };
    say(format_args!(
        "{asked:?} {} {}",
        word(socket, "socket"),
        word(library, "library")
    ));
    orders().for_each(drop);
}

/// Repeats a step that may have to wait, for a time. Returns the longest wait in ticks of [`TICK`]. The clock stops while the
/// machine is too busy to run any thread of this process.
fn longest_of(lasts: Duration, wait: impl Fn(), then: impl Fn()) -> u64 {
    let (ticks, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                std::thread::sleep(TICK);
                ticks.fetch_add(1, Relaxed);
            }
        });
        let (begun, mut longest) = (Instant::now(), 0);
        while begun.elapsed() < lasts {
            let before = ticks.load(Relaxed);
            wait();
            longest = longest.max(ticks.load(Relaxed) - before);
            then();
        }
        over.store(true, Relaxed);
        longest
    })
}

/// Submits under the lock, as an application does.
fn take_turns(process: &Registration, entry: Entry, lasts: Duration) -> u64 {
    let lock = process.lock(entry);
    let submit = || {
        let (since, slice) = (Instant::now(), Duration::from_millis(5));
        while since.elapsed() < slice && lock.held() {
            std::thread::sleep(Duration::from_micros(500));
        }
        lock.release(Reason::Explicit, clock::now());
    };
    let wait = || {
        lock.acquire(&|| false);
    };
    longest_of(lasts, wait, submit)
}

/// Submits under `overlap`, as an application does.
fn submit_beside(process: &Registration, entry: Entry, lasts: Duration) -> u64 {
    const AHEAD: u64 = 4_000_000;
    let lock = process.lock(entry);
    lock.begin_activity(clock::now());
    let wait = || {
        let since = Instant::now();
        let held = lock.held_back_by(AHEAD, 0, clock::now()).is_some();
        if held && !lock.has_waited_enough(AHEAD, clock::now()) {
            lock.hold_back(AHEAD, u64::MAX, &|| since.elapsed() > 2 * lasts);
        }
        lock.go_on(clock::now());
    };
    let submit = || {
        std::thread::sleep(Duration::from_millis(2));
        lock.keep_active(clock::now());
    };
    let longest = longest_of(lasts, wait, submit);
    lock.end_activity(clock::now());
    longest
}

/// In a child: a process that registers, enters a device, and applies settings. It executes the parent's commands.
pub fn tenant(label: &str, group: Option<&str>) {
    let limits = LaunchLimits {
        group: group.map(str::to_owned),
        ..LaunchLimits::default()
    };
    let opened = Segments::open_to_register(&dir(), label, &limits);
    let opened = opened.map_err(|error| error.to_string());
    let made = opened.and_then(|segments| {
        let identity = Identity::of_self_in(&segments, label);
        let made = register(&segments, &identity, &limits);
        made.map_err(|error| error.to_string())
    });
    let process = match made {
        Ok(process) => process,
        Err(error) => return say(format_args!("refused {error}")),
    };
    let entry = process.add_device(uuid(7), 0, "Test GPU", 16 * GIB, 0);
    let entry = match entry {
        Ok(entry) => entry,
        Err(error) => return say(format_args!("refused {error}")),
    };
    let (process, works) = (&process, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _mark = process.attach_keeper().expect("a keeper's mark");
            loop {
                let seen =
                    control_bell(process.segments()).load(std::sync::atomic::Ordering::Acquire);
                if !process.is_ours() {
                    say("lost");
                }
                process.acknowledge(process.control_generation());
                process.heartbeat(clock::now());
                if works.load(Relaxed) {
                    let counters = process.count(entry);
                    counters.launches.fetch_add(1, Relaxed);
                    counters.last_submit_ns.store(clock::now(), Relaxed);
                }
                shm_layout::wait_bell(process.segments(), seen, 50_000_000);
            }
        });
        say(format_args!(
            "slot {} {}",
            process.slot().index,
            process.slot().epoch
        ));
        for order in orders() {
            let words: Vec<&str> = order.split(' ').collect();
            match words[..] {
                ["take", size] => {
                    let bytes = text::parse_size(size).expect("a size");
                    let taken = process.ledger(entry).reserve(bytes);
                    say(match taken.map(|reservation| reservation.commit()) {
                        Ok(_) => "granted",
                        Err(_) => "denied",
                    });
                }
                ["back", size] => {
                    let bytes = text::parse_size(size).expect("a size");
                    say(crate::room::comes_back(process, entry, bytes));
                }
                ["free", size] => {
                    let bytes = text::parse_size(size).expect("a size");
                    process.ledger(entry).publish_free(bytes);
                    say("told");
                }
                ["reserve"] => {
                    let given = process.ledger(entry).follow_reserve();
                    say(given.map_or_else(|_| "no room".to_owned(), |bytes| bytes.to_string()));
                }
                ["forge-reserve", bytes] => {
                    crate::room::forge_reserve(bytes.parse().expect("a number"));
                    say("written");
                }
                ["to-host"] => say(process.host_bytes_under_way()),
                ["share"] => {
                    let share = process.share();
                    let words = [(share.paused, "paused"), (share.evict, "evicted")];
                    let words = words.iter().filter(|(holds, _)| *holds);
                    say(words.map(|(_, word)| *word).collect::<Vec<_>>().join(" "));
                }
                ["work"] => {
                    works.store(true, Relaxed);
                    say("at work");
                }
                ["quota"] => say(format_args!("{:?}", process.ledger(entry).quota().bytes)),
                ["lock"] => {
                    let got = process.lock(entry).acquire(&|| false);
                    say(match got {
                        shm_layout::Acquire::Held { .. } => "held",
                        shm_layout::Acquire::GaveUp => "gave up",
                    });
                }
                ["unlock"] => {
                    process.lock(entry).release(Reason::Explicit, clock::now());
                    say("released");
                }
                ["turns", seconds] => {
                    let seconds = seconds.parse().expect("a number");
                    say(take_turns(process, entry, Duration::from_secs(seconds)));
                }
                ["beside", seconds] => {
                    let seconds = seconds.parse().expect("a number");
                    say(submit_beside(process, entry, Duration::from_secs(seconds)));
                }
                ["look"] => {
                    let look = snapshot(process.segments(), clock::now());
                    say(format_args!("{} {:?}", look.processes.len(), look.damaged));
                }
                _ => say(format_args!("what is {order:?}?")),
            }
        }
        std::process::exit(0);
    });
}
