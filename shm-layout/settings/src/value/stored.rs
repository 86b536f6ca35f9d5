//! Values as files have them: in the words that a person would type.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{
    Boost, OnFull, QuotaValue, Reserve, Set, SlotId, Source, Until, Uuid, format_uuid, parse_uuid,
};
use crate::grammar::INHERIT;

/// Behind a value that ends by itself: when, on the segments' clock.
const UNTIL: &str = " until ";
/// Behind that: what follows, where it is not the lasting value.
const THEN: &str = " then ";

fn read_word<E: Error, T>(word: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, E> {
    read(word).ok_or_else(|| E::custom(format_args!("{word:?} is not valid here")))
}

/// Reads a value from a word; an error names the word.
fn read<'de, D: Deserializer<'de>, T>(
    source: D,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    read_word(&String::deserialize(source)?, read)
}

/// The text of an edit of a setting, as `200` or `200 until 7 then inherit`; an edit that leaves the setting is left out.
pub mod set {
    use super::*;

    pub fn serialize<T: Display, S: Serializer>(set: &Set<T>, to: S) -> Result<S::Ok, S::Error> {
        match set {
            Set::Keep => to.serialize_none(),
            Set::Inherit => to.serialize_str(INHERIT),
            Set::To(value) => to.collect_str(value),
            Set::For(value, until) => {
                let mut words = format!("{}{UNTIL}{}", or_inherit(value), until.ns);
                if let Some(then) = &until.then {
                    words += &format!("{THEN}{}", or_inherit(then));
                }
                to.serialize_str(&words)
            }
        }
    }

    fn or_inherit<T: Display>(value: &Option<T>) -> String {
        value
            .as_ref()
            .map_or_else(|| INHERIT.to_owned(), ToString::to_string)
    }

    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(
        source: D,
    ) -> Result<Set<T>, D::Error> {
        let Some(word) = Option::<String>::deserialize(source)? else {
            return Ok(Set::Keep);
        };
        read_word(&word, read_set)
    }

    fn read_set<T: FromStr>(word: &str) -> Option<Set<T>> {
        if word == INHERIT {
            return Some(Set::Inherit);
        }
        if let Ok(value) = word.parse() {
            return Some(Set::To(value));
        }
        let (value, end) = word.split_once(UNTIL)?;
        let (ns, then) = match end.split_once(THEN) {
            Some((ns, then)) => (ns, Some(value_of(then)?)),
            None => (end, None),
        };
        let ns = ns.parse().ok()?;
        Some(Set::For(value_of(value)?, Until { ns, then }))
    }

    fn value_of<T: FromStr>(word: &str) -> Option<Option<T>> {
        match word {
            INHERIT => Some(None),
            word => Some(Some(word.parse().ok()?)),
        }
    }
}

/// A value that may be left out.
pub mod word {
    use super::*;

    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            None => to.serialize_none(),
            Some(value) => to.collect_str(value),
        }
    }

    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(
        source: D,
    ) -> Result<Option<T>, D::Error> {
        let word = Option::<String>::deserialize(source)?;
        let read = |word: String| read_word(&word, |word| word.parse().ok());
        word.map(read).transpose()
    }
}

/// A value, or `inherit`.
pub mod or_inherit {
    use super::*;

    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            None => to.serialize_str(INHERIT),
            Some(value) => to.collect_str(value),
        }
    }

    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(
        source: D,
    ) -> Result<Option<T>, D::Error> {
        read(source, |word| match word {
            INHERIT => Some(None),
            value => value.parse().ok().map(Some),
        })
    }
}

/// The end of a value as `"until_ns": 7, "then": "inherit"`; nothing without one.
pub mod ends {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(bound(serialize = "T: Display", deserialize = "T: FromStr"))]
    struct Then<T>(#[serde(with = "or_inherit")] Option<T>);

    #[derive(Serialize, Deserialize)]
    #[serde(bound(serialize = "T: Display", deserialize = "T: FromStr"))]
    struct Words<T> {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ns: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Then<T>>,
    }

    pub fn serialize<T: Display + Copy, S: Serializer>(
        until: &Option<Until<Option<T>>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let words = Words {
            until_ns: until.map(|until| until.ns),
            then: until.and_then(|until| until.then).map(Then),
        };
        words.serialize(to)
    }

    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(
        source: D,
    ) -> Result<Option<Until<Option<T>>>, D::Error> {
        let Words { until_ns, then } = Words::deserialize(source)?;
        let then = then.map(|Then(value)| value);
        Ok(until_ns.map(|ns| Until { ns, then }))
    }
}

/// A slot as `"slot": 3, "epoch": 9`.
pub mod slot {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Words {
        slot: u16,
        epoch: u32,
    }

    pub fn serialize<S: Serializer>(slot: &SlotId, to: S) -> Result<S::Ok, S::Error> {
        let words = Words {
            slot: slot.index,
            epoch: slot.epoch,
        };
        words.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<SlotId, D::Error> {
        let Words { slot, epoch } = Words::deserialize(source)?;
        Ok(SlotId { index: slot, epoch })
    }
}

/// A quota's end as `"until_ns": 7, "then": "8GiB"`; without one, `"until_ns": null`.
pub mod until {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Words {
        until_ns: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<QuotaValue>,
    }

    pub fn serialize<S: Serializer>(
        until: &Option<Until<QuotaValue>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let words = Words {
            until_ns: until.map(|until| until.ns),
            then: until.and_then(|until| until.then),
        };
        words.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        source: D,
    ) -> Result<Option<Until<QuotaValue>>, D::Error> {
        let Words { until_ns, then } = Words::deserialize(source)?;
        Ok(until_ns.map(|ns| Until { ns, then }))
    }
}

/// A device's UUID.
pub mod uuid {
    use super::*;

    /// Writes a UUID as the driver's text.
    pub fn serialize<S: Serializer>(uuid: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format_uuid(*uuid, false))
    }

    /// Reads one.
    pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Uuid, D::Error> {
        read(source, parse_uuid)
    }
}

/// A device's UUID; `null` for all.
pub mod uuid_or_all {
    use super::*;

    pub fn serialize<S: Serializer>(uuid: &Option<Uuid>, to: S) -> Result<S::Ok, S::Error> {
        uuid.map(|uuid| format_uuid(uuid, false)).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Uuid>, D::Error> {
        let word = Option::<String>::deserialize(source)?;
        word.map(|word| read_word(&word, parse_uuid)).transpose()
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        read(source, |word| Some(Source::of_word(word)))
    }
}

impl Serialize for OnFull {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OnFull {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        read(source, |word| word.parse().ok())
    }
}

impl Serialize for Reserve {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reserve {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        read(source, |word| word.parse().ok())
    }
}

impl Serialize for QuotaValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QuotaValue {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        read(source, |word| word.parse().ok())
    }
}

impl Display for Boost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{UNTIL}{}", self.priority, self.until_ns)
    }
}

impl FromStr for Boost {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (priority, until) = text.split_once(UNTIL).ok_or(())?;
        Ok(Boost {
            priority: priority.parse().map_err(drop)?,
            until_ns: until.parse().map_err(drop)?,
        })
    }
}
