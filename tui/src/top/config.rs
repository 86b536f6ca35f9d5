//! The settings file, `~/.config/gpushare/top.toml`. What the command line says goes first.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use toml::Spanned;

use super::palette::When;
use super::rules::{self, Rule, Wrong};
use shm_layout::text::PathText as _;

use crate::sample::columns;
use crate::text::files;

/// The settings, each with an example, for the manual. A test holds it against [`Config`].
pub const SETTINGS: [(&str, &str, &str); 8] = [
    ("delay", "0.5", "seconds between two snapshots"),
    ("color", "\"auto\"", "auto, always or never"),
    (
        "background",
        "\"light\"",
        "dark or light, if the terminal does not report it",
    ),
    ("ascii", "true", "draw with ASCII only"),
    ("read_only", "true", "no key changes anything"),
    (
        "sort",
        "\"-used\"",
        "the column to sort by, with - in front for smallest first; a second one after a comma decides between equal rows",
    ),
    ("filter", "\"user=alice\"", "which processes to show"),
    ("fields", "\"pid,name,used,wait\"", "which columns to show"),
];

/// What may be set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Seconds between two snapshots.
    pub delay: Option<f64>,
    /// `auto`, `always` or `never`.
    pub color: Option<Colour>,
    /// `dark` or `light`, where the terminal does not say it (`COLORFGBG`).
    pub background: Option<Background>,
    /// Draw with ASCII only.
    pub ascii: bool,
    /// Change nothing.
    pub read_only: bool,
    /// The column to sort by, with a `-` in front for smallest first.
    pub sort: Option<String>,
    /// Which processes to show.
    pub filter: Option<String>,
    /// Which columns to show.
    pub fields: Option<String>,
    /// Rules as they are written.
    alert: Vec<Spanned<rules::Written>>,
    /// Rules that act.
    #[serde(skip)]
    pub rules: Vec<Rule>,
}

/// What the terminal writes on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// Nearly black.
    Dark,
    /// Nearly white.
    Light,
}

/// [`When`] as it is written in the file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    /// If the terminal has them.
    Auto,
    /// Whatever the terminal says.
    Always,
    /// Not at all.
    Never,
}

impl From<Colour> for When {
    fn from(colour: Colour) -> Self {
        match colour {
            Colour::Auto => When::Auto,
            Colour::Always => When::Always,
            Colour::Never => When::Never,
        }
    }
}

impl Config {
    /// Reads the file named on the command line, which must exist, or the user's, which need not.
    pub fn read(named: Option<&Path>) -> Result<Self> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => match usual_place().filter(|path| path.exists()) {
                Some(path) => path,
                None => return Ok(Self::default()),
            },
        };
        let shown = path.shown();
        let text = files::read_text(&path)
            .with_context(|| format!("cannot read the settings in {shown}"))?;
        Self::parse(&text).map_err(|(at, why)| {
            let line = text[..at.start.min(text.len())].matches('\n').count() + 1;
            anyhow!("the settings in {shown}, line {line}: {why}")
        })
    }

    fn parse(text: &str) -> Result<Self, Wrong> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().unwrap_or_default();
            (at, error.message().to_owned())
        })?;
        for (number, rule) in (1..).zip(&config.alert) {
            let rule = Rule::read(rule.as_ref(), number, rule.span())?;
            if config
                .rules
                .iter()
                .any(|other: &Rule| other.name == rule.name)
            {
                let why = format!("two rules are called \"{}\"", rule.name);
                return Err((config.alert[number - 1].span(), why));
            }
            config.rules.push(rule);
        }
        Ok(config)
    }

    /// The columns to sort by, the first one first, and whether the largest comes first.
    pub fn order(&self) -> Result<Vec<(usize, bool)>> {
        let keys = self.sort.as_deref().unwrap_or_default().split(',');
        let keys = keys.map(str::trim).filter(|key| !key.is_empty());
        keys.map(|sort| {
            let (key, descending) = sort
                .strip_prefix('-')
                .map_or((sort, true), |key| (key, false));
            let at = columns::position(key).with_context(|| {
                format!("the settings sort by \"{key}\"; there is no such column")
            })?;
            Ok((at, descending))
        })
        .collect()
    }
}

fn usual_place() -> Option<PathBuf> {
    Some(files::config_home()?.join("gpushare").join("top.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::read(Some(file.path()))
    }

    /// What the reader says it knows, when it meets what it does not.
    fn known(text: &str) -> Vec<String> {
        let (_, why) = Config::parse(text).unwrap_err();
        let (_, listed) = why.split_once("expected one of ").expect(&why);
        listed
            .split(", ")
            .map(|name| name.trim_matches('`').to_owned())
            .collect()
    }

    #[test]
    fn the_manual_has_every_setting_and_no_other() {
        let names = SETTINGS.map(|(name, ..)| name);
        let tables = ["alert"];
        assert_eq!(known("nonsense = 1\n"), [&names[..], &tables].concat());
        assert_eq!(
            known("[[alert]]\nnonsense = 1\n"),
            rules::SETTINGS.map(|(name, ..)| name)
        );
        let text = SETTINGS
            .map(|(name, example, _)| format!("{name} = {example}\n"))
            .concat();
        let rule = rules::SETTINGS.map(|(name, example, _)| format!("{name} = {example}\n"));
        let rule = rule
            .into_iter()
            .filter(|line| !line.starts_with("command"))
            .collect::<String>();
        Config::parse(&format!("{text}[[alert]]\n{rule}")).unwrap();
    }

    #[test]
    fn what_is_wrong_in_a_rule_is_said_with_its_file_and_line() {
        let wrong = |rule: &str, wanted: &str| {
            let error =
                read(&format!("delay = 1\n\n[[alert]]\nbell = true\n{rule}\n")).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(wanted), "{error}");
            assert!(error.contains("/tmp/"), "{error}");
        };
        wrong(
            "when = \"waits > 10%\"",
            "line 5: there is no column \"waits\"",
        );
        wrong("when = \"wait > ten\"", "line 5: \"ten\" is not a number");
        wrong(
            "\nalert = \"starved\"",
            "line 6: there is no alert \"starved\"; there are violation",
        );
        wrong("", "line 3: rule 1 says neither when nor alert");
        wrong("when = \"wait>1%\"\nfor = \"soon\"", "line 6: ");
        wrong(
            "when = \"wait>1%\"\ncommand = []",
            "line 6: the command is empty",
        );
        wrong(
            "when = \"wait>1%\"\nremedy = \"boost 5\"",
            "line 6: a remedy must end by itself",
        );
        wrong(
            "when = \"wait>1%\"\nexpires = \"1h\"\nremedy = \"boost 50\"",
            "line 7: ",
        );
        wrong(
            "when = \"wait>1%\"\nexpires = \"1h\"\nremedy = \"policy timslice=1\"",
            "line 7: ",
        );
        wrong(
            "when = \"wait>1%\"\nexpires = \"1h\"\nremedy = \"kill\"",
            "line 7: a remedy is",
        );
        wrong("whn = \"wait>1%\"", "line 5: unknown field `whn`");
        wrong("bell = 1", "line 5: ");
    }

    #[test]
    fn settings_are_read_and_a_wrong_name_is_refused() {
        let config =
            read("delay = 0.5\ncolor = \"never\"\nbackground = \"light\"\nsort = \"-used\"\n")
                .unwrap();
        assert_eq!(config.delay, Some(0.5));
        assert_eq!(config.background, Some(Background::Light));
        assert_eq!(
            config.order().unwrap(),
            [(columns::position("used").unwrap(), false)]
        );
        assert!(read("colour = \"never\"\n").is_err());
        assert!(read("sort = \"size\"\n").unwrap().order().is_err());
    }
}
