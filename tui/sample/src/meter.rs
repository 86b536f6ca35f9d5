//! Metrics for Prometheus, from the same tables as the JSON documents: a [`Meter`] walks through a document and
//! collects its numbers.
//!
//! Each number of a document is a metric, unless its line says otherwise ([`Role`]). The metric's name is the path of
//! its key, its unit the suffix of its key in base units, and its help the key's meaning. A null value has no sample.
//! The segments bound the number of samples: 256 processes on 16 devices each.
//!
//! The two text formats are written here and not by a crate: `prometheus-client` writes OpenMetrics alone, with metrics
//! that are registered beforehand, and `prometheus` writes 0.0.4 alone. The samples of both formats are the same lines;
//! only their heads differ.

use std::fmt::Write as _;

use rustc_hash::{FxHashMap, FxHashSet};
use shm_layout::text::is_hidden;

/// The role of a key among the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A number that goes up and down. The contents of an object are measured under its key.
    Gauge,
    /// A number that only grows while the process exists.
    Counter,
    /// A counter under another key.
    CounterAs(&'static str),
    /// A label of everything in the object, which distinguishes it from others.
    Label(&'static str),
    /// A label as above; an object in which it is null is not measured.
    Of(&'static str),
    /// A text about an object, on an info metric that is always 1.
    Info,
    /// A word of a fixed set: a metric that is 1, with the word as its label.
    State,
    /// A list whose objects are measured under this name instead of the key; empty for none.
    Each(&'static str),
    /// A list as above, with a metric that states the existence of each object.
    Present(&'static str),
    /// No metric.
    Silent,
}

/// The text format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4 of Prometheus.
    Text,
    /// OpenMetrics 1.0.
    Open,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
    Info,
    Histogram,
}

/// The samples of one name.
struct Family {
    kind: Kind,
    /// The name in samples: with `_total`, `_info`.
    name: String,
    help: &'static str,
    unit: Option<&'static Unit>,
    lines: String,
}

/// A collector of the samples of a document.
#[derive(Default)]
pub struct Meter {
    /// The path of keys, joined by `_`.
    path: String,
    /// The current labels: `gpu="0",pid="12"`.
    labels: String,
    help: &'static str,
    counts: bool,
    families: Vec<Family>,
    /// Positions of the families, by path.
    known: FxHashMap<String, usize>,
    /// The lines of objects that exist.
    present: FxHashSet<String>,
}

/// The prefix of every name.
const PREFIX: &str = "gpushare";
/// Maximum length of a label, because a process chooses its text.
const LONGEST: usize = 128;

impl Meter {
    /// Makes an empty meter.
    pub fn new() -> Self {
        Self {
            path: PREFIX.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the page.
    pub fn page(&self, format: Format) -> String {
        let room: usize = self
            .families
            .iter()
            .map(|family| family.lines.len() + 300)
            .sum();
        let mut page = String::with_capacity(room);
        for family in self
            .families
            .iter()
            .filter(|family| !family.lines.is_empty())
        {
            format.head(family, &mut page);
            page.push_str(&family.lines);
        }
        if format == Format::Open {
            page.push_str("# EOF\n");
        }
        page
    }

    /// Enters a key of an object; `None` if the key is not measured.
    pub fn enter(&mut self, name: &str, help: &'static str, role: Role) -> Option<(usize, usize)> {
        let name = match role {
            Role::Label(_) | Role::Of(_) | Role::Info | Role::Silent => return None,
            Role::Each(name) | Role::Present(name) | Role::CounterAs(name) => name,
            Role::Gauge | Role::Counter | Role::State => name.trim_start_matches("r#"),
        };
        let place = (self.path.len(), self.labels.len());
        if !name.is_empty() {
            self.path.push('_');
            self.path.push_str(name);
        }
        self.help = help;
        self.counts = matches!(role, Role::Counter | Role::CounterAs(_));
        Some(place)
    }

    /// Leaves the key again.
    pub fn leave(&mut self, (path, labels): (usize, usize)) {
        self.path.truncate(path);
        self.labels.truncate(labels);
    }

    /// Records once that an object with these labels exists.
    pub fn present(&mut self) {
        let at = self.family(Kind::Gauge);
        let family = &mut self.families[at];
        let line = format!("{}{{{}}} 1\n", family.name, self.labels);
        if !self.present.contains(&line) {
            family.lines.push_str(&line);
            self.present.insert(line);
        }
    }

    /// Ends the info metric of an object, whose own labels end at `from`.
    pub fn words(&mut self, from: usize) {
        if self.labels.len() > from {
            self.help = "Words about it; always 1.";
            self.sample(Kind::Info, &1_u64);
            self.labels.truncate(from);
        }
    }

    /// Returns the length of the labels, for [`Self::back`].
    pub fn mark(&self) -> usize {
        self.labels.len()
    }

    /// Removes the labels after a mark.
    pub fn back(&mut self, mark: usize) {
        self.labels.truncate(mark);
    }

    /// Adds a label. Texts from other processes are made harmless for a terminal and a page.
    pub fn label(&mut self, name: &str, value: &str) {
        if !self.labels.is_empty() {
            self.labels.push(',');
        }
        self.labels.push_str(name);
        self.labels.push_str("=\"");
        // Nearly all labels are plain.
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if value.len() <= LONGEST && value.bytes().all(is_plain) {
            self.labels.push_str(value);
        } else {
            self.escape(value);
        }
        self.labels.push('"');
    }

    fn escape(&mut self, value: &str) {
        for c in value.chars().take(LONGEST) {
            match c {
                '\\' => self.labels.push_str("\\\\"),
                '"' => self.labels.push_str("\\\""),
                c if is_hidden(c) => self.labels.push('\u{fffd}'),
                c => self.labels.push(c),
            }
        }
    }

    /// Adds a number.
    pub fn number<T: std::fmt::Display + AsNumber>(&mut self, value: &T) {
        let kind = if self.counts {
            Kind::Counter
        } else {
            Kind::Gauge
        };
        self.sample(kind, value);
    }

    /// Adds a histogram of times: the counts below each limit, and their sum.
    pub fn histogram(&mut self, counts: &[(&str, u64)], sum_ns: u64) {
        let at = self.family(Kind::Histogram);
        let family = &mut self.families[at];
        let labels = self.labels.as_str();
        let comma = if labels.is_empty() { "" } else { "," };
        let name = &family.name;
        let all = counts.last().map_or(0, |(_, count)| *count);
        let begin = format!("{name}_bucket{{{labels}{comma}le=\"");
        // Writing to memory cannot fail.
        for (limit, count) in counts {
            family.lines.push_str(&begin);
            family.lines.push_str(limit);
            let _ = writeln!(family.lines, "\"}} {count}");
        }
        let sum = sum_ns as f64 / 1e9;
        let _ = writeln!(family.lines, "{name}_sum{{{labels}}} {sum}");
        let _ = writeln!(family.lines, "{name}_count{{{labels}}} {all}");
    }

    fn sample<T: std::fmt::Display + AsNumber>(&mut self, kind: Kind, value: &T) {
        let at = self.family(kind);
        let family = &mut self.families[at];
        let lines = &mut family.lines;
        lines.push_str(&family.name);
        if !self.labels.is_empty() {
            lines.push('{');
            lines.push_str(&self.labels);
            lines.push('}');
        }
        // Writing to memory cannot fail.
        let _ = match family.unit.map_or(1.0, |unit| unit.divide) {
            1.0 => writeln!(lines, " {value}"),
            by => writeln!(lines, " {}", value.as_number() / by),
        };
    }

    /// Returns the family at the path.
    fn family(&mut self, kind: Kind) -> usize {
        let info = kind == Kind::Info;
        if info {
            self.path.push_str("_info");
        }
        let at = match self.known.get(self.path.as_str()) {
            Some(at) => *at,
            None => {
                let (name, unit) = named(&self.path, kind);
                self.families.push(Family {
                    kind,
                    name,
                    help: self.help,
                    unit,
                    lines: String::new(),
                });
                self.known
                    .insert(self.path.clone(), self.families.len() - 1);
                self.families.len() - 1
            }
        };
        if info {
            self.path.truncate(self.path.len() - "_info".len());
        }
        at
    }
}

/// Returns the name and the unit of the metric at a path.
fn named(path: &str, kind: Kind) -> (String, Option<&'static Unit>) {
    let unit = UNITS.iter().find(|unit| path.ends_with(unit.end));
    let mut name = match unit {
        Some(unit) => format!(
            "{}_{}",
            path.trim_end_matches(unit.end).trim_end_matches('_'),
            unit.metric
        ),
        None => path.to_owned(),
    };
    if kind == Kind::Counter {
        name.push_str("_total");
    }
    (name, unit)
}

impl Format {
    /// Returns the content type for HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes the lines before the samples of a metric.
    fn head(self, family: &Family, page: &mut String) {
        let (name, kind) = match (self, family.kind) {
            (Format::Open, Kind::Counter) => (family.name.trim_end_matches("_total"), "counter"),
            (Format::Open, Kind::Info) => (family.name.trim_end_matches("_info"), "info"),
            (Format::Text, Kind::Counter) => (family.name.as_str(), "counter"),
            (_, Kind::Gauge | Kind::Info) => (family.name.as_str(), "gauge"),
            (_, Kind::Histogram) => (family.name.as_str(), "histogram"),
        };
        // Writing to memory cannot fail.
        let _ = writeln!(
            page,
            "# HELP {name} {}",
            family.help.replace("null", "absent")
        );
        let _ = writeln!(page, "# TYPE {name} {kind}");
        if let (Format::Open, Some(unit)) = (self, family.unit) {
            let _ = writeln!(page, "# UNIT {name} {}", unit.base());
        }
    }
}

/// A number that can be a sample.
pub trait AsNumber {
    /// Returns the nearest float.
    fn as_number(&self) -> f64;
}

macro_rules! numbers {
    ($($type:ty),*) => { $(impl AsNumber for $type {
        fn as_number(&self) -> f64 {
            *self as f64
        }
    })* };
}

numbers!(u8, u16, u32, u64, usize, i32, i64, f64);

/// A suffix of keys and the unit that it means.
#[derive(Debug)]
pub struct Unit {
    /// The suffix of the key.
    pub end: &'static str,
    /// The unit, for the manual.
    pub name: &'static str,
    /// The base unit, which replaces the suffix in the name of a metric.
    pub metric: &'static str,
    /// Number of these units in one base unit.
    pub divide: f64,
}

macro_rules! units {
    ($($end:literal $name:literal $metric:literal $divide:literal;)*) => {
        /// Every unit.
        pub static UNITS: &[Unit] = &[$(Unit { end: $end, name: $name, metric: $metric, divide: $divide },)*];
    };
}

units! {
// end of the key  unit                     in metrics             how many
    "unix_ms"      "milliseconds since 1970" "timestamp_seconds"    1e3;
    "_bytes_per_s" "bytes a second"      "bytes_per_second"     1.0;
    "_bytes"       "bytes"                   "bytes"                1.0;
    "_ns"          "nanoseconds"             "seconds"              1e9;
    "_us"          "microseconds"            "seconds"              1e6;
    "_percent"     "per cent"                "ratio"                1e2;
    "_mw"          "milliwatts"              "watts"                1e3;
    "_mhz"         "megahertz"               "hertz"                1e-6;
    "_c"           "degrees Celsius"         "celsius"              1.0;
}

impl Unit {
    /// Returns the name of the base unit.
    pub fn base(&self) -> &'static str {
        self.metric.trim_start_matches("timestamp_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stays_on_its_line_and_acts_on_no_terminal() {
        let mut meter = Meter::new();
        meter.label("name", "a\"b\\c\n\u{1b}[31m\u{202e}");
        assert_eq!(
            meter.labels,
            "name=\"a\\\"b\\\\c\u{fffd}\u{fffd}[31m\u{fffd}\""
        );
        meter.back(0);
        meter.label("name", &"x".repeat(100_000));
        assert!(meter.labels.len() < 200);
    }
}
