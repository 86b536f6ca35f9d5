//! How a process was started: its command, directory and environment, as the kernel tells its own user and root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shm_layout::procfs;

use super::pids;

/// More of a file than this is not read: its length is up to the process.
const MOST_BYTES: u64 = 1 << 20;
/// The value of a variable with one of these in its name is not shown.
const SECRETS: [&str; 7] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
];

/// How a process was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its working directory; `None` where it may not be read.
    pub directory: Option<String>,
    /// Names and values by name; or why they cannot be read.
    pub variables: Result<Vec<(String, String)>, String>,
}

/// Looks at the process with this pid, if it still is the one that began then.
pub fn look(pid: u32, started: u64) -> Result<Launched, String> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let is_it = || pids::start_time(&dir) == Some(started);
    let launched = Launched {
        command: words(&dir.join("cmdline")).unwrap_or_default(),
        directory: fs::read_link(dir.join("cwd"))
            .ok()
            .map(|path| path.display().to_string()),
        variables: variables(&dir),
    };
    // Asked last: all of it is of that process then.
    match is_it() {
        true => Ok(launched),
        false => Err("that process has ended".into()),
    }
}

fn variables(dir: &Path) -> Result<Vec<(String, String)>, String> {
    let words = words(&dir.join("environ")).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => "only its own user and root may read it".to_owned(),
        _ => error.to_string(),
    })?;
    let mut variables: Vec<(String, String)> = words
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), shown(name, value)))
        .collect();
    variables.sort();
    Ok(variables)
}

/// The value, unless the name tells that it is a secret.
fn shown(name: &str, value: &str) -> String {
    let upper = name.to_uppercase();
    match SECRETS.iter().any(|word| upper.contains(word)) {
        true => "(hidden)".into(),
        false => value.into(),
    }
}

/// The parts of a file whose ends are zero bytes.
fn words(path: &Path) -> io::Result<Vec<String>> {
    let bytes = procfs::of_memory(path.to_owned(), MOST_BYTES)?;
    let words = bytes.split(|byte| *byte == 0);
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    Ok(words.filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_told_with_its_command_and_a_stranger_at_its_pid_is_not() {
        let me = std::process::id();
        let started = pids::start_time(Path::new("/proc/self")).unwrap();
        let launched = look(me, started).unwrap();
        assert!(!launched.command.is_empty() && launched.directory.is_some());
        assert!(launched.variables.is_ok());
        assert!(look(me, started + 1).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        for name in [
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "wandb_api_key",
            "PGPASSWORD",
        ] {
            assert_eq!(shown(name, "abc"), "(hidden)", "{name}");
        }
        assert_eq!(shown("GPUSHARE_MEMORY", "8GiB"), "8GiB");
    }
}
