//! The identity of a process, as it reports itself, and the traits that rules match: from the registry where there is a broker,
//! else as the process reports them.
//!
//! From inside a container a process sees one pid, the one of its own namespace. The tools find it from the host by
//! that pid, its start time and its pid namespace; the time namespace says when the start time is shifted.

use std::{fs, os::unix::fs::MetadataExt};

use crate::{
    layout::{
        codec,
        registry::{REGISTRY_WORDS, Registry},
        state::{IDENTITY_WORDS, Slot},
    },
    os::procfs,
    protocol::{primitive::Ordering, seqlock},
    segment::Segments,
    text::cgroups,
    value::{Identity, LaunchShare, SettingValues, SlotId, Traits, Vouched},
};

const EXE: usize = 4;
const CGROUP: usize = EXE + 32;
const LABEL: usize = CGROUP + 32;
const END: usize = LABEL + 8;

impl Identity {
    /// Returns this process's own identity.
    pub fn of_self(label: &str) -> Identity {
        let inode =
            |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |meta| meta.ino());
        let read = |name: &str| procfs::record(format!("/proc/self/{name}")).unwrap_or_default();
        let exe = fs::read_link("/proc/self/exe").unwrap_or_default();
        Identity {
            pid: std::process::id(),
            pid_ns: inode("pid"),
            time_ns: inode("time"),
            start_time: procfs::start_time(&read("stat")).unwrap_or(0),
            uid: rustix::process::getuid().as_raw(),
            exe: tail(&exe.to_string_lossy(), 255),
            cgroup: tail(&cgroup(&read("cgroup")), 255),
            label: label.to_owned(),
        }
    }

    /// Returns the identity that this process writes into these segments: only its label where there is a broker, because the
    /// kernel vouches for the rest.
    pub fn of_self_in(segments: &Segments, label: &str) -> Identity {
        match segments.is_brokered() {
            true => Identity {
                label: label.to_owned(),
                ..Identity::default()
            },
            false => Identity::of_self(label),
        }
    }

    /// A process's, as the host sees it, without a label, and the text of its cgroups: for a broker, which may look at every
    /// process. `our_pid_ns` is the caller's own.
    pub fn of_process(pid: u32, uid: u32, our_pid_ns: u64) -> Option<(Identity, String)> {
        let dir = std::path::PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| procfs::record(dir.join(name)).unwrap_or_default();
        let inode =
            |name: &str| fs::metadata(dir.join("ns").join(name)).map_or(0, |meta| meta.ino());
        let start_time = procfs::start_time(&read("stat"))?;
        let pid_ns = inode("pid");
        let own_pid = match pid_ns == our_pid_ns {
            true => pid,
            false => {
                let status = read("status");
                let numbers = status
                    .lines()
                    .find_map(|line| line.strip_prefix("NSpid:"))?;
                numbers.split_ascii_whitespace().next_back()?.parse().ok()?
            }
        };
        let exe = fs::read_link(dir.join("exe")).unwrap_or_default();
        let cgroups = read("cgroup");
        let identity = Identity {
            pid: own_pid,
            pid_ns,
            time_ns: inode("time"),
            start_time,
            uid,
            exe: tail(&exe.to_string_lossy(), 255),
            cgroup: tail(&cgroup(&cgroups), 255),
            label: String::new(),
        };
        Some((identity, cgroups))
    }

    pub(crate) fn encode(&self) -> [u64; IDENTITY_WORDS] {
        let mut words = [0; IDENTITY_WORDS];
        words[0] = u64::from(self.pid) | u64::from(self.uid) << 32;
        words[1] = self.pid_ns;
        words[2] = self.time_ns;
        words[3] = self.start_time;
        codec::text_words(&self.exe, &mut words[EXE..CGROUP]);
        codec::text_words(&self.cgroup, &mut words[CGROUP..LABEL]);
        codec::text_words(&self.label, &mut words[LABEL..END]);
        words
    }

    pub(crate) fn decode(words: &[u64; IDENTITY_WORDS]) -> Identity {
        let mut identity = Identity::default();
        identity.decode_into(words);
        identity
    }

    /// Decodes into this identity, and reuses its memory.
    pub(crate) fn decode_into(&mut self, words: &[u64; IDENTITY_WORDS]) {
        let Identity {
            pid,
            uid,
            pid_ns,
            time_ns,
            start_time,
            exe,
            cgroup,
            label,
        } = self;
        (*pid, *uid) = (words[0] as u32, (words[0] >> 32) as u32);
        [*pid_ns, *time_ns, *start_time] = [words[1], words[2], words[3]];
        codec::text_into(&words[EXE..CGROUP], exe);
        codec::text_into(&words[CGROUP..LABEL], cgroup);
        codec::text_into(&words[LABEL..END], label);
    }
}

impl Segments {
    /// Reads a slot's launch settings, within the bounds in force.
    pub(crate) fn launch_of(&self, slot: &Slot) -> LaunchShare {
        let words = slot.launch_words().map(|word| word.load(Ordering::Relaxed));
        self.bounded(LaunchShare::decode(&words))
    }

    /// Limits the share to the bounds of a launch, where a broker serves several users.
    pub(crate) fn bounded(&self, launch: LaunchShare) -> LaunchShare {
        let Some((priority, weight)) = self.registry().map(Registry::launch_bounds) else {
            return launch;
        };
        let asked = &launch.values;
        LaunchShare {
            values: SettingValues {
                priority: asked.priority.map(|asked| asked.min(priority)),
                weight: asked.weight.map(|asked| asked.min(weight)),
                ..*asked
            },
            ..launch
        }
    }
}

/// Start of the texts that the kernel vouches for. Before it are the words of [`Identity::encode`] and the host's numbers.
const HOST: usize = END;
const CONTAINER: usize = HOST + 2;
const JOB: usize = CONTAINER + 16;
const REGISTRY_END: usize = JOB + 8;

/// An entry of the broker's registry.
pub(crate) fn encode_vouched(who: &Identity, vouched: &Vouched) -> [u64; REGISTRY_WORDS] {
    let mut words = [0; REGISTRY_WORDS];
    let own = who.encode();
    words[..END].copy_from_slice(&own[..END]);
    words[HOST] = u64::from(vouched.pid) | u64::from(vouched.gid) << 32;
    words[HOST + 1] = vouched.start_time;
    codec::text_words(&vouched.container, &mut words[CONTAINER..JOB]);
    codec::text_words(&vouched.job, &mut words[JOB..REGISTRY_END]);
    words
}

/// Decodes a registry entry.
pub(crate) fn decode_vouched(words: &[u64; REGISTRY_WORDS]) -> (Identity, Vouched) {
    let mut own = [0; IDENTITY_WORDS];
    own[..END].copy_from_slice(&words[..END]);
    let vouched = Vouched {
        pid: words[HOST] as u32,
        gid: (words[HOST] >> 32) as u32,
        start_time: words[HOST + 1],
        container: codec::text_of(&words[CONTAINER..JOB]),
        job: codec::text_of(&words[JOB..REGISTRY_END]),
    };
    (Identity::decode(&own), vouched)
}

/// Returns the identity of the process that has a slot in this life of it.
pub(crate) fn of_registry(registry: &Registry, slot: SlotId) -> Option<(Identity, Vouched)> {
    let entry = registry.entry(usize::from(slot.index))?;
    let words = entry.read().filter(|_| registry.is_current(slot))?;
    Some(decode_vouched(&words))
}

/// The unified hierarchy's path, else the first one.
fn cgroup(text: &str) -> String {
    let line = text
        .lines()
        .find(|line| line.starts_with("0::"))
        .or_else(|| text.lines().next());
    line.and_then(|line| line.splitn(3, ':').nth(2))
        .unwrap_or("")
        .to_owned()
}

/// Returns at most the last `most` bytes: the end of a path says more than its beginning.
fn tail(text: &str, most: usize) -> String {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// Returns the traits of a slot's process in this life of the slot; `None` where they cannot be read completely.
pub(crate) fn traits(segments: &Segments, id: SlotId) -> Option<Traits> {
    let index = usize::from(id.index);
    let slot = segments.state().slots.get(index)?;
    let group = segments
        .group_name_of(index)
        .map(|name| codec::text_of(&name));
    let Some(registry) = segments.registry() else {
        let mut words = [0; IDENTITY_WORDS];
        seqlock::read(&slot.identity_seq, &slot.identity, &mut words)?;
        return Some(traits_of(&Identity::decode(&words), None, group));
    };
    let entry = registry.entry(index).filter(|_| registry.is_current(id))?;
    let (identity, vouched) = decode_vouched(&entry.read()?);
    Some(traits_of(&identity, Some(vouched.container), group))
}

/// Derives the traits from an identity. Without a broker the container is read out of the cgroup.
pub(crate) fn traits_of(
    identity: &Identity,
    vouched: Option<String>,
    group: Option<String>,
) -> Traits {
    let own = || cgroups::container(&identity.cgroup).unwrap_or_default();
    Traits {
        uid: identity.uid,
        group,
        executable: identity.exe.clone(),
        container: vouched.unwrap_or_else(own),
        label: identity.label.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_from_its_words() {
        let mut identity = Identity::of_self("trainer");
        assert_eq!(Identity::decode(&identity.encode()), identity);
        identity.label = "ü".repeat(60);
        assert!(Identity::decode(&identity.encode()).label.starts_with("üü"));
    }

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(tail("/a/very/long/path", 9), "long/path");
    }
}
