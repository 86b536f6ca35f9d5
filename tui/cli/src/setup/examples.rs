//! An example for each verb, shown at the end of its help and in its manual page.

use clap::Command;

/// The verb, and a command line for a shell.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &str)] = &[
    ("", "gpushare run --memory 8GiB -- python train.py"),
    ("run", "gpushare run --memory 8GiB --name train -- python train.py"),
    ("ps", "gpushare ps --json"),
    ("quota", "gpushare quota set name:train 8GiB"),
    ("quota set", "gpushare quota set name:train 8GiB --for 10m"),
    ("quota show", "gpushare quota show name:train"),
    ("policy", "gpushare policy set all overlap order=priority"),
    ("policy set", "gpushare policy set all timeslice=5ms order=fair --for 10m"),
    ("policy show", "gpushare policy show --json"),
    ("group", "gpushare group create team-a memory=16GiB"),
    ("group create", "gpushare group create team-a memory=16GiB weight=200"),
    ("group set", "gpushare group set team-a cap=50%"),
    ("group rm", "gpushare group rm team-a"),
    ("group show", "gpushare group show team-a"),
    ("set", "gpushare set name:train weight=200 priority=5 cap=30%"),
    ("pause", "gpushare pause name:notebook --evict"),
    ("resume", "gpushare resume name:train"),
    ("pin", "gpushare pin name:llama --for 1h"),
    ("unpin", "gpushare unpin name:llama"),
    ("boost", "gpushare boost name:train --for 30s"),
    ("kill", "gpushare kill name:notebook --reason unused"),
    ("tune", "gpushare tune --aim p99:name:serve --dry-run"),
    ("undo", "gpushare undo --last 2"),
    ("audit", "gpushare audit -n 50"),
    ("events", "gpushare events --follow --json"),
    ("trace", "gpushare trace start name:train --for 30s"),
    ("trace start", "gpushare trace start name:train --for 30s"),
    ("trace stop", "gpushare trace stop name:train"),
    ("trace show", "gpushare trace show --json"),
    ("trace export", "gpushare trace export all -o trace.json"),
    ("trace stats", "gpushare trace stats name:train"),
    ("trace rm", "gpushare trace rm all"),
    ("pick", "gpushare pick --memory 8GiB --explain"),
    ("mps", "gpushare mps start"),
    ("mps start", "gpushare mps start"),
    ("mps stop", "gpushare mps stop --force"),
    ("mps status", "gpushare mps status --json"),
    ("wrap", "gpushare wrap /opt/app/bin/serve --memory 8GiB --name serve"),
    ("unwrap", "gpushare unwrap /opt/app/bin/serve"),
    ("apply", "gpushare apply limits.toml --dry-run"),
    ("metrics", "gpushare metrics --listen 127.0.0.1:9837"),
    ("export-config", "gpushare export-config"),
    ("doctor", "gpushare doctor -- python train.py"),
    ("advise", "gpushare advise --apply --for 10m"),
    ("demo", "gpushare demo --seconds 60"),
    ("experiment", "gpushare experiment priority --csv priority.csv"),
    ("serve", "gpushare serve --group gpu-users --admin-group wheel"),
    ("cdi", "gpushare cdi generate -o /etc/cdi/gpushare.json"),
    ("cdi generate", "gpushare cdi generate -o /etc/cdi/gpushare.json"),
    ("slurm", "gpushare slurm install --shards 8"),
    ("slurm install", "gpushare slurm install --shards 8 --write /etc/slurm"),
    ("slurm check", "gpushare slurm check"),
    ("slurm task-prolog", "gpushare slurm task-prolog --shard 1/8"),
    ("slurm epilog", "gpushare slurm epilog"),
    ("dra", "gpushare dra --node gpu01 --mode limits"),
    ("compat", "gpushare compat /usr/local/bin"),
    ("init", "gpushare init --group gpu-users"),
    ("completions", "gpushare completions bash"),
    ("man", "gpushare man --dir man1"),
];

/// Adds an example to the command and to each verb below it, before the present end of the help.
pub fn add(command: Command) -> Command {
    below(command, "")
}

fn below(mut command: Command, path: &str) -> Command {
    if let Some((_, example)) = EXAMPLES.iter().find(|(verb, _)| *verb == path) {
        let rest = command.get_after_help().map(ToString::to_string);
        let rest = rest.map_or_else(String::new, |rest| format!("\n{rest}"));
        command = command.after_help(format!("Example: {example}{rest}"));
    }
    let names: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(&name, |verb| below(verb, path.trim_start()));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate as cli;
    use clap::{CommandFactory, Parser};
    use gpushare_top::options::Options;

    fn walk(command: &Command, path: &str, verbs: &mut Vec<String>) {
        verbs.push(path.to_owned());
        let help = command.clone().render_help().to_string();
        assert!(help.contains("Example: gpushare"), "{path:?}: {help}");
        for verb in command.get_subcommands() {
            let path = format!("{path} {}", verb.get_name());
            walk(verb, path.trim_start(), verbs);
        }
    }

    #[test]
    fn the_help_of_every_verb_has_an_example() {
        let mut verbs = Vec::new();
        walk(&cli::command(), "", &mut verbs);
        assert!(verbs.len() > 30, "{verbs:?}");
        for (verb, _) in EXAMPLES {
            assert!(verbs.iter().any(|known| known == verb), "{verb} is no verb");
        }
    }

    #[test]
    fn every_example_is_a_command_line_of_its_verb() {
        for (verb, example) in EXAMPLES {
            assert!(
                example.starts_with(&format!("gpushare {verb}")),
                "{example}"
            );
            let words = example.split_whitespace();
            let read = cli::Cli::try_parse_from(words);
            assert!(read.is_ok(), "{example}: {:?}", read.err());
        }
    }

    #[test]
    fn the_dashboards_help_has_an_example_too() {
        let help = Options::command().render_help().to_string();
        let mut lines = help.lines();
        let example = lines.find_map(|line| line.trim().strip_prefix("Example: "));
        let example = example.expect("an example");
        let read = Options::try_parse_from(example.split_whitespace());
        assert!(read.is_ok(), "{example}: {:?}", read.err());
    }
}
