//! Filters over rows: `user=alice used>4G state=wait name~train`, or a plain word to search for.
//!
//! Each term names a column of the process table by its key. All terms must hold. Sizes, times and shares are written
//! as everywhere else in gpushare.

use std::cmp::Ordering;
use std::fmt;

use gpushare_base::text::units;
use gpushare_sample::columns::{self, Column, Row, Value};

/// The rows to list; the default lists all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug)]
enum Term {
    /// A text that any name of the process contains.
    Anywhere(String),
    Column {
        column: &'static Column,
        test: Test,
        value: String,
        number: Option<f64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Equal,
    NotEqual,
    Contains,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// The longer operators come first, so that `>=` is not read as `>`.
const TESTS: [(&str, Test); 7] = [
    ("!=", Test::NotEqual),
    (">=", Test::AtLeast),
    ("<=", Test::AtMost),
    ("=", Test::Equal),
    ("~", Test::Contains),
    (">", Test::Greater),
    ("<", Test::Less),
];

impl Filter {
    /// Parses a filter; the error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self {
            text: text.trim().to_owned(),
            terms: words(text)
                .iter()
                .map(|word| term(word))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns the filter as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reports whether the filter accepts every row.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Reports whether the filter accepts a row.
    pub fn accepts(&self, row: &Row<'_>) -> bool {
        self.terms.iter().all(|term| term.accepts(row))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "none" } else { &self.text })
    }
}

/// Splits a filter into terms. Blanks around an operator belong to its term: `wait > 10%`.
fn words(text: &str) -> Vec<String> {
    const SIGNS: [char; 5] = ['!', '=', '~', '<', '>'];
    let mut words: Vec<String> = Vec::new();
    for piece in text.split_whitespace() {
        match words.last_mut() {
            Some(last) if piece.starts_with(SIGNS) || last.ends_with(SIGNS) => *last += piece,
            _ => words.push(piece.to_owned()),
        }
    }
    words
}

fn term(word: &str) -> Result<Term, String> {
    let found = word.char_indices().find_map(|(at, _)| {
        TESTS
            .iter()
            .find(|(sign, _)| word[at..].starts_with(sign))
            .map(|t| (at, t))
    });
    let Some((at, (sign, test))) = found else {
        return Ok(Term::Anywhere(word.to_lowercase()));
    };
    let (key, value) = (&word[..at], &word[at + sign.len()..]);
    let Some(column) = columns::COLUMNS.iter().find(|column| column.key == key) else {
        let known: Vec<&str> = columns::COLUMNS.iter().map(|column| column.key).collect();
        return Err(format!(
            "there is no column \"{key}\" to filter by; there are {}",
            known.join(", ")
        ));
    };
    let number = number(value);
    let ordered = matches!(
        test,
        Test::Less | Test::AtMost | Test::Greater | Test::AtLeast
    );
    if ordered && number.is_none() {
        return Err(format!(
            "\"{value}\" is not a number; write for example {key}{sign}4G, {key}{sign}50% or {key}{sign}10ms"
        ));
    }
    Ok(Term::Column {
        column,
        test: *test,
        value: value.to_lowercase(),
        number,
    })
}

/// Parses a plain number, a share, a size or a time into base units.
fn number(text: &str) -> Option<f64> {
    let plain = text.strip_suffix('%').unwrap_or(text).parse().ok();
    plain
        .or_else(|| units::parse_size(text).ok().map(|bytes| bytes as f64))
        .or_else(|| units::parse_duration(text).ok().map(|ns| ns as f64))
}

impl Term {
    fn accepts(&self, row: &Row<'_>) -> bool {
        match self {
            Term::Anywhere(word) => {
                let process = row.process;
                let pid = process.shown_pid().to_string();
                let names = [process.name(), &process.user, &process.identity.exe, &pid];
                let more = [process.container.as_deref(), process.group.as_deref()];
                let mut all = names.into_iter().chain(more.into_iter().flatten());
                all.any(|name| name.to_lowercase().contains(word))
            }
            Term::Column {
                column,
                test,
                value,
                number,
            } => compare(&(column.value)(row), *test, value, *number),
        }
    }
}

fn compare(cell: &Value<'_>, test: Test, value: &str, number: Option<f64>) -> bool {
    let text = || cell.raw().to_lowercase();
    let order = match (cell.number(), number) {
        (Some(cell), Some(number)) => cell.partial_cmp(&number),
        _ => None,
    };
    match test {
        Test::Contains => text().contains(value),
        Test::Equal => order.map_or_else(|| text() == value, Ordering::is_eq),
        Test::NotEqual => order.map_or_else(|| text() != value, Ordering::is_ne),
        Test::Less => order.is_some_and(Ordering::is_lt),
        Test::AtMost => order.is_some_and(Ordering::is_le),
        Test::Greater => order.is_some_and(Ordering::is_gt),
        Test::AtLeast => order.is_some_and(Ordering::is_ge),
    }
}
