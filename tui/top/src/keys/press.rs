//! Keys that are pressed in a screencast, and words that it shows.

use std::str::FromStr;

use crossterm::event::{KeyEvent, KeyModifiers};

use gpushare_base::text::units::parse_duration;

/// A key that is pressed in an animation, or words for the viewer.
#[derive(Clone, Debug)]
pub struct Press {
    /// Time after the first sample, in milliseconds.
    pub at_ms: u64,
    /// The key itself; `None` for words alone.
    pub key: Option<KeyEvent>,
    /// The key as a person writes it, and what it does, or the words.
    pub shown: String,
}

impl FromStr for Press {
    type Err = String;

    /// Reads `4s=x`, `7s=Enter`, with words for the viewer `4s=x:why is it slow`, or words alone `9s=:it runs`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (at, key) = text.split_once('=').ok_or("write TIME=KEY, such as 4s=x")?;
        let (name, about) = key.split_once(':').unwrap_or((key, ""));
        let key = match (name, about) {
            ("", words) if !words.is_empty() => None,
            _ => Some(event(name).ok_or_else(|| format!("{name:?} is no key"))?),
        };
        Ok(Self {
            at_ms: parse_duration(at).map_err(|error| error.to_string())? / 1_000_000,
            key,
            shown: format!(" {} ", format!("{name}  {about}").trim()),
        })
    }
}

fn event(name: &str) -> Option<KeyEvent> {
    let (code, control) = super::chord(name)?;
    let modifiers = match control {
        true => KeyModifiers::CONTROL,
        false => KeyModifiers::NONE,
    };
    Some(KeyEvent::new(code, modifiers))
}
