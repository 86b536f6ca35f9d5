//! The start of a process: its command, directory and environment, which the kernel shows to the process's user and to
//! root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pids;
use crate::host::procfs;

/// Maximum number of bytes that are read from a file, because the process chooses its length.
const MOST_BYTES: u64 = 1 << 20;
/// Words that mark a variable as secret. Its value is not shown.
const SECRETS: [&str; 7] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
];

/// The command, directory and environment of a process at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory; `None` if it may not be read.
    pub directory: Option<String>,
    /// Variables in the order of their names, or the reason why they cannot be read.
    pub variables: Result<Vec<(String, String)>, String>,
}

/// Reads the start of the process with this pid. Fails if the process that began at `started` (clock ticks) has ended.
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
    // Checked last: if the process is still the same one, all that was read belongs to it.
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

/// Returns the value, or a placeholder if the variable's name marks it as secret.
fn shown(name: &str, value: &str) -> String {
    let upper = name.to_uppercase();
    match SECRETS.iter().any(|word| upper.contains(word)) {
        true => "(hidden)".into(),
        false => value.into(),
    }
}

/// Returns the parts of a file that are separated by zero bytes.
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
