//! Metrics for Prometheus, from the same tables as the JSON documents: a [`Meter`] is led through a document and keeps what is
//! measured.
//!
//! Each number of a document is a metric, unless its line says otherwise ([`Role`]); its name is the path of its key, its unit
//! the end of its key in base units, and its help the key's meaning. A key that is null has no sample. How many samples there are
//! is bounded by the segments: 256 processes on 16 devices each.
//!
//! The two text formats are written here and not by a crate: `prometheus-client` writes OpenMetrics alone, with metrics that are
//! registered beforehand, and `prometheus` writes 0.0.4 alone. The samples of both formats are the same lines; what differs is
//! their heads.

use std::fmt::Write as _;

use rustc_hash::{FxHashMap, FxHashSet};
use shm_layout::text::is_hidden;

/// What a key is to a reader of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A number that goes up and down. What is in an object is measured under its key.
    Gauge,
    /// A number that only grows, as long as the process lives.
    Counter,
    /// The same under another key.
    CounterAs(&'static str),
    /// Tells one object from another: a label of everything in it.
    Label(&'static str),
    /// The same; an object in which it is null is not measured.
    Of(&'static str),
    /// Words about an object, on a metric of their own that is always 1.
    Info,
    /// A word out of few: a metric that is 1, with the word as its label.
    State,
    /// The objects of a list are measured under this name instead of the key; empty for none.
    Each(&'static str),
    /// The same, and that there is such an object is a metric.
    Present(&'static str),
    /// Not a metric.
    Silent,
}

/// How a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4 of Prometheus.
    Text,
    /// OpenMetrics 1.0.
    Open,
}

/// What a metric is.
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
    /// As in samples: with `_total`, `_info`.
    name: String,
    help: &'static str,
    unit: Option<&'static Unit>,
    lines: String,
}

/// Collects the samples of a document.
#[derive(Default)]
pub struct Meter {
    /// The path of keys, by `_`.
    path: String,
    /// `gpu="0",pid="12"`.
    labels: String,
    help: &'static str,
    counts: bool,
    families: Vec<Family>,
    /// By path.
    known: FxHashMap<String, usize>,
    /// The lines of what is there.
    present: FxHashSet<String>,
}

/// What every name begins with.
const PREFIX: &str = "gpushare";
/// A longer label is cut: its process chose it.
const LONGEST: usize = 128;

impl Meter {
    /// With nothing measured.
    pub fn new() -> Self {
        Self {
            path: PREFIX.to_owned(),
            ..Self::default()
        }
    }

    /// The page.
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

    /// Goes to a key of an object; `None` if it is not measured.
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

    /// Goes back from it.
    pub fn leave(&mut self, (path, labels): (usize, usize)) {
        self.path.truncate(path);
        self.labels.truncate(labels);
    }

    /// Says that there is something with these labels; once, if there are several.
    pub fn present(&mut self) {
        let at = self.family(Kind::Gauge);
        let family = &mut self.families[at];
        let line = format!("{}{{{}}} 1\n", family.name, self.labels);
        if !self.present.contains(&line) {
            family.lines.push_str(&line);
            self.present.insert(line);
        }
    }

    /// Closes the words about an object, whose own labels end at `from`.
    pub fn words(&mut self, from: usize) {
        if self.labels.len() > from {
            self.help = "Words about it; always 1.";
            self.sample(Kind::Info, &1_u64);
            self.labels.truncate(from);
        }
    }

    /// How much of the labels there is, to go back to.
    pub fn mark(&self) -> usize {
        self.labels.len()
    }

    /// Goes back to what there was.
    pub fn back(&mut self, mark: usize) {
        self.labels.truncate(mark);
    }

    /// Adds a label; the words of others are made harmless for a terminal and a page.
    pub fn label(&mut self, name: &str, value: &str) {
        if !self.labels.is_empty() {
            self.labels.push(',');
        }
        self.labels.push_str(name);
        self.labels.push_str("=\"");
        // Nearly all are plain.
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

    /// Measures a number.
    pub fn number<T: std::fmt::Display + AsNumber>(&mut self, value: &T) {
        let kind = if self.counts {
            Kind::Counter
        } else {
            Kind::Gauge
        };
        self.sample(kind, value);
    }

    /// Measures times: the counts below each limit, and their sum.
    pub fn histogram(&mut self, counts: &[(&str, u64)], sum_ns: u64) {
        let at = self.family(Kind::Histogram);
        let family = &mut self.families[at];
        let labels = self.labels.as_str();
        let comma = if labels.is_empty() { "" } else { "," };
        let name = &family.name;
        let all = counts.last().map_or(0, |(_, count)| *count);
        let begin = format!("{name}_bucket{{{labels}{comma}le=\"");
        // Memory takes all that is written.
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
        // Memory takes all that is written.
        let _ = match family.unit.map_or(1.0, |unit| unit.divide) {
            1.0 => writeln!(lines, " {value}"),
            by => writeln!(lines, " {}", value.as_number() / by),
        };
    }

    /// The family at the path.
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

/// The name of the metric at a path, and its unit.
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
    /// As a server announces it.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// What is said about a metric before its samples.
    fn head(self, family: &Family, page: &mut String) {
        let (name, kind) = match (self, family.kind) {
            (Format::Open, Kind::Counter) => (family.name.trim_end_matches("_total"), "counter"),
            (Format::Open, Kind::Info) => (family.name.trim_end_matches("_info"), "info"),
            (Format::Text, Kind::Counter) => (family.name.as_str(), "counter"),
            (_, Kind::Gauge | Kind::Info) => (family.name.as_str(), "gauge"),
            (_, Kind::Histogram) => (family.name.as_str(), "histogram"),
        };
        // Memory takes all that is written.
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

/// A number as metrics have it.
pub trait AsNumber {
    /// As near as a float comes.
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

/// The end of a key and what it says of the number.
#[derive(Debug)]
pub struct Unit {
    /// How the key ends.
    pub end: &'static str,
    /// The unit, for the manual.
    pub name: &'static str,
    /// What stands in its place in the name of a metric: the base unit.
    pub metric: &'static str,
    /// So many of the unit are one of the base unit.
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
    /// The base unit alone.
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
