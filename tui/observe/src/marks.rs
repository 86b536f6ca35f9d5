//! The marks of the past: the moments at which an alert began or an edit was made. A mark has a sentence and no samples, so an
//! hour of them is small.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::data::Data;
use crate::finding::Severity;
use gpushare_sample::{Sample, What, Who};

/// Maximum number of marks. Later ones are left out.
const MOST: usize = 8_192;
/// An alert that is back after a shorter pause than this has not begun anew.
const PAUSE_NS: u64 = 30_000_000_000;

/// The subject of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A warning began.
    Alert,
    /// An operator or a rule made an edit.
    Edit,
}

/// A mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The moment.
    pub at_ns: u64,
    /// Its subject.
    pub about: About,
    /// The event, as a sentence.
    pub text: String,
}

/// The marks, oldest first.
#[derive(Debug, Default)]
pub struct Marks {
    all: Vec<Mark>,
    /// The time at which each warning was last found.
    seen: FxHashMap<(&'static str, Option<Who>, Option<usize>), u64>,
}

impl Marks {
    /// Adds the edits that a sample reports. The record of an edit may come later than its event.
    pub fn note_edits(&mut self, sample: &Sample) {
        let events = sample.events.iter().filter_map(|event| match event.what {
            What::Edit { generation } => Some((event.time_ns, format!("edit {generation}"))),
            _ => None,
        });
        let lines = sample.edits.iter();
        let lines = lines.map(|edit| (edit.time_ns, edit.told(edit.time_ns, "to")));
        for (at_ns, text) in events.chain(lines) {
            match self.edit_at(at_ns) {
                Some(known) => known.text = text,
                None => self.add(Mark {
                    at_ns,
                    about: About::Edit,
                    text,
                }),
            }
        }
    }

    /// Adds the warnings that have begun, after the alerts were updated.
    pub fn note_alerts(&mut self, data: &Data) {
        let now_ns = data.sample.time_ns;
        let warnings = data.alerts.iter();
        for alert in warnings.filter(|alert| alert.kind.severity == Severity::Warning) {
            let key = (alert.kind.id, alert.who, alert.gpu);
            let before = self.seen.insert(key, now_ns);
            let goes_on = before.is_some_and(|at| now_ns.saturating_sub(at) < PAUSE_NS);
            // Of an alert that was there before the first look the begin is not known.
            if !goes_on && !alert.is_older {
                self.add(Mark {
                    at_ns: alert.since_ns,
                    about: About::Alert,
                    text: format!("{} {}", alert.kind.word, alert.sentence()),
                });
            }
        }
        self.seen
            .retain(|_, at| now_ns.saturating_sub(*at) < PAUSE_NS);
    }

    /// Adds a mark at its place. An edit is marked once.
    pub fn add(&mut self, mark: Mark) {
        let at = self.all.partition_point(|one| one.at_ns <= mark.at_ns);
        let is_known = mark.about == About::Edit && self.edit_at(mark.at_ns).is_some();
        if self.all.len() < MOST && !is_known {
            self.all.insert(at, mark);
        }
    }

    fn edit_at(&mut self, at_ns: u64) -> Option<&mut Mark> {
        let mut marks = self.all.iter_mut().rev();
        marks.find(|mark| mark.at_ns == at_ns && mark.about == About::Edit)
    }

    /// Removes the marks before a moment.
    pub fn forget_before(&mut self, at_ns: u64) {
        let old = self.all.partition_point(|mark| mark.at_ns < at_ns);
        self.all.drain(..old);
    }

    /// Returns the marks in a span, oldest first.
    pub fn within(&self, span: Range<u64>) -> &[Mark] {
        let place = |at_ns: u64| self.all.partition_point(|mark| mark.at_ns < at_ns);
        let (first, end) = (place(span.start), place(span.end));
        self.all.get(first..end).unwrap_or_default()
    }

    /// Returns the last mark before a moment.
    pub fn before(&self, at_ns: u64) -> Option<&Mark> {
        self.within(0..at_ns).last()
    }

    /// Returns the first mark at a moment or after it.
    pub fn from(&self, at_ns: u64) -> Option<&Mark> {
        self.within(at_ns..u64::MAX).first()
    }

    /// Takes all marks away.
    pub fn take(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings;
    use gpushare_sample::{DeviceSample, EditLine, EventLine};

    const S: u64 = 1_000_000_000;

    /// Returns the marks of seconds in some of which the lock has two holders.
    fn of_seconds(is_bad: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut data, mut marks) = (Data::default(), Marks::default());
        let mut violations = 0;
        for second in 0..400 {
            let mut sample = Sample::default();
            sample.snapshot.time_ns = (1_000 + second) * S;
            sample.devices.push(DeviceSample::default());
            violations += u64::from(is_bad(second));
            sample.devices[0].violations = violations;
            data.update(sample);
            findings::update(&mut data);
            marks.note_alerts(&data);
        }
        let all = marks.take();
        assert!(all.iter().all(|mark| mark.text.starts_with("BUG ")));
        all.iter().map(|mark| mark.at_ns / S - 1_000).collect()
    }

    #[test]
    fn an_alert_has_one_mark_where_it_begins_however_often_it_blinks() {
        let once = of_seconds(|second| second == 40);
        assert_eq!(once, [40]);
        let blinking = of_seconds(|second| (40..60).contains(&second) && second % 2 == 0);
        assert_eq!(blinking, [40]);
    }

    #[test]
    fn an_edit_has_one_mark_with_the_sentence_of_the_audit_log_which_may_come_later() {
        let mut marks = Marks::default();
        let mut sample = Sample::default();
        sample.events.push(EventLine {
            time_ns: 5 * S,
            what: What::Edit { generation: 7 },
            ..EventLine::default()
        });
        marks.note_edits(&sample);
        assert_eq!(marks.within(0..9 * S)[0].text, "edit 7");
        sample.events.clear();
        sample.edits.push(EditLine {
            generation: 7,
            time_ns: 5 * S,
            who: "alice".into(),
            target: "gpu0".into(),
            new: "fair".into(),
            ..EditLine::default()
        });
        marks.note_edits(&sample);
        let [mark] = marks.within(0..9 * S) else {
            panic!("{marks:?}")
        };
        assert!(mark.text.contains("by alice"), "{mark:?}");
    }

    #[test]
    fn marks_are_found_before_and_after_a_moment_and_an_old_one_is_forgotten() {
        let mut marks = Marks::default();
        for at in [30, 10, 20] {
            marks.add(Mark {
                at_ns: at,
                about: About::Edit,
                text: String::new(),
            });
        }
        let at = |mark: Option<&Mark>| mark.map(|mark| mark.at_ns);
        assert_eq!(at(marks.before(20)), Some(10));
        assert_eq!(at(marks.from(20)), Some(20));
        assert_eq!(at(marks.from(31)), None);
        marks.forget_before(20);
        assert_eq!(at(marks.before(20)), None);
        (0..2 * MOST as u64).for_each(|at_ns| {
            marks.add(Mark {
                at_ns,
                about: About::Alert,
                text: String::new(),
            });
        });
        assert_eq!(marks.take().len(), MOST);
    }
}
