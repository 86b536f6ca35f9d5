//! Who a process is, by its own account.
//!
//! From inside a container a process sees one pid, the one of its own namespace. The tools find it from the host by
//! that pid, its start time and its pid namespace; the time namespace says when the start time is shifted.

use std::{fs, os::unix::fs::MetadataExt};

use crate::{codec, procfs, state::IDENTITY_WORDS, value::Identity};

const EXE: usize = 4;
const CGROUP: usize = EXE + 32;
const LABEL: usize = CGROUP + 32;
const END: usize = LABEL + 8;

impl Identity {
    /// This process's own.
    pub fn of_self(label: &str) -> Identity {
        let inode =
            |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |meta| meta.ino());
        let read = |name: &str| procfs::text(format!("/proc/self/{name}")).unwrap_or_default();
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
        Identity {
            pid: words[0] as u32,
            uid: (words[0] >> 32) as u32,
            pid_ns: words[1],
            time_ns: words[2],
            start_time: words[3],
            exe: codec::text_of(&words[EXE..CGROUP]),
            cgroup: codec::text_of(&words[CGROUP..LABEL]),
            label: codec::text_of(&words[LABEL..END]),
        }
    }
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

/// The last `most` bytes at most: the end of a path tells more than its beginning.
fn tail(text: &str, most: usize) -> String {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
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
