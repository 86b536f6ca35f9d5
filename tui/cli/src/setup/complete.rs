//! Completions of the shells: the scripts, and the values that the program gives them.
//!
//! A script starts this program with [`VARIABLE`] and the words of the line, and reads the candidates. The answer comes from the
//! segments alone, which are opened only for reading: it asks no driver, makes no file, and waits for no process.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;

use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{Bash, EnvCompleter, Fish, Shells, Zsh};
use clap_complete::{CompleteEnv, Shell};
use shm_layout::policy::{KINDS, policy_words};
use shm_layout::text::INHERIT;
use shm_layout::{SETTINGS, Segments, Snapshot, clock, snapshot};

use crate::segments;
use crate::start::experiment;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::users::Users;
use gpushare_launch::program;

/// The variable that asks for completions, with the shell as its value. A script sets it for one command.
const VARIABLE: &str = "_GPUSHARE_COMPLETE";

/// Maximum number of programs that are proposed for one word.
const PROGRAMS: usize = 2_000;

/// Answers a script that asks for candidates. Returns false if the program was started for something else.
pub fn answer(command: impl Fn() -> Command) -> Result<bool, Failure> {
    let shells = Shells(&[&Bash, &Zsh, &Fish]);
    let complete = CompleteEnv::with_factory(|| with_values(command(), ""))
        .var(VARIABLE)
        .shells(shells);
    complete
        .try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref())
        .map_err(|error| Failure::failed(format!("the completion cannot be answered: {error}")))
}

/// Adds the values of each argument to a command and to the verbs below it.
fn with_values(command: Command, verb: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    let command = command.mut_args(|arg| match completer(verb, &arg) {
        Some(completer) => arg.add(completer),
        None => arg,
    });
    names.iter().fold(command, |command, name| {
        let verb = format!("{verb} {name}");
        command.mut_subcommand(name, |below| with_values(below, verb.trim_start()))
    })
}

/// Returns what completes an argument of a verb, by the name of its value in the help.
fn completer(verb: &str, arg: &Arg) -> Option<ArgValueCompleter> {
    let value = arg.get_value_names()?.first()?.as_str();
    let words: fn() -> Vec<String> = match value {
        "TARGET" => targets,
        "GPU" => || [vec!["all".to_owned()], gpus()].concat(),
        "auto|N|UUID" => || [vec!["auto".to_owned()], gpus()].concat(),
        "N" if arg.get_id() == "gpu" => gpus,
        "POLICY" => policies,
        "KEY=VALUE" if verb == "set" => settings,
        "KEY=VALUE" => || ["memory=", "weight=", "cap="].map(str::to_owned).to_vec(),
        "G" => groups,
        "NAME" if verb.starts_with("group") => groups,
        "SCENARIO" => program::scenarios,
        "PLAN" => experiment::plans,
        "CMD" => return Some(ArgValueCompleter::new(Program)),
        _ => return None,
    };
    let is_path = ["SCENARIO", "PLAN"].contains(&value);
    Some(ArgValueCompleter::new(move |typed: &OsStr| {
        let mut found = matching(typed, words());
        if is_path {
            found.extend(PathCompleter::file().complete(typed));
        }
        found
    }))
}

fn matching(typed: &OsStr, words: Vec<String>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let words = words
        .into_iter()
        .filter(|word| word.starts_with(&*typed) && is_plain(word));
    words.map(CompletionCandidate::new).collect()
}

/// Returns true if a shell takes the word as it is. A process chooses its name, and a shell would run what is in `$(…)`.
fn is_plain(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@:/=".contains(&byte);
    !word.starts_with('-') && word.bytes().all(plain)
}

/// Returns what is in the segments; `None` if there are none.
fn present() -> Option<Snapshot> {
    let dir = segments::dir().ok()?;
    let segments = Segments::open_viewer(&dir.path).ok()?;
    Some(snapshot(&segments, clock::now()))
}

/// Returns `all`, and the pid, name, group and user of each live process.
fn targets() -> Vec<String> {
    let users = Users::of_this_machine();
    let mut words = BTreeSet::new();
    for process in present().iter().flat_map(|present| &present.processes) {
        let identity = &process.identity;
        words.insert(identity.pid.to_string());
        words.insert(format!("user:{}", users.name(identity.uid)));
        if !identity.label.is_empty() {
            words.insert(format!("name:{}", identity.label));
        }
        words.extend(process.group.iter().map(|group| format!("group:{group}")));
    }
    std::iter::once("all".to_owned()).chain(words).collect()
}

/// Returns the numbers of the devices.
fn gpus() -> Vec<String> {
    let count = present().map_or(0, |present| present.devices.len());
    (0..count).map(|number| number.to_string()).collect()
}

fn groups() -> Vec<String> {
    let present = present();
    present
        .iter()
        .flat_map(|present| &present.groups)
        .map(|group| group.name.clone())
        .collect()
}

/// Returns the words of a policy; one that takes a value ends in `=`.
fn policies() -> Vec<String> {
    let alone = KINDS.iter().filter(|kind| (kind.of)(None).is_some());
    let alone = alone.map(|kind| kind.word).chain([INHERIT]);
    let mut words: Vec<String> = alone.map(str::to_owned).collect();
    for (word, values, _) in policy_words() {
        let Some(values) = values else { continue };
        let choices = values.words.iter();
        words.extend(choices.map(|(choice, _)| format!("{word}={choice}")));
        words.extend(values.limits.map(|_| format!("{word}=")));
    }
    words
}

fn settings() -> Vec<String> {
    SETTINGS
        .iter()
        .map(|about| format!("{}=", about.word))
        .collect()
}

/// Completes a program and its arguments: first what `PATH` has, then files.
struct Program;

impl ValueCompleter for Program {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, typed)
    }

    fn complete_at(&self, position: usize, typed: &OsStr) -> Vec<CompletionCandidate> {
        let mut found = PathCompleter::any().complete(typed);
        let is_name = !typed.is_empty() && !typed.as_encoded_bytes().contains(&b'/');
        if position == 0 && is_name {
            found.extend(matching(typed, programs(&typed.to_string_lossy())));
        }
        found
    }
}

/// Returns the programs in `PATH` whose names begin so.
fn programs(typed: &str) -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let entries = std::env::split_paths(&path)
        .filter_map(|folder| folder.read_dir().ok())
        .flatten()
        .flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(typed));
    let runs = |entry: &std::fs::DirEntry| {
        let meta = std::fs::metadata(entry.path());
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let names = named
        .filter(runs)
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .collect::<BTreeSet<_>>()
        .into_iter()
        .take(PROGRAMS)
        .collect()
}

/// The script of bash. Bash splits words at `:` and `=`, which are part of ours (`name:train`, `order=fair`): the words are read
/// from the line again, and only what follows the last of these characters is replaced.
const BASH: &str = r#"_gpushare() {
    local line=${COMP_LINE:0:COMP_POINT} words cur head
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[${#words[@]}-1]}
    mapfile -t COMPREPLY < <(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) VARIABLE=bash gpushare -- "${words[@]}" 2>/dev/null)
    head=${cur%"${cur##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -F _gpushare gpushare
"#;

/// Writes the script that a package installs. Returns false for a shell that has no script of this kind.
pub fn script(shell: Shell, out: &mut dyn Write) -> std::io::Result<bool> {
    let of = |completer: &dyn EnvCompleter| {
        let mut text = Vec::new();
        completer.write_registration(VARIABLE, "gpushare", "gpushare", "gpushare", &mut text)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&text).into_owned())
    };
    let text = match shell {
        Shell::Bash => BASH.replace("VARIABLE", VARIABLE),
        // zsh runs the file at the first completion, which the function then has to answer.
        Shell::Zsh => of(&Zsh)?.replace("_clap_dynamic_completer_gpushare", "_gpushare").replace(
            "compdef _gpushare gpushare",
            "if [ \"$funcstack[1]\" = _gpushare ]; then _gpushare \"$@\"; else compdef _gpushare gpushare; fi",
        ),
        Shell::Fish => of(&Fish)?,
        _ => return Ok(false),
    };
    out.write_all(text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_proposed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim/scenarios");
        let files = folder.read_dir().expect("the scenarios").flatten();
        let names = files.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned()));
        let mut names: Vec<String> = names.collect();
        names.sort();
        let mut proposed = program::scenarios();
        proposed.sort();
        assert_eq!(names, proposed);
    }

    #[test]
    fn a_name_that_a_shell_would_run_is_not_proposed() {
        let words = [
            "name:train",
            "name:$(id)",
            "name:a b",
            "name:`id`",
            "name:a;b",
            "name:a\u{1b}[2J",
        ];
        let found = matching(OsStr::new("name:"), words.map(str::to_owned).to_vec());
        let found: Vec<_> = found.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(found, ["name:train"]);
    }
}
