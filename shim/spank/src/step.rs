//! The start of a step, and the end of a job.

use std::path::PathBuf;
use std::process::Command;

use shm_layout::variables;

use crate::helper::answer;
use crate::slurm::{Item, Spank, complain};

/// The options of the line in plugstack.conf.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    program: Option<PathBuf>,
    shard: Option<String>,
    dir: Option<PathBuf>,
}

impl Settings {
    /// Parses `program=/usr/bin/gpushare shard=1/8`, and `dir=` if the segments are not in the default place: a command at the
    /// end of a job has none of the daemon's environment.
    pub fn read(words: impl Iterator<Item = String>) -> Self {
        let mut settings = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("program", path)) => settings.program = Some(path.into()),
                Some(("shard", shard)) => settings.shard = Some(shard.into()),
                Some(("dir", path)) => settings.dir = Some(path.into()),
                _ => complain(&format!(
                    "{word:?} is unknown; use program=, shard= and dir="
                )),
            }
        }
        settings
    }

    fn command(&self, verb: &str, spank: Spank) -> Command {
        let program = self.program.clone();
        let mut command = Command::new(program.unwrap_or_else(|| "/usr/bin/gpushare".into()));
        command.args(["slurm", verb]).current_dir("/");
        // The rest of the environment is the daemon's, which the administrator sets. A job's variable must not be mistaken for
        // it.
        let numbers = [
            ("SLURM_JOB_ID", Item::Job),
            ("SLURM_JOB_UID", Item::Uid),
            ("SLURM_JOB_GID", Item::Gid),
        ];
        for (name, item) in numbers {
            match spank.number(item) {
                Some(number) => command.env(name, number.to_string()),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = &self.dir {
            command.env(variables::DIR, dir);
        }
        command.env_remove(PRELOAD);
        for wish in &WISHES_OF_JOB {
            command.env_remove(wish.variable);
        }
        command
    }
}

const PRELOAD: &str = "LD_PRELOAD";

/// Variables of the step that the program needs.
const OF_STEP: [&str; 5] = [
    "SLURM_SHARDS_ON_NODE",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_NAME",
    "SLURM_ARRAY_TASK_ID",
    variables::NAME,
];

/// An option of a job, and the variable that holds its value for the steps in the job.
pub struct Wish {
    /// The option, without the dashes.
    pub option: &'static str,
    variable: &'static str,
}

/// The options of a job.
pub static WISHES_OF_JOB: [Wish; 2] = [
    Wish {
        option: "gpu-mem",
        variable: variables::GPU_MEM,
    },
    Wish {
        option: "gpu-reserve",
        variable: variables::GPU_RESERVE,
    },
];

/// Stores the options' values in the job, for batch scripts and all steps in them.
pub fn submit(spank: Spank, values: &[Option<String>; 2]) {
    for (wish, value) in WISHES_OF_JOB.iter().zip(values) {
        if let Some(value) = value {
            spank.set_for_job(wish.variable, value);
        }
    }
}

/// Sets the environment of a step's tasks.
pub fn begin(spank: Spank, settings: &Settings, values: [Option<String>; 2]) {
    let mut command = settings.command("task-prolog", spank);
    for name in OF_STEP {
        match spank.variable(name) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(shard) = &settings.shard {
        command.arg(format!("--shard={shard}"));
    }
    // A step without the option uses the value of its job.
    for (wish, value) in WISHES_OF_JOB.iter().zip(values) {
        let of_job = || spank.variable(&format!("SLURM_SPANK_{}", wish.variable));
        if let Some(value) = value.or_else(of_job) {
            command.arg(format!("--{}={value}", wish.option));
        }
    }
    match answer(&mut command) {
        Ok(lines) => lines.lines().for_each(|line| follow(spank, line)),
        Err(why) => complain(&format!("this step runs without limits: {why}")),
    }
}

/// Removes the remains of a job.
pub fn end(spank: Spank, settings: &Settings) {
    if let Err(why) = answer(&mut settings.command("epilog", spank)) {
        complain(&why);
    }
}

/// Applies one line of a TaskProlog's output.
fn follow(spank: Spank, line: &str) {
    match read(line) {
        Some(Line::Say(sentence)) => complain(sentence),
        Some(Line::Set(PRELOAD, library)) => {
            let value = before(library, spank.variable(PRELOAD).as_deref());
            spank.set(PRELOAD, &value);
        }
        Some(Line::Set(name, value)) => {
            spank.set(name, value);
        }
        None => complain(&format!("{line:?} is no answer to a plugin")),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Say(&'a str),
    Set(&'a str, &'a str),
}

/// Parses a line. Only variables of gpushare are accepted: the program may have worked with data of the job's user.
fn read(line: &str) -> Option<Line<'_>> {
    if let Some(sentence) = line.strip_prefix("print gpushare: ") {
        return Some(Line::Say(sentence));
    }
    let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
    let ours = name == PRELOAD || name.starts_with("GPUSHARE_");
    ours.then_some(Line::Set(name, value))
}

/// Puts the library before the job's other preloads, once.
fn before(library: &str, present: Option<&str>) -> String {
    let present = present.unwrap_or_default().split([':', ' ']);
    let others = present.filter(|other| !other.is_empty() && *other != library);
    std::iter::once(library)
        .chain(others)
        .collect::<Vec<_>>()
        .join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_variables_are_set() {
        assert_eq!(
            read("export GPUSHARE_NAME=a b=c"),
            Some(Line::Set("GPUSHARE_NAME", "a b=c"))
        );
        assert_eq!(read("print gpushare: no room"), Some(Line::Say("no room")));
        for wrong in ["export PATH=/tmp", "unset HOME", "export GPUSHARE_NAME", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_library_stands_once_before_what_a_job_preloads() {
        assert_eq!(before("/g.so", None), "/g.so");
        assert_eq!(
            before("/g.so", Some("/a.so /g.so:/b.so")),
            "/g.so:/a.so:/b.so"
        );
    }
}
