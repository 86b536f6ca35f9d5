//! The list of verbs by what they are for, the pages of the guide, and the right command for frequent mistakes.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error};

use crate::Cli;
use gpushare_base::host::artifacts;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::nearest::nearest;
use gpushare_top::view;

/// Width of what the help says of a verb, beside its name.
const WIDTH: u16 = 83;

/// The verbs, by who needs them.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Every day",
        &[
            "run", "ps", "pick", "advise", "events", "trace", "demo", "doctor", "help",
        ],
    ),
    (
        "Share and limit",
        &[
            "quota",
            "policy",
            "set",
            "group",
            "pause",
            "resume",
            "pin",
            "unpin",
            "boost",
            "kill",
            "tune",
            "undo",
            "audit",
            "apply",
            "export-config",
            "mps",
            "wrap",
            "unwrap",
            "experiment",
        ],
    ),
    ("Administrator", &["init", "serve", "metrics"]),
    (
        "Integrations",
        &["slurm", "cdi", "dra", "compat", "completions", "man"],
    ),
];

/// Verbs that change nothing. Only these are proposed for a mistyped word.
const HARMLESS: [&str; 8] = [
    "ps", "pick", "advise", "events", "audit", "doctor", "demo", "help",
];

/// Replaces the list of verbs in the help with one that is grouped.
pub fn group(command: Command) -> Command {
    let list = list(&command);
    command.help_template(format!(
        "{{about}}\n\nUsage: gpushare <COMMAND>\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
}

fn list(command: &Command) -> String {
    let about = |name: &str| {
        let verb = command.find_subcommand(name);
        let about = verb.and_then(Command::get_about).map(ToString::to_string);
        about.unwrap_or_else(|| {
            "Print the help of a verb, or a page of the guide: gpushare help guide".to_owned()
        })
    };
    let mut text = String::new();
    for (title, verbs) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for verb in verbs {
            let mut start = format!("  {verb:<15}");
            for line in view::wrapped(&about(verb), WIDTH) {
                text.push_str(&format!("{start}{line}\n"));
                start = " ".repeat(start.len());
            }
        }
        text.push('\n');
    }
    text
}

macro_rules! guide {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../assets/guide/", $name, ".md")))),*]
    };
}

/// The pages of the guide, in the order of its contents.
const GUIDE: &[(&str, &str)] = guide![
    "first-ten-minutes" "memory" "policies" "measured" "mps" "tracing" "alerts" "notebooks" "serving" "lab" "ci" "containers" "slurm"
    "monitoring" "security" "limits" "troubleshooting" "comparison" "how-it-works" "reference"
];

/// Returns the page that `gpushare help PAGE` or `gpushare help guide PAGE` asks for; `None` if the words ask for a verb.
pub fn page(words: &[OsString]) -> Option<Result<String, Failure>> {
    let words: Vec<&str> = words
        .iter()
        .skip(1)
        .map_while(|word| word.to_str())
        .collect();
    let found = |name: &str| {
        GUIDE
            .iter()
            .find(|(page, _)| *page == name)
            .map(|(_, text)| without_comments(text))
    };
    match words[..] {
        ["help", "guide"] => Some(Ok(contents())),
        ["help", "guide", name] => Some(found(name).ok_or_else(|| {
            Failure::usage(format!(
                "the guide has no page {name}; gpushare help guide lists them"
            ))
        })),
        ["help", name] if Cli::command().find_subcommand(name).is_none() => found(name).map(Ok),
        _ => None,
    }
}

/// Removes the comments of a page, which say how its tables are made.
fn without_comments(page: &str) -> String {
    let mut pieces = page.split("<!-- ");
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| {
        piece
            .split_once("-->\n")
            .map_or(piece, |(_, rest)| rest.trim_start())
    });
    std::iter::once(first).chain(rest).collect()
}

fn contents() -> String {
    let line = |(name, text): &(&str, &str)| {
        let title = text.lines().next().unwrap_or_default();
        format!(
            "gpushare help guide {name:<19}{}\n",
            title.trim_start_matches("# ")
        )
    };
    GUIDE.iter().map(line).collect()
}

/// Starts the dashboard for `gpushare top`, with the words that follow. Returns only if that fails.
pub fn dashboard(words: &[OsString]) -> Option<Failure> {
    if words.get(1).is_none_or(|word| word != "top") {
        return None;
    }
    let program = match artifacts::find("gpushare-top") {
        Ok(program) => program,
        Err(failure) => return Some(failure),
    };
    let error = std::process::Command::new(&program)
        .args(&words[2..])
        .exec();
    Some(Failure::failed(format!(
        "cannot start {}: {error}",
        program.display()
    )))
}

/// Completes clap's error: names the right command for frequent mistakes, and never proposes a verb that changes something.
pub fn correct(mut error: Error, words: &[OsString]) -> Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let words: Vec<&str> = words
        .iter()
        .skip(1)
        .filter_map(|word| word.to_str())
        .collect();
    let tip = match words[..] {
        ["list" | "ls" | "status" | "show", ..] => "gpushare ps shows the processes on the GPUs".to_owned(),
        ["stop", ..] => "gpushare pause TARGET keeps a process off the GPU; gpushare kill TARGET ends it".to_owned(),
        ["start" | "exec", ..] => "gpushare run -- PROGRAM starts a program".to_owned(),
        ["version", ..] => "gpushare --version".to_owned(),
        ["limit", ..] => "gpushare quota set TARGET SIZE changes a running process; gpushare run --memory SIZE -- PROGRAM starts one".to_owned(),
        [verb @ ("quota" | "policy"), target, _, ..] => format!("gpushare {verb} set {target} {}", words[2..].join(" ")),
        _ => {
            keep_harmless(&mut error);
            return error;
        }
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![tip.into()]),
    );
    error
}

/// Returns the message for an option that the verb does not have, with the one that was probably meant.
pub fn unknown_option(error: &Error, words: &[OsString]) -> Option<Failure> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::UnknownArgument || !option.starts_with("--") {
        return None;
    }
    let whole = crate::command();
    let (mut command, mut name) = (&whole, "gpushare".to_owned());
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(verb) = command.find_subcommand(word) else {
            break;
        };
        (command, name) = (verb, format!("{name} {word}"));
    }
    let known = command
        .get_arguments()
        .filter_map(|option| option.get_long());
    let meant = nearest(option.trim_start_matches('-'), known);
    let meant = meant.map_or_else(String::new, |near| format!("did you mean --{near}? "));
    Some(Failure::usage(format!(
        "{option} is not an option of {name}; {meant}{name} --help lists them"
    )))
}

/// Keeps the most similar verb, which is clap's last one, if a wrong guess does no harm.
fn keep_harmless(error: &mut Error) {
    let proposed = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(one)) => Some(one),
        Some(ContextValue::Strings(several)) => several.into_iter().last(),
        _ => None,
    };
    if let Some(verb) = proposed.filter(|verb| HARMLESS.contains(&verb.as_str())) {
        let kind = ContextKind::SuggestedSubcommand;
        error.insert(kind, ContextValue::String(verb));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_in_one_group() {
        let command = crate::command();
        let mut verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, verbs)| verbs.iter().copied())
            .collect();
        verbs.sort_unstable();
        grouped.sort_unstable();
        grouped.retain(|verb| *verb != "help" || verbs.contains(verb));
        assert_eq!(verbs, grouped);
    }

    #[test]
    fn each_page_of_the_guide_can_be_opened() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/guide");
        let mut pages: Vec<String> = std::fs::read_dir(folder)
            .expect("the guide")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
            .filter(|name| !["README", "SUMMARY"].contains(&name.as_str()))
            .collect();
        let mut known: Vec<&str> = GUIDE.iter().map(|(name, _)| *name).collect();
        pages.sort();
        known.sort_unstable();
        assert_eq!(pages, known);
    }
}
