//! Precedence of the values of a setting, and their positions in a record.

use crate::grammar::TextError;
use crate::row::{Places, Row};
use crate::value::{Boost, Set, Source, Timed};

use super::{SettingValues, Share, ShareEdit, ShareSettings, Sources};

/// The settings that a process asked for at its launch, as its slot says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchShare {
    /// The values.
    pub values: SettingValues,
    /// The source of each.
    pub sources: Sources,
    /// The source of weight, priority and cap together.
    pub source: Source,
}

/// Reads the variables of a launch.
pub trait ReadVariable {
    /// Reads a variable with the grammar of its values. The source is `Default` for an unset variable and `Invalid` for an
    /// invalid value.
    fn variable<T>(
        &mut self,
        name: &str,
        read: fn(&str) -> Result<T, TextError>,
    ) -> (Option<T>, Source);
}

/// The part of a share that the lock's arithmetic needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Weight under the order `fair`.
    pub weight: u32,
    /// Most of the device's time, per cent.
    pub cap: Option<u32>,
}

/// Chooses the value in force: the operator's; else a rule's, unless the launch or the group has a value that goes before it
/// (of a cap, a lesser one); else the launch's; else the group's.
pub(super) fn choose<T: Copy>(
    row: &Row<T>,
    operator: Option<T>,
    rule: Option<T>,
    launch: Option<(T, Source)>,
    group: Option<T>,
) -> Option<(T, Source)> {
    if let Some(value) = operator {
        return Some((value, Source::Operator));
    }
    let below = launch.or(group.map(|value| (value, Source::Group)));
    match (rule, below) {
        (Some(rule), Some((own, source))) if (row.precedes_rule)(own, rule) => Some((own, source)),
        (Some(rule), _) => Some((rule, Source::Rule)),
        (None, below) => below,
    }
}

/// Makes a value what is in force, or back.
pub(super) fn converted<T, U>(value: T, to: impl FnOnce(T) -> U) -> U {
    to(value)
}

/// Reads a setting from a record.
pub fn timed<T: Copy>(row: &Row<T>, places: &Places, words: &[u64]) -> Timed<T> {
    let value = row.get(&places.value, words);
    match &places.then {
        None => Timed::lasts(value),
        Some((then, ends)) => Timed {
            value,
            then: row.get(then, words),
            until_ns: words[*ends],
        },
    }
}

/// Writes a setting into a record in which its words are zero.
pub fn put_timed<T: Copy>(row: &Row<T>, places: &Places, words: &mut [u64], set: &Timed<T>) {
    row.put(&places.value, words, set.value);
    if let Some((then, ends)) = &places.then {
        row.put(then, words, set.then);
        words[*ends] = set.until_ns;
    }
}

impl ShareEdit {
    /// Returns the edit as a temporary one, after which the lasting settings apply again. A priority becomes a boost;
    /// `None` where it has no number.
    pub fn until(self, ns: u64) -> Option<Self> {
        let boost = match self.priority {
            Set::Keep => self.boost,
            Set::To(priority) => Set::To(Boost {
                priority,
                until_ns: ns,
            }),
            Set::Inherit | Set::For(..) => return None,
        };
        let priority = Set::Keep;
        Some(Self {
            priority,
            boost,
            ..self.timed(ns)
        })
    }
}

impl Share {
    /// Adds what concerns several settings: a boost, the memory of a paused process, and the source of all.
    pub(super) fn finish(
        &mut self,
        launch: &LaunchShare,
        operator: Option<&ShareSettings>,
        now_ns: u64,
    ) {
        self.evict &= self.paused;
        let boost = operator.and_then(|operator| operator.boost);
        if let Some(boost) = boost.filter(|boost| boost.until_ns > now_ns) {
            self.priority = boost.priority;
            self.sources.priority = Source::Operator;
            self.boost_until_ns = Some(boost.until_ns);
        }
        self.until_ns = operator.and_then(|operator| operator.reverts(now_ns).min());
        let of = &self.sources;
        let any = |source| [of.weight, of.priority, of.cap].contains(&source);
        let asked = &launch.values;
        let is_launched = asked.weight.is_some() || asked.priority.is_some() || asked.cap.is_some();
        self.source = match () {
            () if self.paused || any(Source::Operator) => Source::Operator,
            () if any(Source::Rule) => Source::Rule,
            () if is_launched => launch.source,
            () if any(Source::Group) => Source::Group,
            () => Source::Default,
        };
    }

    /// The part that the lock's arithmetic needs.
    pub fn pace(&self) -> Pace {
        Pace {
            weight: self.weight,
            cap: self.cap,
        }
    }
}
