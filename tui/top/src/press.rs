//! Keys that are pressed in a screencast.

use std::str::FromStr;

use crossterm::event::{KeyEvent, KeyModifiers};

use super::keys;
use gpushare_base::text::units::parse_duration;

/// A key that is pressed in an animation.
#[derive(Clone, Debug)]
pub struct Press {
    /// Time after the first sample, in milliseconds.
    pub at_ms: u64,
    /// The key itself.
    pub key: KeyEvent,
    /// The key as a person writes it, and what it does.
    pub shown: String,
}

impl FromStr for Press {
    type Err = String;

    /// Reads `4s=x`, `7s=Enter`, or with words for the viewer `4s=x:why is it slow`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (at, key) = text.split_once('=').ok_or("write TIME=KEY, such as 4s=x")?;
        let (name, about) = key.split_once(':').unwrap_or((key, ""));
        let (code, control) = keys::chord(name).ok_or_else(|| format!("{name:?} is no key"))?;
        let modifiers = match control {
            true => KeyModifiers::CONTROL,
            false => KeyModifiers::NONE,
        };
        Ok(Self {
            at_ms: parse_duration(at).map_err(|error| error.to_string())? / 1_000_000,
            key: KeyEvent::new(code, modifiers),
            shown: format!(" {name}  {about}").trim_end().to_owned() + " ",
        })
    }
}
