//! The watch over rules: which of them hold, since when, and when one of them acts.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::Rule;
use crate::rules::action::{About, RuleAction};
use gpushare_control::EditRequest;
use gpushare_observe::data::Data;
use gpushare_observe::finding::Finding;
use gpushare_observe::findings;
use gpushare_sample::columns::Row;
use gpushare_sample::{EditLine, Who};

const HOUR_NS: u64 = 3_600_000_000_000;
/// Maximum number of findings of one rule; the rule ignores further ones, because it would act on each of them.
const MOST: usize = 64;

/// The rules and the state of each.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    rules: Arc<[Rule]>,
    /// The findings that hold, by rule, process and device.
    held: HashMap<Key, Held>,
    /// The times of each rule's edits in the last hour.
    edits: HashMap<usize, VecDeque<u64>>,
    /// The rule of each edit, by generation.
    own: HashMap<u64, usize>,
    /// Rules whose edit a user undid; they no longer edit.
    rebuked: HashSet<usize>,
}

type Key = (usize, Option<Who>, Option<usize>);

#[derive(Clone, Copy, Debug)]
struct Held {
    since_ns: u64,
    seen_ns: u64,
    acted_ns: Option<u64>,
}

impl Watch {
    /// Makes a watch over these rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self {
            rules: rules.into(),
            ..Self::default()
        }
    }

    /// Returns a watch over the same rules that has seen nothing.
    pub fn begin_anew(&self) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
            ..Self::default()
        }
    }

    /// Checks new data and its alerts. Returns the alerts of the rules that hold, and the actions to run now.
    pub(crate) fn update(&mut self, data: &Data) -> (Vec<Finding>, Vec<RuleAction>) {
        if self.rules.is_empty() {
            return Default::default();
        }
        self.learn(data);
        let rules = Arc::clone(&self.rules);
        let rows = gpushare_observe::rows::every(data);
        let now_ns = data.sample.time_ns;
        let (mut found, mut actions) = (Vec::new(), Vec::new());
        for (number, rule) in rules.iter().enumerate() {
            for about in abouts(rule, &rows, &data.alerts).into_iter().take(MOST) {
                let key = (number, about.who(), about.gpu);
                let fresh = Held {
                    since_ns: now_ns,
                    seen_ns: now_ns,
                    acted_ns: None,
                };
                let held = self.held.entry(key).or_insert(fresh);
                // The condition did not hold a moment ago, or the clock went back.
                if held.seen_ns < held.since_ns || held.seen_ns > now_ns {
                    held.since_ns = now_ns;
                }
                held.seen_ns = now_ns;
                if now_ns.saturating_sub(held.since_ns) < rule.for_ns {
                    continue;
                }
                found.push(alert(rule, &about, data, held.since_ns));
                let due = |acted: u64| now_ns.saturating_sub(acted) >= rule.again_ns;
                if held.acted_ns.is_none_or(due) {
                    held.acted_ns = Some(now_ns);
                    let edit = self.edit(number, rule, &about, data);
                    actions.push(RuleAction {
                        edit,
                        ..RuleAction::of(rule, about, data)
                    });
                }
            }
        }
        self.held.retain(|(number, who, _), held| {
            let again = rules.get(*number).map_or(0, |rule| rule.again_ns);
            // The condition no longer holds. The entry is kept only while it must prevent a repeated action.
            if held.seen_ns < now_ns {
                held.since_ns = u64::MAX;
            }
            let acted = held
                .acted_ns
                .is_some_and(|at| now_ns.saturating_sub(at) < again && at <= now_ns);
            (held.seen_ns == now_ns || acted) && who.is_none_or(|who| data.process(who).is_some())
        });
        (found, actions)
    }

    /// Returns the edit of a rule, within its limits.
    fn edit(
        &mut self,
        number: usize,
        rule: &Rule,
        about: &About<'_>,
        data: &Data,
    ) -> Option<Result<Box<EditRequest>, String>> {
        let remedy = rule.remedy.as_ref()?;
        if self.rebuked.contains(&number) {
            return Some(Err(
                "a person took its last one back; it makes no more until gpushare-top starts anew"
                    .into(),
            ));
        }
        let now_ns = data.sample.time_ns;
        let times = self.edits.entry(number).or_default();
        times.retain(|at| now_ns.saturating_sub(*at) < HOUR_NS);
        if times.len() >= remedy.at_most {
            return Some(Err(format!(
                "it made {} in an hour, which is its limit",
                times.len()
            )));
        }
        let edit = about.edit(rule, remedy, data);
        if edit.is_ok() {
            times.push_back(now_ns);
        }
        Some(edit)
    }

    /// Learns which edits were made by rules, and which of them were undone.
    fn learn(&mut self, data: &Data) {
        let made = |rule: &Rule, edit: &EditLine| {
            edit.reason
                .as_deref()
                .is_some_and(|reason| rule.made(reason))
        };
        for edit in data.edits() {
            if let Some(number) = self.rules.iter().position(|rule| made(rule, edit)) {
                self.own.insert(edit.generation, number);
            }
        }
        let undone = data.edits().filter_map(|edit| self.own.get(&edit.undoes?));
        self.rebuked = undone.copied().collect();
        self.own
            .retain(|generation, _| data.edit(*generation).is_some());
    }
}

/// Returns the findings of a rule.
fn abouts<'a>(rule: &Rule, rows: &'a [Row<'a>], alerts: &'a [Finding]) -> Vec<About<'a>> {
    let Some(kind) = rule.alert else {
        let fitting = rows.iter().filter(|row| rule.filter.accepts(row));
        return fitting
            .map(|row| About {
                row: Some(row),
                gpu: Some(row.holding.gpu),
                alert: None,
            })
            .collect();
    };
    let of_alert = |alert: &'a Finding| {
        let about = |row: &&Row<'_>| {
            Some(row.who) == alert.who && alert.gpu.is_none_or(|gpu| gpu == row.holding.gpu)
        };
        let row = rows.iter().find(about);
        let fits = rule.filter.is_empty() || row.is_some_and(|row| rule.filter.accepts(row));
        fits.then_some(About {
            row,
            gpu: alert.gpu,
            alert: Some(alert),
        })
    };
    alerts
        .iter()
        .filter(|alert| alert.kind.id == kind)
        .filter_map(of_alert)
        .collect()
}

fn alert(rule: &Rule, about: &About<'_>, data: &Data, since_ns: u64) -> Finding {
    let sentence = about.sentence(rule, data);
    let mut alert = Finding::new(findings::own(), data.sample.time_ns, sentence);
    (alert.who, alert.gpu) = (about.who(), about.gpu);
    alert.since(since_ns);
    alert
}
