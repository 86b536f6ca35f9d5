//! The settings file, `~/.config/gpushare/top.toml`. Options of the command line take precedence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use toml::Spanned;

use super::keys::{Action, KEYS, Keymap};
use super::palette::When;
use super::rules::{self, Rule, Wrong};
use super::theme::{self, Own, Theme};
use shm_layout::text::PathText as _;

use gpushare_base::text::files;
use gpushare_sample::columns;

/// The settings, each with an example, for the manual. A test compares it with [`Config`].
pub const SETTINGS: [(&str, &str, &str); 10] = [
    (
        "delay",
        "0.5",
        "seconds between two snapshots; without it 0.25, or up to 2 where they cost much",
    ),
    ("color", "\"auto\"", "auto, always or never"),
    (
        "background",
        "\"light\"",
        "dark or light, if the terminal does not report it",
    ),
    (
        "theme",
        "\"gruvbox\"",
        "the colours: default (the terminal's own), gruvbox, gruvbox-light, nord, dracula, solarized, solarized-light, catppuccin, catppuccin-latte, tokyo-night, colour-blind, high-contrast or mono",
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
    (
        "ring",
        "false",
        "do not record the last hour for --replay last; it takes 64 MiB at most",
    ),
];

/// The settings of the dashboard.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Seconds between two snapshots.
    pub delay: Option<f64>,
    /// `auto`, `always` or `never`.
    pub color: Option<Colour>,
    /// `dark` or `light`, for a terminal that does not set `COLORFGBG`.
    pub background: Option<Background>,
    /// The name of the theme.
    theme: Option<Spanned<String>>,
    /// Draw with ASCII only.
    pub ascii: bool,
    /// Disables all changes.
    pub read_only: bool,
    /// The column to sort by, with a `-` in front for smallest first.
    pub sort: Option<String>,
    /// The filter that selects processes.
    pub filter: Option<String>,
    /// The columns to show.
    pub fields: Option<String>,
    /// Records the last hour, unless false.
    pub ring: Option<bool>,
    /// Colours that replace those of the theme.
    pub colors: Own,
    /// Keys, by the name of their action.
    keys: BTreeMap<Spanned<String>, Spanned<Chosen>>,
    /// Rules as written in the file.
    alert: Vec<Spanned<rules::Written>>,
    /// The parsed rules.
    #[serde(skip)]
    pub rules: Vec<Rule>,
    /// The colours; `None` for the terminal's own.
    #[serde(skip)]
    pub colours: Option<Theme>,
    /// The keys chosen by the user.
    #[serde(skip)]
    pub keymap: Keymap,
}

/// A key, or several keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Chosen {
    One(String),
    Several(Vec<String>),
}

/// The background of the terminal.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// Nearly black.
    Dark,
    /// Nearly white.
    Light,
}

/// [`When`] as written in the file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    /// Colours if the terminal has them.
    Auto,
    /// Always.
    Always,
    /// Never.
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
    /// Reads the file named on the command line, which must exist, or the user's file, which need not.
    pub fn read(named: Option<&Path>) -> Result<Self> {
        let Some(path) = place(named) else {
            return Ok(Self::default());
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
        if let Some(theme) = &config.theme {
            config.colours = theme::find(theme.as_ref()).map_err(|why| (theme.span(), why))?;
        }
        if let (Some(theme), false) = (&config.theme, config.colors.is_empty())
            && config.colours.is_some_and(|theme| theme.mono)
        {
            let why = "mono has no colours, so what stands below [colors] would not be seen";
            return Err((theme.span(), why.to_owned()));
        }
        for (name, chosen) in &config.keys {
            let written = match chosen.as_ref() {
                Chosen::One(key) => std::slice::from_ref(key),
                Chosen::Several(keys) => keys,
            };
            for key in written {
                let choose = config.keymap.choose(name.as_ref(), key);
                choose.map_err(|why| (chosen.span(), why))?;
            }
        }
        let first = config.keys.values().next().map(Spanned::span);
        let clear = config.keymap.check();
        clear.map_err(|why| (first.unwrap_or_default(), why))?;
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

    /// Returns the columns to sort by, the first one first, each with whether the largest value comes first.
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

/// Returns the file to read: the named one, or the user's if it exists.
fn place(named: Option<&Path>) -> Option<PathBuf> {
    match named {
        Some(path) => Some(path.to_owned()),
        None => usual_place().filter(|path| path.exists()),
    }
}

/// Writes a settings file with every setting: those of the present file as they are, all others as comments.
pub fn print(named: Option<&Path>) -> Result<String> {
    Config::read(named)?;
    let path = place(named);
    let text = match &path {
        Some(path) => files::read_text(path)?,
        None => String::new(),
    };
    let mut set: toml::Table = toml::from_str(&text)?;
    let shown = path.or_else(usual_place).unwrap_or_default();
    let mut out = format!("# Settings of gpushare-top: {}\n", shown.shown());
    for (name, example, about) in SETTINGS {
        out += &match set.remove(name) {
            Some(value) => format!("\n# {about}\n{name} = {value}\n"),
            None => format!("\n# {about}\n# {name} = {example}\n"),
        };
    }
    out += "\n# Colours in the place of those of the theme, as \"#rrggbb\"\n[colors]\n";
    let mut colors = match set.remove("colors") {
        Some(toml::Value::Table(colors)) => colors,
        _ => toml::Table::new(),
    };
    for (name, example, about) in theme::OWN_SETTINGS {
        out += &match colors.remove(name) {
            Some(value) => format!("{name} = {value}  # {about}\n"),
            None => format!("# {name} = {example}  # {about}\n"),
        };
    }
    out +=
        "\n# The keys by what they do: quota = \"Q\", or several: quit = [\"q\", \"^x\"]\n[keys]\n";
    let mut keys = match set.remove("keys") {
        Some(toml::Value::Table(keys)) => keys,
        _ => toml::Table::new(),
    };
    let mut listed = Vec::new();
    for key in KEYS {
        let name = key.action.name();
        if listed.contains(&name) || matches!(key.action, Action::Digit(_)) {
            continue;
        }
        out += &match keys.remove(&name) {
            Some(value) => format!("\"{name}\" = {value}  # {}\n", key.about),
            None => {
                let usual: Vec<&str> = key.shown.split(' ').filter(|_| key.has_key()).collect();
                format!("# \"{name}\" = {usual:?}  # {}\n", key.about)
            }
        };
        listed.push(name);
    }
    out += "\n# Rules that act; each begins with its own line [[alert]]\n# [[alert]]\n";
    for (name, example, about) in rules::SETTINGS {
        out += &format!("# {name} = {example}  # {about}\n");
    }
    if !set.is_empty() {
        out += "\n";
        out += &toml::to_string(&set)?;
    }
    Ok(out)
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

    /// Returns the known names listed in the parser's message about an unknown name.
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
        let tables = ["colors", "keys", "alert"];
        assert_eq!(known("nonsense = 1\n"), [&names[..], &tables].concat());
        assert_eq!(
            known("[[alert]]\nnonsense = 1\n"),
            rules::SETTINGS.map(|(name, ..)| name)
        );
        let text = SETTINGS
            .map(|(name, example, _)| format!("{name} = {example}\n"))
            .concat();
        let about_themes = SETTINGS
            .iter()
            .find(|(name, ..)| *name == "theme")
            .unwrap()
            .2;
        for name in theme::names() {
            assert!(about_themes.contains(name), "{name}");
        }
        let rule = rules::SETTINGS.map(|(name, example, _)| format!("{name} = {example}\n"));
        let rule = rule
            .into_iter()
            .filter(|line| !line.starts_with("command"))
            .collect::<String>();
        Config::parse(&format!("{text}[[alert]]\n{rule}")).unwrap();
    }

    #[test]
    fn a_rule_that_is_printed_works_once_its_lines_are_no_comments() {
        let none = tempfile::NamedTempFile::new().unwrap();
        let printed = print(Some(none.path())).unwrap();
        let (_, rule) = printed.split_once("# [[alert]]").unwrap();
        let lines = rule.lines().filter_map(|line| line.strip_prefix("# "));
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with("shell")).collect();
        let config = read(&format!("[[alert]]\n{}", lines.join("\n"))).unwrap();
        assert_eq!(config.rules.len(), 1);
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
    fn printed_settings_mean_the_same_as_those_that_were_read() {
        let text = "delay = 0.5\ntheme = \"nord\"\n[colors]\nbad = \"#ff0000\"\n[keys]\nquit = [\"Q\", \"^x\"]\n[[alert]]\nname = \"r\"\nwhen = \"wait > 80%\"\nbell = true\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let printed = print(Some(file.path())).unwrap();
        let again = read(&printed).expect(&printed);
        assert_eq!(
            (again.delay, again.rules[0].name.as_str()),
            (Some(0.5), "r")
        );
        assert_eq!(again.colours.map(|theme| theme.name), Some("nord"));
        let once = read(text).unwrap();
        assert!(again.colors == once.colors && !again.colors.is_empty());
        for (name, ..) in SETTINGS {
            assert!(printed.contains(&format!("{name} = ")), "{name}");
        }
        assert!(printed.contains("\n# \"sort+1\" = [\"s\"]"), "{printed}");
        // Writing out every default key changes nothing.
        let (_, keys) = printed.split_once("[keys]\n").unwrap();
        let (keys, _) = keys.split_once("\n\n").unwrap();
        let keys: Vec<&str> = keys
            .lines()
            .map(|line| line.trim_start_matches("# "))
            .collect();
        assert!(keys.len() > 40, "{keys:?}");
        read(&format!(
            "[keys]\n{}\n",
            keys[1..]
                .join("\n")
                .replace("\"quit\" = [\"Q\", \"^x\"]", "")
        ))
        .unwrap();
        let usual = tempfile::NamedTempFile::new().unwrap();
        let printed = print(Some(usual.path())).unwrap();
        read(
            &printed
                .lines()
                .map(|line| {
                    line.strip_prefix("# ")
                        .filter(|l| l.starts_with("delay"))
                        .unwrap_or(line)
                })
                .collect::<Vec<_>>()
                .join("\n"),
        )
        .unwrap();
    }

    #[test]
    fn a_wrong_theme_or_key_is_said_with_its_line() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert!(error("\ntheme = \"monokai\"").contains("line 2: there is no theme \"monokai\""));
        assert!(error("[colors]\nbad = \"red\"").contains("line 2: \"red\" is no colour"));
        assert!(error("theme = \"mono\"\n[colors]\nbad = \"#ff0000\"").contains("line 1: mono"));
        assert!(error("[keys]\nfly = \"x\"").contains("line 2: there is no action \"fly\""));
        assert!(error("[keys]\nquit = \"e\"").contains("line 2: e means"));
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
