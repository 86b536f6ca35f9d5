//! The target of an edit: `41849`, `name:LABEL`, `group:G`, `user:U`, `all`.
//!
//! A target is resolved to slots and their epochs before anything is written. If the kernel reuses a pid, or a row moves on
//! the screen, the edit therefore never reaches another process: the epoch does not match and the edit is refused.

use std::collections::BTreeSet;
use std::str::FromStr;

use shm_layout::{Change, SlotId, Uuid};

use super::change::{EditRequest, Place};
use gpushare_base::host::procfs;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::plain;
use gpushare_base::text::users::Users;
use gpushare_base::text::uuids;
use gpushare_sample::{DeviceSample, ProcessSample, Sample};

/// A target as a person writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Process with this pid, here or in its own namespace.
    Pid(u32),
    /// Every process with this label.
    Name(String),
    /// Every process of this group.
    Group(String),
    /// Every process of this user.
    User(String),
    /// Every managed process.
    All,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "a target is a pid, name:LABEL, group:G, user:U or all";
        match text.split_once(':') {
            Some((_, "")) => Err(format!("{text:?} names no process; {wanted}")),
            Some(("name", name)) => Ok(Self::Name(name.into())),
            Some(("group", group)) => Ok(Self::Group(group.into())),
            Some(("user", user)) => Ok(Self::User(user.into())),
            Some((kind, _)) => Err(format!("{kind:?} is not a kind of target; {wanted}")),
            None if text == "all" => Ok(Self::All),
            None if may_be_name(text) => Err(format!(
                "{text:?} is not understood; if it is a process's name write name:{text}; {wanted}"
            )),
            None => text
                .parse()
                .map(Self::Pid)
                .map_err(|_| format!("{text:?} is not understood; {wanted}")),
        }
    }
}

/// Returns true if the text looks like a program's name.
fn may_be_name(text: &str) -> bool {
    let of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(of_names)
}

/// A process that an edit changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Slot of the process, with its epoch.
    pub slot: SlotId,
    /// Start time of the process in clock ticks, for the audit log.
    pub start_time: u64,
    /// Title of the process: `41849 vllm-worker`. The name is as the process wrote it; a message escapes it.
    pub title: String,
}

impl Chosen {
    /// Makes a request for an edit of the process.
    pub fn request(&self, change: Change, place: Place) -> EditRequest {
        EditRequest::of_process(change, self.title.clone(), self.start_time, place)
    }
}

impl Target {
    /// Returns the live processes of the target. Fails with exit code 5 if there is none.
    pub fn resolve(&self, sample: &Sample) -> Result<Vec<Chosen>, Failure> {
        self.resolve_for(rustix::process::geteuid().as_raw(), sample)
    }

    fn resolve_for(&self, caller: u32, sample: &Sample) -> Result<Vec<Chosen>, Failure> {
        let uid = self.uid()?;
        let mut meant: Vec<&ProcessSample> = sample
            .processes
            .iter()
            .filter(|process| self.means(process, uid))
            .collect();
        if let Self::Name(name) = self {
            of_one_user(&mut meant, name, caller)?;
        }
        let chosen: Vec<Chosen> = meant.into_iter().filter_map(choose).collect();
        if chosen.is_empty() {
            Err(self.no_process(sample))
        } else {
            Ok(chosen)
        }
    }

    /// Returns the number of the target's user, if the target is a user.
    pub fn uid(&self) -> Result<Option<u32>, Failure> {
        let Self::User(user) = self else {
            return Ok(None);
        };
        let uid = Users::of_this_machine().uid(user);
        uid.map(Some).ok_or_else(|| {
            Failure::no_such_target(format!(
                "there is no user {}; give a name from /etc/passwd or a number",
                plain(user)
            ))
        })
    }

    /// Returns true if the target includes a process; `uid` is the result of [`Target::uid`].
    pub fn means(&self, process: &ProcessSample, uid: Option<u32>) -> bool {
        match self {
            // The pid is the one in this namespace. Only if that is unknown, the pid in the process's own namespace counts.
            Self::Pid(pid) => {
                process.pid == Some(*pid) || (process.pid.is_none() && process.identity.pid == *pid)
            }
            Self::Name(name) => process.identity.label == *name,
            Self::Group(group) => process.group.as_ref() == Some(group),
            Self::User(_) => Some(process.identity.uid) == uid,
            Self::All => true,
        }
    }

    fn no_process(&self, sample: &Sample) -> Failure {
        let managed = sample
            .processes
            .iter()
            .filter(|process| process.is_managed())
            .count();
        let seen = |pid: u32| {
            sample
                .processes
                .iter()
                .any(|process| process.pid == Some(pid))
        };
        let why = match self {
            Self::Pid(pid) if seen(*pid) => {
                format!(
                    "process {pid} uses the GPU without gpushare; start it with gpushare run to edit it"
                )
            }
            Self::Pid(pid) if has_ended(*pid) => format!(
                "process {pid} has ended (its parent has not waited for it yet); gpushare ps lists the processes"
            ),
            Self::Pid(pid) if std::path::Path::new(&format!("/proc/{pid}")).exists() => format!(
                "process {pid} has not used a GPU under gpushare; start it with gpushare run; gpushare ps lists the processes"
            ),
            Self::Pid(pid) => format!("there is no process {pid}; gpushare ps lists the processes"),
            Self::Name(name) => format!(
                "no process is named {}; gpushare ps shows the names",
                plain(name)
            ),
            Self::Group(group) => format!(
                "group {} has no process; gpushare group show lists the groups",
                plain(group)
            ),
            Self::User(user) => format!(
                "no process of {} uses a GPU under gpushare; gpushare ps lists the processes",
                plain(user)
            ),
            Self::All => "no process uses a GPU under gpushare; start one with gpushare run".into(),
        };
        let hint = if managed == 0 && *self != Self::All {
            " (there is none at present)"
        } else {
            ""
        };
        Failure::no_such_target(format!("{why}{hint}"))
    }
}

/// Returns true for a process that has ended and is not reaped.
fn has_ended(pid: u32) -> bool {
    let stat = procfs::text(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = procfs::stat_fields(&stat).and_then(|mut fields| fields.next());
    matches!(state, Some("Z" | "X"))
}

/// Keeps a user's own processes of those with a name that several users' processes have. Refuses the name to root, and to a user who
/// has none of them: whoever takes another's name would have a part in what is meant for that one.
fn of_one_user(named: &mut Vec<&ProcessSample>, name: &str, caller: u32) -> Result<(), Failure> {
    let users: BTreeSet<u32> = named.iter().map(|one| one.identity.uid).collect();
    if users.len() < 2 {
        return Ok(());
    }
    if caller != 0 && users.contains(&caller) {
        named.retain(|one| one.identity.uid == caller);
        return Ok(());
    }
    let known = Users::of_this_machine();
    let users: Vec<String> = users.iter().map(|uid| known.name(*uid)).collect();
    Err(Failure::usage(format!(
        "processes of {} are named {}; give the pids, which gpushare ps shows",
        users.join(" and "),
        plain(name)
    )))
}

fn choose(process: &ProcessSample) -> Option<Chosen> {
    let slot = process.slot()?;
    Some(Chosen {
        slot,
        start_time: process.identity.start_time,
        title: process.pid_and_name(),
    })
}

/// Returns the title of a process on one line, with special characters escaped.
pub fn title(process: &ProcessSample) -> String {
    plain(&process.pid_and_name()).into_owned()
}

/// Returns the title of the process in a slot, for messages.
pub fn title_of(sample: &Sample, slot: SlotId) -> String {
    sample
        .process(slot)
        .map_or_else(|| format!("slot {}", slot.index), title)
}

/// Returns the index of the device with this number, UUID, or unambiguous start of a UUID.
pub fn device(text: &str, sample: &Sample) -> Result<usize, Failure> {
    let no_device = || {
        let known: Vec<String> = sample
            .devices
            .iter()
            .enumerate()
            .map(|(gpu, device)| format!("{gpu} ({})", device.uuid))
            .collect();
        let known = if known.is_empty() {
            "none is known here".into()
        } else {
            format!("there are {}", known.join(", "))
        };
        let text = if text.is_empty() { "\"\"" } else { text };
        Failure::no_such_target(format!("there is no GPU {}; {known}", plain(text)))
    };
    if let Ok(number) = text.strip_prefix("gpu").unwrap_or(text).parse::<usize>() {
        return if number < sample.devices.len() {
            Ok(number)
        } else {
            Err(no_device())
        };
    }
    let matches =
        |device: &&(usize, &DeviceSample)| match (uuids::parse(text), uuids::parse(&device.1.uuid))
        {
            (Some(wanted), Some(uuid)) => wanted == uuid,
            _ => {
                text.len() >= 8
                    && device
                        .1
                        .uuid
                        .to_lowercase()
                        .starts_with(&text.to_lowercase())
            }
        };
    let devices: Vec<(usize, &DeviceSample)> = sample.devices.iter().enumerate().collect();
    let mut found = devices.iter().filter(matches);
    match (found.next(), found.next()) {
        (Some((gpu, _)), None) => Ok(*gpu),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "{text} is the start of several UUIDs; write more of it"
        ))),
        (None, _) => Err(no_device()),
    }
}

/// Returns the UUID of the device with this number, UUID, or unambiguous start of a UUID. A whole UUID may be that of a device
/// that is not here at present.
pub fn device_uuid(text: &str, sample: &Sample) -> Result<Uuid, Failure> {
    match uuids::parse(text) {
        Some(uuid) => Ok(uuid),
        None => uuid(sample, device(text, sample)?),
    }
}

/// Returns the UUID of a device of the sample.
pub fn uuid(sample: &Sample, gpu: usize) -> Result<Uuid, Failure> {
    let text = sample.devices.get(gpu).map_or("", |device| &device.uuid);
    uuids::parse(text).ok_or_else(|| {
        Failure::failed(format!(
            "gpu{gpu} has the UUID {text:?}, which cannot be read"
        ))
    })
}

/// Returns the name of a device for messages and the log: its number, or its UUID if it is not here.
pub fn device_title(uuid: Uuid, sample: &Sample) -> String {
    let is = |device: &DeviceSample| uuids::parse(&device.uuid) == Some(uuid);
    match sample.devices.iter().position(is) {
        Some(gpu) => format!("gpu{gpu}"),
        None => uuids::format(uuid, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_base::text::exit::Exit;
    use gpushare_sample::SlotId;

    fn sample() -> Sample {
        let process = |index, pid, label: &str, group: Option<&str>| {
            let mut process = ProcessSample {
                pid,
                ..ProcessSample::default()
            };
            process.view.slot = SlotId { index, epoch: 1 };
            process.identity.pid = 7;
            process.identity.label = label.into();
            process.group = group.map(Into::into);
            process
        };
        let device = |uuid: &str| DeviceSample {
            uuid: uuid.into(),
            ..DeviceSample::default()
        };
        let mut sample = Sample::default();
        sample.snapshot.processes = vec![
            process(0, Some(100), "train", Some("team")),
            process(1, Some(200), "serve", Some("team")),
            process(2, None, "hidden", None),
            ProcessSample {
                pid: Some(300),
                ..ProcessSample::default()
            },
        ];
        sample.devices = vec![
            device("GPU-00112233-4455-6677-8899-aabbccddee00"),
            device("GPU-00112233-4455-6677-8899-aabbccddee01"),
        ];
        sample
    }

    fn slots(target: &str) -> Vec<u16> {
        let target: Target = target.parse().expect("well formed");
        target
            .resolve(&sample())
            .expect("a process")
            .iter()
            .map(|chosen| chosen.slot.index)
            .collect()
    }

    #[test]
    fn a_name_that_two_users_have_means_ones_own_and_nothing_to_root() {
        let mut sample = sample();
        let name = Target::Name("train".into());
        sample.snapshot.processes[1].identity.label = "train".into();
        assert_eq!(name.resolve(&sample).expect("of one user").len(), 2);
        sample.snapshot.processes[1].identity.uid = 4_000_000;
        let own = name.resolve_for(4_000_000, &sample).expect("one's own");
        assert_eq!((own.len(), own[0].slot.index), (1, 1));
        sample.snapshot.processes[0].identity.uid = 4_000_002;
        for caller in [0, 4_000_001] {
            let failure = name.resolve_for(caller, &sample).expect_err("of two");
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.sentence.contains("4000000"), "{}", failure.sentence);
        }
        let group = Target::Group("team".into());
        let all = group
            .resolve_for(0, &sample)
            .expect("a group is of several");
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn each_kind_of_target_finds_its_processes() {
        assert_eq!(slots("100"), [0]);
        assert_eq!(slots("name:serve"), [1]);
        assert_eq!(slots("group:team"), [0, 1]);
        assert_eq!(slots("user:0"), [0, 1, 2]);
        assert_eq!(slots("all"), [0, 1, 2]);
    }

    #[test]
    fn a_pid_of_another_namespace_counts_only_where_no_pid_is_known_here() {
        assert_eq!(slots("7"), [2]);
    }

    #[test]
    fn nobody_is_a_sentence_and_exit_code_five() {
        for text in [
            "4000000000",
            "300",
            "name:x",
            "group:x",
            "user:no-such-user",
        ] {
            let failure = text
                .parse::<Target>()
                .expect("well formed")
                .resolve(&sample())
                .expect_err("no process");
            assert_eq!(failure.exit, Exit::NoSuchTarget, "{text}");
        }
        for text in ["", "name:", "nam:x", "-1", "x"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        let hint = |text: &str| text.parse::<Target>().expect_err("no target");
        assert!(hint("train-7b").contains("write name:train-7b;"));
        assert!(!hint("./train").contains("write"));
        assert!(!hint("12x").contains("write"));
    }

    #[test]
    fn a_device_is_found_by_number_and_uuid() {
        let sample = sample();
        assert_eq!(device("1", &sample), Ok(1));
        assert_eq!(device("gpu0", &sample), Ok(0));
        assert_eq!(
            device("GPU-00112233-4455-6677-8899-aabbccddee01", &sample),
            Ok(1)
        );
        assert_eq!(
            device("GPU-00112233", &sample).expect_err("ambiguous").exit,
            Exit::Usage
        );
        assert_eq!(
            device("2", &sample).expect_err("absent").exit,
            Exit::NoSuchTarget
        );
    }
}
