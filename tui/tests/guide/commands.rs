//! The commands in the indented blocks, run on the simulated GPU in the order of the page.
//!
//! A command that needs root, another machine or hours is only parsed by its program and not run.

use std::cell::RefCell;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use gpushare_cli::Cli;
use gpushare_testbed::{Testbed, Watched, artifact};
use gpushare_top::options::Options;

#[path = "../cli_support/mod.rs"]
mod cli_support;

use crate::{Page, pages};
use cli_support::executable;

/// Beginnings of commands that are only parsed, with the reason.
const READ_ONLY: [(&str, &str); 27] = [
    ("gpushare init", "installs a unit of systemd"),
    ("gpushare quota set user:alice", "wants a user alice"),
    ("gpushare slurm", "wants Slurm, and writes to its directory"),
    ("gpushare mps", "wants NVIDIA's MPS"),
    ("gpushare tune", "wants jobs that work at the same time"),
    ("gpushare experiment inference", "wants PyTorch and a GPU"),
    ("gpushare experiment xsched", "the same"),
    ("gpushare experiment orion", "the same"),
    ("gpushare experiment tally", "the same"),
    ("gpushare experiment dynamo", "the same"),
    ("gpushare metrics --listen", "runs until it is ended"),
    ("gpushare demo --sim --headless --here", "runs for an hour"),
    ("gpushare ps --hosts", "wants other machines"),
    ("gpushare-top gpu01", "wants other machines"),
    ("gpushare-top --replay", "wants a recording"),
    ("gpushare-top --record", "wants a screen"),
    ("gpushare-top --web", "runs until it is ended"),
    (
        "gpushare doctor",
        "finds in a test what a test has wrong: it is no installation",
    ),
    (
        "gpushare-top --once --check",
        "finds alerts, for the test's programs contend",
    ),
    ("gpushare kill", "ends what later commands edit"),
    (
        "gpushare pause name:notebook --evict",
        "waits for a process that calls the driver, which the test's does not",
    ),
    (
        "gpushare run --sim mig -- python test_mig.py",
        "makes a world of its own beside the test's",
    ),
    (
        "gpushare run --sim two-gpus",
        "makes a world of its own beside the test's",
    ),
    (
        "gpushare run --exclusive",
        "wants a GPU that no process uses, and the test's use it",
    ),
    ("gpushare run --wait --timeout 20m --exclusive", "the same"),
    (
        "gpushare run --wait --timeout 2h --memory 40GiB",
        "wants a GPU of 40 GiB",
    ),
    ("gpushare pick --memory 20GiB", "wants a GPU of 20 GiB"),
];

/// Commands that are run: they affect only the test's own machine. A command in neither list fails the test, so that a new
/// command is never run as root before a person has checked it.
const RUN: [&str; 20] = [
    "gpushare advise",
    "gpushare apply",
    "gpushare audit",
    "gpushare boost",
    "gpushare demo",
    "gpushare experiment",
    "gpushare export-config",
    "gpushare group",
    "gpushare metrics",
    "gpushare pause",
    "gpushare pick",
    "gpushare pin",
    "gpushare policy",
    "gpushare ps",
    "gpushare quota",
    "gpushare resume",
    "gpushare run",
    "gpushare set",
    "gpushare undo",
    "gpushare-top",
];

/// Programs of others, and programs that build this repository: they have other tests.
const OTHERS: [&str; 8] = [
    "cargo",
    "assets/install.sh",
    "groupadd",
    "prometheus",
    "pipx",
    "sudo",
    "tar",
    "sbatch",
];

/// Programs that the commands start, replaced by [`PLAYER`].
const PLAYED: [&str; 3] = ["python", "jupyter", "pytest"];
/// Uses a GPU until its input ends if the page has given it a name, else ends at once.
const PLAYER: &str = "#!/bin/sh\n[ -z \"$GPUSHARE_NAME\" ] || exec \"$WORKLOAD\" --script\n";

/// Returns the commands of a page: the indented lines, up to the explanation after three blanks.
fn commands(page: &Page) -> Vec<String> {
    let lines = page
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("    "));
    let begins = |line: &&str| {
        let word = line.split(' ').next().unwrap_or_default();
        matches!(word, "gpushare" | "gpushare-top") || OTHERS.contains(&word)
    };
    let line = |line: &str| {
        let command = line.split("   ").next().unwrap_or_default();
        command.trim_end_matches('&').trim_end().to_owned()
    };
    lines.filter(begins).map(line).collect()
}

/// Writes the files that a page tells the reader to write: blocks of TOML with a name.
fn write_files(page: &Page, dir: &Path) {
    for block in page.text.split("```toml ").skip(1) {
        let (name, rest) = block.split_once('\n').expect("a name");
        let text = rest.split("```").next().unwrap_or_default();
        std::fs::write(dir.join(name), text).expect("written");
    }
}

fn read(command: &str) -> Result<(), String> {
    let words: Vec<String> = command
        .split_whitespace()
        .map(|word| word.trim_matches('\'').to_owned())
        .collect();
    let read = match words[0].as_str() {
        "gpushare" => Cli::try_parse_from(&words).map(drop),
        _ => Options::try_parse_from(&words).map(drop),
    };
    read.map_err(|error| error.to_string())
}

/// A machine on which the commands of the pages work.
struct Stage {
    bed: Testbed,
    place: tempfile::TempDir,
    /// The programs that the page has started by name. They run until its end.
    programs: RefCell<Vec<Watched>>,
}

impl Stage {
    fn new() -> Self {
        // As many and as large devices as the pages assume.
        let bed = Testbed::with_scenario("eight-gpus");
        let place = tempfile::tempdir().expect("a temporary directory");
        let bin = place.path().join("bin");
        std::fs::create_dir(&bin).expect("made");
        let workload = artifact("gpushare-workload");
        let workload = workload.to_str().expect("plain text");
        for (name, program) in [
            ("gpushare", env!("CARGO_BIN_EXE_gpushare")),
            ("gpushare-top", env!("CARGO_BIN_EXE_gpushare-top")),
            ("gpushare-workload", workload),
        ] {
            symlink(program, bin.join(name)).expect("linked");
        }
        for name in PLAYED {
            executable(&bin.join(name), PLAYER, "0755");
        }
        symlink(
            crate::workspace().join("assets"),
            place.path().join("assets"),
        )
        .expect("linked");
        Self {
            bed,
            place,
            programs: RefCell::default(),
        }
    }

    fn does(&self, command: &str) -> Result<(), String> {
        let mut shell = self.bed.sim_only("sh");
        let path = format!(
            "{}:{}",
            self.place.path().join("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        // The dashboard needs a screen; with `--once` it does not.
        let drawn = command.starts_with("gpushare-top") && !command.contains("--print-config");
        let once = match drawn && !command.contains("--once") {
            true => " --once",
            false => "",
        };
        shell
            .arg("-c")
            .arg(format!("{command}{once}"))
            .env("PATH", path)
            .env("HOME", self.place.path())
            .env("GPUSHARE_LIB", artifact("libgpushare.so"))
            .env("WORKLOAD", artifact("gpushare-workload"))
            .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent")
            .current_dir(self.place.path());
        if command.starts_with("gpushare run") && command.contains(" --name ") {
            let mut program = Watched::spawn(&mut shell);
            let line = program
                .line_within(Duration::from_secs(60))
                .unwrap_or_default();
            let is_ready = line.starts_with("ready");
            let said = program.stderr();
            self.programs.borrow_mut().push(program);
            return is_ready.then_some(()).ok_or(said);
        }
        let output = output(&mut shell)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn output(command: &mut Command) -> Result<std::process::Output, String> {
    command.output().map_err(|error| error.to_string())
}

#[test]
fn every_command_runs_on_the_simulated_gpu() {
    let (mut run, mut failures) = (0, Vec::new());
    for page in pages() {
        let all = commands(&page);
        // The page of the first minutes has a test of its own.
        if all.is_empty() || page.path.ends_with("first-ten-minutes.md") {
            continue;
        }
        // Each page has its own machine, because a reader may begin with any page.
        let stage = Stage::new();
        write_files(&page, stage.place.path());
        // Named on pages that do not spell it out.
        let limits = stage.place.path().join("limits.toml");
        if !limits.exists() {
            std::fs::write(limits, "").expect("written");
        }
        for command in all {
            let is_ours = command.starts_with("gpushare");
            if is_ours && let Err(error) = read(&command) {
                failures.push(format!("{}: {command}: {error}", page.path.display()));
            }
            let only_read = READ_ONLY
                .iter()
                .any(|(begin, _)| command.starts_with(begin));
            if !is_ours || only_read {
                continue;
            }
            if !RUN.iter().any(|begin| command.starts_with(begin)) {
                failures.push(format!("{command}: say in RUN or READ_ONLY which it is"));
                continue;
            }
            run += 1;
            if let Err(error) = stage.does(&command) {
                failures.push(format!("{}: {command}: {error}", page.path.display()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(run > 30, "{run}");
}

#[test]
fn what_is_only_read_is_still_on_a_page() {
    let pages = pages();
    let all: Vec<String> = pages.iter().flat_map(commands).collect();
    for (begin, why) in READ_ONLY {
        assert!(
            all.iter().any(|command| command.starts_with(begin)),
            "no command begins with {begin:?} ({why}) any more: remove the line"
        );
    }
}

#[test]
fn every_verb_and_option_in_the_text_exists() {
    let (mut control, top) = (Cli::command(), Options::command());
    control.build();
    let mut options = Vec::new();
    gather(&control, &mut options);
    gather(&top, &mut options);
    for page in pages() {
        // Code between single backquotes in a line.
        for code in page
            .text
            .lines()
            .flat_map(|line| line.split('`').skip(1).step_by(2))
        {
            let words: Vec<&str> = code.split_whitespace().collect();
            let own = words.iter().take_while(|word| **word != "--");
            let own: Vec<&str> = own.copied().collect();
            let [program, rest @ ..] = own.as_slice() else {
                continue;
            };
            if !matches!(*program, "gpushare" | "gpushare-top") {
                continue;
            }
            if *program == "gpushare"
                && let Some(verb) = rest.first().filter(|verb| {
                    verb.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                        && !verb.starts_with('-')
                })
            {
                assert!(
                    *verb == "help" || control.find_subcommand(verb).is_some(),
                    "{}: `{code}`: there is no verb {verb}",
                    page.path.display()
                );
            }
            for option in rest.iter().filter_map(|word| word.strip_prefix("--")) {
                let option = option
                    .split('=')
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches([',', ';']);
                assert!(
                    options.iter().any(|known| known == option),
                    "{}: `{code}`: there is no option --{option}",
                    page.path.display()
                );
            }
        }
    }
}

fn gather(command: &clap::Command, options: &mut Vec<String>) {
    options.extend(["help", "version"].map(str::to_owned));
    options.extend(
        command
            .get_arguments()
            .filter_map(|arg| arg.get_long().map(str::to_owned)),
    );
    for verb in command.get_subcommands() {
        gather(verb, options);
    }
}
