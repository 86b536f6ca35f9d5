//! A row of the settings table: how the values of one setting are read, shown, checked, and kept in records.

use crate::grammar::TextError;

/// One setting.
#[derive(Debug)]
pub struct Row<T: 'static> {
    /// Names and explains it.
    pub about: About,
    /// Reads, shows and checks its values.
    pub grammar: Grammar<T>,
    /// Position in a process's record; `None` if no edit of a process sets it.
    pub process: Option<Places>,
    /// Position in a rule; `None` if no rule sets it.
    pub rule: Option<Field>,
    /// Position in a launch's words; `None` if no launch sets it.
    pub launch: Option<Launched>,
    /// Position in a group's record; `None` if no group sets it.
    pub group: Option<Places>,
    /// Position in a device's record; `None` if no device sets it.
    pub device: Option<Places>,
    /// Decides whether the value of a launch or a group takes precedence over a rule's. Only the lower of two caps does.
    pub precedes_rule: fn(own: T, rule: T) -> bool,
}

/// The names of a setting, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The typed word: a key of `gpushare set` and `apply`, an option of `run`, a word of the audit log.
    pub word: &'static str,
    /// In the dialog of the dashboard; empty where that has no field for it.
    pub label: &'static str,
    /// The values that a person may give, in a few characters.
    pub values: &'static str,
    /// The words' explanation in the dialog.
    pub hint: &'static str,
    /// The environment variable of a launch; empty if no launch sets it.
    pub variable: &'static str,
    /// A value of that variable.
    pub example: &'static str,
    /// Others rely on it: a launch that asks for it fails where it cannot be enforced.
    pub is_limit: bool,
    /// Description of the setting, for the reference.
    pub says: &'static str,
}

impl About {
    /// Reports whether a person may write it as `word=value`; else a verb of its own sets it.
    pub const fn is_typed(&self) -> bool {
        !self.label.is_empty()
    }
}

/// The grammar of a setting's values.
#[derive(Debug)]
pub struct Grammar<T: 'static> {
    /// Reads a value.
    pub read: fn(&str) -> Result<T, TextError>,
    /// The value that an edit sets by `none`; without it, `none` unsets.
    pub none: Option<T>,
    /// Shows a value as a person would type it.
    pub show: fn(T) -> String,
    /// Returns the reason that a value is out of range, as a clause after its word; `None` for a valid one.
    pub refuse: fn(T) -> Option<String>,
    /// The value as a number.
    pub bits: fn(T) -> u128,
    /// The value of a number; `None` if no right value has it.
    pub of_bits: fn(u128) -> Option<T>,
}

impl<T: Copy + PartialEq> Grammar<T> {
    /// Returns a value as a person would type it: `none` for the value that an edit sets by this word.
    pub fn typed(&self, value: T) -> String {
        match self.none {
            Some(none) if none == value => "none".to_owned(),
            _ => (self.show)(value),
        }
    }
}

/// Position of a setting and its source in a launch's words.
#[derive(Clone, Copy, Debug)]
pub struct Launched {
    /// The value.
    pub value: Field,
    /// The source; without it, a value is of our own variable.
    pub source: Option<Field>,
}

/// Position of a setting that may revert by itself in a record.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The value.
    pub value: Field,
    /// Position of the value that follows, and of the time; `None` where the setting cannot revert.
    pub then: Option<(Field, usize)>,
}

/// Some bits of a record.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    word: usize,
    low: u32,
    bits: u32,
    /// The word with the bits above these.
    above: Option<usize>,
    /// The word and the bit that say that it is set; without one, zero is not set.
    flag: Option<(usize, u32)>,
}

impl Field {
    /// A whole word; zero is not set.
    pub const fn word(word: usize) -> Self {
        Self::part(word, 0, 64)
    }

    /// Some bits of a word from `low` on; zero is not set.
    pub const fn part(word: usize, low: u32, bits: u32) -> Self {
        assert!(low + bits <= 64);
        Self {
            word,
            low,
            bits,
            above: None,
            flag: None,
        }
    }

    /// Returns the field with a bit of another word that marks it as set, so that zero is a value.
    pub const fn if_bit(self, word: usize, bit: u32) -> Self {
        Self {
            flag: Some((word, bit)),
            ..self
        }
    }

    /// Returns the field with a second word, whose bits stand above its own.
    pub const fn above(self, word: usize) -> Self {
        Self {
            above: Some(word),
            ..self
        }
    }

    const fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Reads it; `None` is not set.
    pub fn get(&self, words: &[u64]) -> Option<u128> {
        let low = words.get(self.word)? >> self.low & self.mask();
        let above = match self.above {
            None => 0,
            Some(word) => u128::from(*words.get(word)?) << self.bits,
        };
        let bits = u128::from(low) | above;
        match self.flag {
            None => (bits != 0).then_some(bits),
            Some((word, bit)) => (words.get(word)? >> bit & 1 == 1).then_some(bits),
        }
    }

    /// Writes it into words in which it is zero.
    pub fn put(&self, words: &mut [u64], bits: Option<u128>) {
        let Some(bits) = bits else { return };
        words[self.word] |= (bits as u64 & self.mask()) << self.low;
        if let Some(word) = self.above {
            words[word] |= (bits >> self.bits) as u64;
        }
        if let Some((word, bit)) = self.flag {
            words[word] |= 1 << bit;
        }
    }

    /// Lists the bits of the field and of its flag as a mask of each word, for the test that no two fields share a bit.
    pub fn claims(&self) -> impl Iterator<Item = (usize, u64)> {
        let own = (self.word, self.mask() << self.low);
        let above = self.above.map(|word| (word, u64::MAX));
        let flag = self.flag.map(|(word, bit)| (word, 1 << bit));
        std::iter::once(own).chain(above).chain(flag)
    }
}

impl<T: Copy> Row<T> {
    /// Reads a field of this row's kind.
    pub fn get(&self, field: &Field, words: &[u64]) -> Option<T> {
        (self.grammar.of_bits)(field.get(words)?)
    }

    /// Writes a value into a field of this row's kind.
    pub fn put(&self, field: &Field, words: &mut [u64], value: Option<T>) {
        field.put(words, value.map(self.grammar.bits));
    }

    /// Checks values: the row's word and why the first that is out of range is so.
    pub fn check(&self, values: impl IntoIterator<Item = T>) -> Result<(), (&'static str, String)> {
        match values.into_iter().find_map(self.grammar.refuse) {
            Some(why) => Err((self.about.word, why)),
            None => Ok(()),
        }
    }
}
