//! `gpushare completions` and `gpushare man`: files for a package, made by the program itself.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{complete, doctor};
use crate::Done;
use crate::change::{group, policy, quota, tune};
use crate::start::{mps, pick};
use crate::watch::{advise, audit, events, ps, trace};
use gpushare_base::host::output;
use gpushare_base::text::exit::{self, Exit, Failure};
use gpushare_launch::demo::report as demo;
use gpushare_launch::experiment::document as experiment;
use gpushare_observe::document::Document;
use gpushare_observe::findings;
use gpushare_sample::columns::COLUMNS;
use gpushare_sample::keys::{self, Key};
use gpushare_top::config::SETTINGS;
use gpushare_top::keys::KEYS;
use gpushare_top::options::Options;
use gpushare_top::rules;
use gpushare_top::theme::OWN_SETTINGS;
use shm_layout::text::PathText as _;
use shm_layout::variables::{self, Variable};

/// Write shell completions to standard output
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// For which shell
    shell: Shell,
    /// For which program
    #[arg(value_parser = [CONTROL, TOP], default_value = CONTROL)]
    program: String,
}

/// Write the manual page, or with --dir one page for each verb
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write gpushare.1, gpushare-run.1, … into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const CONTROL: &str = "gpushare";
const TOP: &str = "gpushare-top";

pub fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Done {
    if args.program == CONTROL && complete::script(args.shell, out)? {
        return Ok(Exit::Done);
    }
    let mut script = Vec::new();
    let mut command = if args.program == TOP {
        Options::command()
    } else {
        crate::command()
    };
    clap_complete::generate(args.shell, &mut command, &args.program, &mut script);
    out.write_all(&script)?;
    Ok(Exit::Done)
}

pub fn man(args: &ManArgs, date: &str, out: &mut dyn Write) -> Done {
    let pages = pages(date)?;
    let Some(dir) = &args.dir else {
        if let Some((_, page)) = pages.first() {
            out.write_all(page.as_bytes())?;
        }
        return Ok(Exit::Done);
    };
    fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    for (name, page) in pages {
        let path = dir.join(name);
        output::whole_file(&path, |out| Ok(out.write_all(page.as_bytes())?))?;
    }
    writeln!(out, "{}: written", dir.shown())?;
    Ok(Exit::Done)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!(
        "cannot write the manual to {}: {error}",
        path.shown()
    ))
}

/// Returns every page with its file name, the main page first and the dashboard's last.
fn pages(date: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut command = crate::command().version(env!("CARGO_PKG_VERSION"));
    command.build();
    let mut pages = vec![("gpushare.1".to_owned(), main_page(&command, date)?)];
    add_verbs(&command, "gpushare", date, &mut pages)?;
    pages.push(("gpushare-top.1".to_owned(), top_page(date)?));
    Ok(pages)
}

/// A verb's page, and the function that returns the keys of its document.
type Written = (&'static str, fn() -> Vec<Key>);

/// The documents that `--json` writes, by the pages of their verbs.
const DOCUMENTS: [Written; 15] = [
    ("gpushare-ps", keys::of::<ps::Document<'_>>),
    ("gpushare-quota-show", keys::of::<quota::Document<'_>>),
    ("gpushare-policy-show", keys::of::<policy::Document<'_>>),
    ("gpushare-group-show", keys::of::<group::Document<'_>>),
    ("gpushare-tune", keys::of::<tune::Document<'_>>),
    ("gpushare-audit", keys::of::<audit::Document<'_>>),
    ("gpushare-events", keys::of::<events::Document>),
    ("gpushare-trace-show", keys::of::<trace::Traces>),
    ("gpushare-trace-stats", keys::of::<trace::Stats>),
    ("gpushare-pick", keys::of::<pick::Document<'_>>),
    ("gpushare-mps-status", keys::of::<mps::Document>),
    ("gpushare-doctor", keys::of::<doctor::Document<'_>>),
    ("gpushare-advise", keys::of::<advise::Document<'_>>),
    ("gpushare-demo", keys::of::<demo::Report>),
    ("gpushare-experiment", keys::of::<experiment::Document<'_>>),
];

/// Adds a page for each verb of a command, and for the verbs below it.
fn add_verbs(
    command: &Command,
    name: &str,
    date: &str,
    pages: &mut Vec<(String, String)>,
) -> Result<(), Failure> {
    for verb in command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        let name = format!("{name}-{}", verb.get_name());
        let mut text = page(verb.clone(), date)?;
        if let Some((_, keys)) = DOCUMENTS.iter().find(|(page, _)| *page == name) {
            text.push_str(&json("What --json writes.", &keys()));
        }
        pages.push((format!("{name}.1"), text));
        add_verbs(verb, &name, date, pages)?;
    }
    Ok(())
}

/// Renders a page with the date of the program's commit, so that the same program always writes the same page.
fn page(command: Command, date: &str) -> Result<String, Failure> {
    let mut page = Vec::new();
    Man::new(command)
        .date(date)
        .source(concat!("gpushare ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)?;
    Ok(tidy(&String::from_utf8_lossy(&page)))
}

fn main_page(command: &Command, date: &str) -> Result<String, Failure> {
    let mut text = page(command.clone(), date)?;
    text.push_str(".SH ENVIRONMENT\n");
    let (aliases, ours): (Vec<&Variable>, Vec<&Variable>) = variables::TABLE
        .iter()
        .partition(|variable| variable.alias_of.is_some());
    let entry = |variable: &Variable| {
        format!(
            ".TP\n\\fB{}\\fR=\\fI{}\\fR\n{}",
            escape(variable.name),
            escape(variable.example),
            escape(variable.meaning)
        )
    };
    for variable in ours {
        text.push_str(&format!("{}\n", entry(variable)));
    }
    text.push_str(".SS Variables of other tools\nThe preloaded library also reads these; a limit from one shows it as its source.\n");
    for alias in aliases {
        let of = alias.alias_of.unwrap_or_default();
        text.push_str(&format!("{} In place of {of}.\n", entry(alias)));
    }
    text.push_str(&exit_status());
    Ok(text)
}

fn top_page(date: &str) -> Result<String, Failure> {
    let mut text = page(Options::command().version(env!("CARGO_PKG_VERSION")), date)?;
    text.push_str(".SH KEYS\n");
    for key in KEYS {
        text.push_str(&format!(
            ".TP\n\\fB{}\\fR\n{}\n",
            escape(key.shown),
            escape(key.about)
        ));
    }
    text.push_str(".SH COLUMNS\nNames of the columns in sort orders, filters and CSV.\n");
    for column in COLUMNS {
        text.push_str(&format!(
            ".TP\n\\fB{}\\fR\n{}\n",
            escape(column.key),
            escape(column.about)
        ));
    }
    let mut keys = keys::of::<Document<'_>>();
    keys.retain(|key| !key.path.starts_with("processes[]"));
    let about = "What --once --format json writes; gpushare-ps(1) has the keys of processes.";
    text.push_str(&json(about, &keys));
    text.push_str(".SH ALERTS\nThe screen shows the word, JSON the name in parentheses.\n");
    for kind in findings::alerts() {
        text.push_str(&format!(
            ".TP\n\\fB{}\\fR ({})\n{}\n",
            escape(kind.word),
            escape(kind.id),
            escape(kind.about)
        ));
    }
    text.push_str(
        ".SH SETTINGS\nIn ~/.config/gpushare/top.toml, one per line. The command line takes precedence.\n",
    );
    text.push_str(&settings(&SETTINGS));
    text.push_str(
        ".SS Own colours\nBelow [colors], in the place of those of the theme. A terminal of sixteen colours keeps its own.\n",
    );
    text.push_str(&settings(&OWN_SETTINGS));
    text.push_str(
        ".SS Rules that act\nEach begins with [[alert]]. The screen shows a rule that holds as an alert (RULE); -b acts on it too, without bells and notifications. Recordings and --once make no rule act. Edits and programs are written to the audit log; u in the dashboard and gpushare undo take a rule's edit back, and then the rule makes no more of them.\n",
    );
    text.push_str(&settings(&rules::SETTINGS));
    text.push_str(&exit_status());
    Ok(text)
}

fn settings(table: &[(&str, &str, &str)]) -> String {
    let entry = |(name, example, about): &(&str, &str, &str)| {
        format!(
            ".TP\n\\fB{}\\fR = {}\n{}\n",
            escape(name),
            escape(example),
            escape(about)
        )
    };
    table.iter().map(entry).collect()
}

/// Returns the section about the keys of a document.
fn json(about: &str, keys: &[Key]) -> String {
    let mut text = format!(
        ".SH JSON\n{} A number's unit is the end of its key; an unknown value is null.\n",
        escape(about)
    );
    for key in keys {
        let unit = key
            .unit()
            .map_or(String::new(), |unit| format!(" ({unit})"));
        text.push_str(&format!(
            ".TP\n\\fB{}\\fR{unit}\n{}\n",
            escape(&key.path),
            escape(key.meaning)
        ));
    }
    text
}

fn exit_status() -> String {
    let mut text = String::from(".SH EXIT STATUS\n");
    for (_, code, meaning) in exit::TABLE {
        text.push_str(&format!(".TP\n{code}\n{}\n", escape(meaning)));
    }
    text
}

/// Removes what mandoc warns of: spaces at the ends of lines, and line breaks beside an empty line.
fn tidy(page: &str) -> String {
    let lines: Vec<&str> = page.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n")).replace("\n.br\n\n.br\n", "\n.sp\n")
}

/// Escapes a text so that roff prints it literally.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the pages of the verbs that take `--json`.
    fn writers(command: &Command, name: &str, pages: &mut Vec<String>) {
        for verb in command.get_subcommands() {
            let name = format!("{name}-{}", verb.get_name());
            if verb.get_arguments().any(|arg| arg.get_id() == "json") {
                pages.push(name.clone());
            }
            writers(verb, &name, pages);
        }
    }

    #[test]
    fn the_manual_of_every_verb_that_writes_json_lists_the_keys() {
        let mut pages = Vec::new();
        writers(&crate::command(), CONTROL, &mut pages);
        let mut listed = DOCUMENTS.map(|(page, _)| page);
        pages.sort();
        listed.sort_unstable();
        assert_eq!(pages, listed);
    }
}
