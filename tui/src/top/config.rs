//! The settings file, `~/.config/gpushare/top.toml`. What the command line says goes first.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::palette::When;
use shm_layout::text::PathText as _;

use crate::sample::columns;

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
        "the column to sort by, with - in front for smallest first",
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
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read the settings in {shown}"))?;
        toml::from_str(&text).with_context(|| format!("the settings in {shown} are not understood"))
    }

    /// The column to sort by and whether the largest comes first.
    pub fn order(&self) -> Result<Option<(usize, bool)>> {
        let Some(sort) = &self.sort else {
            return Ok(None);
        };
        let (key, descending) = sort
            .strip_prefix('-')
            .map_or((sort.as_str(), true), |key| (key, false));
        let at = columns::position(key)
            .with_context(|| format!("the settings sort by \"{key}\"; there is no such column"))?;
        Ok(Some((at, descending)))
    }
}

fn usual_place() -> Option<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    Some(home?.join("gpushare").join("top.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::read(Some(file.path()))
    }

    #[test]
    fn the_manual_has_every_setting_and_no_other() {
        let text = SETTINGS
            .map(|(name, example, _)| format!("{name} = {example}\n"))
            .concat();
        let config = read(&text).unwrap();
        let shown = format!("{config:?}");
        assert_eq!(shown.matches(": ").count(), SETTINGS.len(), "{shown}");
        assert!(
            !shown.contains("None") && !shown.contains("false"),
            "{shown}"
        );
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
            columns::position("used").map(|at| (at, false))
        );
        assert!(read("colour = \"never\"\n").is_err());
        assert!(read("sort = \"size\"\n").unwrap().order().is_err());
    }
}
