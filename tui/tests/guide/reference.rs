//! The reference page, generated from the tables.

use std::fmt::Write as _;

use gpushare_base::text::exit;
use gpushare_observe::findings;
use gpushare_sample::columns::COLUMNS;
use gpushare_top::config;
use gpushare_top::keys::KEYS;
use gpushare_top::rules;
use shm_layout::SETTINGS;
use shm_layout::policy::policy_words;
use shm_layout::variables::{self, Variable};

use crate::workspace;

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn table<'a>(
    text: &mut String,
    heading: &str,
    about: &str,
    columns: [&str; 3],
    rows: impl IntoIterator<Item = [&'a str; 3]>,
) {
    let [a, b, c] = columns;
    let _ = write!(
        text,
        "\n## {heading}\n\n{about}\n\n| {a} | {b} | {c} |\n|---|---|---|\n"
    );
    for [name, second, meaning] in rows {
        let code = |text: &str| match text {
            "" => String::new(),
            text => format!("`{}`", text.replace('|', "\\|")),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            code(name),
            code(second),
            cell(meaning)
        );
    }
}

fn reference() -> String {
    let mut text = String::from(
        "# Reference\n\nWritten from the program's own tables; the verbs and their options are in the \
         manual (`man gpushare-VERB`) and in `gpushare help VERB`, the keys of JSON at the end of each verb's manual page.\n",
    );
    let row = |v: &'static Variable| [v.name, v.example, v.meaning];
    let (others, ours): (Vec<_>, Vec<_>) = variables::TABLE
        .iter()
        .partition(|variable| variable.alias_of.is_some());
    table(
        &mut text,
        "Variables",
        "In the environment of a program, or of the tools.",
        ["variable", "for example", "meaning"],
        ours.into_iter().map(row),
    );
    table(
        &mut text,
        "Variables of other tools",
        "The library reads these too; a limit from one shows it as its source.",
        ["variable", "for example", "meaning"],
        others.into_iter().map(row),
    );
    table(
        &mut text,
        "Settings of a process",
        "`gpushare set TARGET WORD=VALUE`, a key of `gpushare apply`, and an option of `gpushare run` where it has a variable.",
        ["word", "values", "meaning"],
        SETTINGS
            .iter()
            .map(|about| [about.word, about.values, about.says]),
    );
    let words: Vec<(&str, String, &str)> = policy_words()
        .map(|(word, values, about)| {
            let range = values.and_then(|values| values.range());
            let range = range.map(|[least, most]| format!("{least}..{most}"));
            (word, range.unwrap_or_default(), about)
        })
        .collect();
    table(
        &mut text,
        "Policies",
        "The words of `gpushare policy set GPU|all …`.",
        ["word", "range", "meaning"],
        words
            .iter()
            .map(|(word, range, about)| [*word, range.as_str(), *about]),
    );
    table(
        &mut text,
        "Keys",
        "Of `gpushare-top`.",
        ["key", "in the footer", "what it does"],
        KEYS.iter().map(|key| [key.shown, key.label, key.about]),
    );
    table(
        &mut text,
        "Columns",
        "For `ps --columns` and `--filter`, and the header of CSV files.",
        ["key", "title", "what it shows"],
        COLUMNS
            .iter()
            .map(|column| [column.key, column.title, column.about]),
    );
    table(
        &mut text,
        "Alerts",
        "The dashboard shows the word, JSON the name.",
        ["name", "word", "what is wrong"],
        findings::alerts().map(|kind| [kind.id, kind.word, kind.about]),
    );
    let own = config::SETTINGS.iter().map(|(a, b, c)| [*a, *b, *c]);
    table(
        &mut text,
        "Settings",
        "In `~/.config/gpushare/top.toml`.",
        ["setting", "for example", "meaning"],
        own,
    );
    table(
        &mut text,
        "Rules that act",
        "In the same file, each under `[[alert]]`.",
        ["setting", "for example", "meaning"],
        rules::SETTINGS.iter().map(|(a, b, c)| [*a, *b, *c]),
    );
    let codes: Vec<(String, &str)> = exit::TABLE
        .iter()
        .map(|(_, code, meaning)| (code.to_string(), *meaning))
        .collect();
    table(
        &mut text,
        "Exit codes",
        "Of both programs; `gpushare run` becomes the program, so after a good start the code is the program's own.",
        ["code", "", "meaning"],
        codes
            .iter()
            .map(|(code, meaning)| [code.as_str(), "", *meaning]),
    );
    text
}

#[test]
fn the_reference_is_what_the_tables_say() {
    let path = workspace().join("assets/guide/reference.md");
    let ours = reference();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &ours).expect("written");
    }
    let theirs = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        ours == theirs,
        "assets/guide/reference.md is stale: BLESS=1 cargo test -p gpushare --test guide"
    );
}
