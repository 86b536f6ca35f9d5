//! `gpushare slurm check`: checks Slurm's files on this node.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use shm_layout::text::PathText as _;

use crate::setup::checks::{Finding, Level};
use crate::setup::doctor;
use crate::{Done, segments};
use gpushare_base::host::artifacts;
use gpushare_base::text::exit::Exit;
use gpushare_base::text::files::read_text;
use gpushare_launch::slurm::Shard;

/// Check Slurm's files on this node, and say what is missing
///
/// Exits with 1 if jobs would run without their limits.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory of slurm.conf [default: that of SLURM_CONF, else /etc/slurm]
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let by_variable = || {
        Some(
            PathBuf::from(std::env::var_os("SLURM_CONF")?)
                .parent()?
                .to_owned(),
        )
    };
    let conf = args.conf.clone().or_else(by_variable);
    let findings = look(&conf.unwrap_or_else(|| "/etc/slurm".into()));
    doctor::list(&findings, out)?;
    let bad = findings.iter().any(|finding| finding.level == Level::Fail);
    Ok(if bad { Exit::Failed } else { Exit::Done })
}

/// Runs all checks in the order of the setup.
fn look(conf: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let place = conf.join("slurm.conf");
    let main = match read_text(&place) {
        Ok(text) => Conf(text),
        Err(error) => {
            let found = format!("{} cannot be read: {error}", place.shown());
            return vec![Finding::fail(
                "slurm.conf",
                found,
                "name its directory with --conf",
            )];
        }
    };
    let types = main.value("GresTypes").unwrap_or_default();
    findings.push(match types.split(',').any(|word| word == "shard") {
        true => Finding::ok("shards", "GresTypes has shard"),
        false => Finding::warn(
            "shards",
            "GresTypes has no shard, so there is --gpu-mem alone",
            "add GresTypes=gpu,shard to slurm.conf, and what gpushare slurm install prints",
        ),
    });
    findings.push(hook(conf, &main));
    findings.push(match artifacts::library() {
        Ok(path) => Finding::ok("library", path.shown()),
        Err(failure) => Finding::fail("library", failure.sentence, "install gpushare on this node"),
    });
    findings.push(match segments::dir() {
        Ok(dir) if dir.is_brokered => Finding::ok("broker", dir.path.shown()),
        _ => Finding::warn("broker", "no broker serves this node: each user's jobs share among themselves only, and may change their own limits", "gpushare init --group GROUP"),
    });
    let cgroups = main
        .value("ProctrackType")
        .is_none_or(|kind| kind == "proctrack/cgroup");
    findings.push(match cgroups {
        true => Finding::ok("job", "jobs have cgroups, by which ps tells them"),
        false => Finding::warn(
            "job",
            "jobs have no cgroups, so ps tells a job by its group slurm-JOBID alone",
            "ProctrackType=proctrack/cgroup in slurm.conf",
        ),
    });
    findings
}

/// Checks that Slurm calls gpushare: by the plugin, or by a TaskProlog.
fn hook(conf: &Path, main: &Conf) -> Finding {
    let stack = main.value("PlugStackConfig").map(PathBuf::from);
    let stack = stack.unwrap_or_else(|| conf.join("plugstack.conf"));
    if let Some(line) = lines_of(&stack, 0)
        .into_iter()
        .find(|line| line.contains(artifacts::SPANK))
    {
        return plugin(&line);
    }
    let prolog = main.value("TaskProlog").unwrap_or_default();
    let text = read_text(Path::new(prolog)).unwrap_or_default();
    if !text.contains("slurm task-prolog") {
        return Finding::fail(
            "hook",
            format!(
                "neither {} nor TaskProlog names gpushare, so jobs have no limits",
                stack.shown()
            ),
            "gpushare slurm install prints what to add",
        );
    }
    let epilog = read_text(Path::new(main.value("Epilog").unwrap_or_default())).unwrap_or_default();
    match epilog.contains("slurm epilog") {
        true => Finding::ok("hook", format!("TaskProlog {prolog}, and Epilog")),
        false => Finding::warn(
            "hook",
            format!(
                "TaskProlog {prolog}, but the Epilog does not call gpushare, so the groups of jobs that are over stay"
            ),
            "gpushare slurm install prints what to add",
        ),
    }
}

/// Checks the plugin's line: `optional PATH program=PATH shard=1/8`.
fn plugin(line: &str) -> Finding {
    let mut words = line.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let given = |key: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(key))
    };
    let program = given("program=").unwrap_or_default();
    let missing = [path, program]
        .into_iter()
        .find(|path| !Path::new(path).is_file());
    if let Some(path) = missing {
        return Finding::fail(
            "hook",
            format!("the plugin's line names {path:?}, which is not there"),
            "install gpushare there, or correct the line by gpushare slurm install",
        );
    }
    match given("shard=").map(str::parse::<Shard>) {
        Some(Ok(_)) => {}
        Some(Err(error)) => {
            return Finding::fail(
                "hook",
                format!("shard=: {error}"),
                "correct the line by gpushare slurm install",
            );
        }
        None => {
            return Finding::fail(
                "hook",
                "the plugin's line has no shard=, so --gres=shard:N limits no memory",
                "add shard=1/N, where a GPU has N shards",
            );
        }
    }
    match kind {
        "required" => Finding::warn(
            "hook",
            format!("{path}, required: where it cannot be loaded no job starts"),
            "write optional",
        ),
        _ => Finding::ok("hook", path),
    }
}

/// Returns the lines of a plugstack.conf and of the files that it includes.
fn lines_of(path: &Path, depth: u8) -> Vec<String> {
    let text = read_text(path).unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .flat_map(|line| {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some(word), Some(pattern))
                    if word.eq_ignore_ascii_case("include") && depth < 4 =>
                {
                    let files = matching(path.parent().unwrap_or(path), pattern);
                    files
                        .iter()
                        .flat_map(|file| lines_of(file, depth + 1))
                        .collect()
                }
                _ => vec![line.to_owned()],
            }
        })
        .collect()
}

/// Returns the files that match a pattern with one `*` in its last part, or the one file without it. As for a shell, `*` does not
/// stand for the dot of a hidden file.
fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let path = folder.join(pattern);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((start, end)) = name.split_once('*') else {
        return vec![path];
    };
    let entries = fs::read_dir(path.parent().unwrap_or(folder));
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let rest = name.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end))
                && (!start.is_empty() || !name.starts_with('.'))
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

/// A file of `Key=Value` lines.
struct Conf(String);

impl Conf {
    fn value(&self, key: &str) -> Option<&str> {
        let lines = self
            .0
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        lines.rev().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
        })
    }
}
