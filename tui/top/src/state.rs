//! The state of the dashboard: the data and the user's choices from which each frame is drawn.
//!
//! [`Data`] is derived from samples alone, [`Choices`] from keys alone, the alerts from the data. Drawing takes them by
//! reference and changes nothing. The state is independent of the screen's size.

mod choices;
pub mod groups;
pub mod past;
pub mod rows;

pub use choices::{Choices, Lanes, Notice, RowOrder, Screen, Tree};

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use jiff::{Timestamp, Unit};

use super::overlay::{Findings, Overlay};
use super::rules::Rule;
use super::rules::watch::Watch;
use crate::rules::action::RuleAction;
use gpushare_control::measured::Measured;
use gpushare_observe::data::Data;
use gpushare_observe::data::log::Log;
use gpushare_observe::data::wait_attribution::Waits;
use gpushare_observe::finding::Finding;
use gpushare_observe::findings;
use gpushare_observe::marks::Marks;
use gpushare_observe::rows::rows_of;
use gpushare_sample::columns::Row;
use gpushare_sample::{EditLine, EventLine, Origin, ProcessSample, Sample, Who};
use groups::Line;
use past::{HOUR_NS, Past};

/// Maximum age of another operator's edit that is still announced.
const FRESH_NS: u64 = 6_000_000_000;

/// The dashboard's whole state.
#[derive(Default)]
pub struct State {
    live: Data,
    /// The moment shown instead of the present.
    past: Option<Past>,
    /// The user's choices.
    pub choices: Choices,
    /// The overlay on the screen.
    pub overlay: Option<Overlay>,
    /// The marks of the last hour, or of the recording.
    pub marks: Marks,
    /// Set while a recording is read for more marks.
    pub is_reading: bool,
    /// The first and the last moment of the recording that is shown, once both are known.
    pub span_ns: Option<[u64; 2]>,
    /// The generations of this dashboard's own edits.
    pub own_edits: HashSet<u64>,
    /// The rules of the settings.
    watch: Watch,
    /// The actions that the rules want to run.
    actions: Vec<RuleAction>,
    /// The figures of this dashboard's own edits that are not in the file yet.
    measured: Vec<Measured>,
}

impl State {
    /// Returns the newest sample, whichever moment is shown, so that the next one can reuse its memory.
    pub fn newest(&mut self) -> &mut Sample {
        &mut self.live.sample
    }

    /// Adds a sample. While a moment of the past is shown, it is added but not shown.
    pub fn update(&mut self, sample: Sample) {
        let fresh = sample.time_ns.saturating_sub(FRESH_NS);
        let mut others = sample
            .edits
            .iter()
            .filter(|edit| edit.time_ns >= fresh && !self.own_edits.contains(&edit.generation));
        let news = others
            .next_back()
            .map(|edit| format!("edited: {}", edit.told(sample.time_ns, "to")));
        // The marks of a recording are found in the whole of it.
        let marked = sample.origin != Origin::Replay;
        if marked {
            self.marks.note_edits(&sample);
        }
        self.live.update(sample);
        let now_ns = self.live_ns();
        let notice = &mut self.choices.notice;
        notice.take_if(|notice| notice.until_ns <= now_ns);
        if let Some(news) = news {
            self.choices.say(news, false, now_ns);
        }
        self.keep_figures();
        if self.live.is_measured() {
            self.judge();
            if marked {
                self.marks.note_alerts(&self.live);
                self.marks.forget_before(now_ns.saturating_sub(HOUR_NS));
            }
            let places = self.places();
            let by = self.choices.by();
            self.choices.order = Some(RowOrder { by, places });
        }
        if self.past.is_none() {
            self.choices.settle(&self.live);
        }
    }

    /// Brings the newest sample forward to a later moment by the events between both, oldest first.
    pub fn bring_forward(&mut self, events: Vec<EventLine>, at_ns: u64) {
        self.live.bring_forward(events, at_ns);
        self.judge();
    }

    /// Updates the alerts.
    fn judge(&mut self) {
        findings::update(&mut self.live);
        let (own, actions) = self.watch.update(&self.live);
        if self.live.sample.origin != Origin::Replay {
            self.actions.extend(actions);
        }
        self.live.alerts.extend(own);
        self.live.alerts.sort_by_key(findings::rank);
    }

    /// Uses these rules of the settings.
    pub fn watch_by(&mut self, rules: Vec<Rule>) {
        self.watch = Watch::new(rules);
    }

    /// Uses what `gpushare tune` has measured on this machine, newest first.
    pub fn use_measurements(&mut self, lines: Vec<Measured>) {
        self.live.use_measurements(lines);
    }

    /// Keeps what an edit of this dashboard did to the jobs, for advice. Of an edit by others they keep it.
    fn keep_figures(&mut self) {
        let ended = self.live.take_compared();
        let Some((_, mut measured)) = ended.filter(|(edit, _)| self.own_edits.contains(edit))
        else {
            return;
        };
        let now = Timestamp::from_millisecond(self.live.sample.unix_ms).unwrap_or_default();
        measured.time = now.round(Unit::Second).unwrap_or(now).to_string();
        self.live.add_measurement(measured.clone());
        self.measured.push(measured);
    }

    /// Takes the figures to write to the file.
    pub fn take_measurements(&mut self) -> Vec<Measured> {
        std::mem::take(&mut self.measured)
    }

    /// Takes the actions that rules want to run now.
    pub fn take_actions(&mut self) -> Vec<RuleAction> {
        std::mem::take(&mut self.actions)
    }

    /// Returns the newest edit while its comparison is on the screen.
    pub fn compared(&self) -> Option<&EditLine> {
        let data = self.data();
        let edit = data.before_after().edit(data.sample.time_ns)?;
        (self.choices.kept != Some(edit.generation)).then_some(edit)
    }

    /// Removes the comparison of the newest edit from the screen. Returns false if there is none.
    pub fn close_comparison(&mut self) -> bool {
        let generation = self.compared().map(|edit| edit.generation);
        if generation.is_some() {
            self.choices.kept = generation;
        }
        generation.is_some()
    }

    /// Returns the findings of a list.
    pub fn findings(&self, which: Findings) -> Cow<'_, [Finding]> {
        match which {
            Findings::Alerts => Cow::Borrowed(&self.data().alerts),
            Findings::Why => Cow::Owned(findings::explain(self.data(), self.choices.gpu)),
        }
    }

    /// Returns the log of the present.
    pub fn log(&self) -> &Log {
        &self.live.log
    }

    /// Returns the time of the newest sample, whichever moment is shown.
    pub fn live_ns(&self) -> u64 {
        self.live.sample.time_ns
    }

    /// Converts a time to the wall clock, in milliseconds since 1970.
    pub fn unix_ms_at(&self, time_ns: u64) -> i64 {
        self.live.sample.unix_ms_at(time_ns)
    }

    /// Returns the rows of the process table as they are filtered and sorted now.
    pub fn rows(&self) -> Vec<Row<'_>> {
        rows::rows(self.data(), &self.choices)
    }

    /// Returns the waits and blockers on the shown device.
    pub fn waits(&self) -> Waits {
        self.data().waits(self.choices.gpu, self.choices.lately)
    }

    /// Returns the managed processes that have memory of their own on the shown device or evicted from it, in the order of the
    /// sample.
    pub fn models(&self) -> Vec<Row<'_>> {
        let (data, gpu) = (self.data(), self.choices.gpu);
        let processes = data.sample.processes.iter();
        let managed = processes.filter(|process| process.is_managed());
        managed
            .flat_map(|process| rows_of(data, process, Some(gpu)))
            .filter(|row| row.holding.used > 0 || row.holding.evicted > 0)
            .collect()
    }

    /// Returns the device that the screen shows for a process: the chosen one, else its first.
    pub fn shown_gpu(&self, process: &ProcessSample) -> Option<usize> {
        let holding = process
            .uses()
            .find(|h| h.gpu == self.choices.gpu)
            .or(process.uses().next());
        holding.map(|holding| holding.gpu)
    }

    /// Returns the selectable rows in the order of the screen: processes, each on a device.
    fn selectable(&self) -> Vec<Place> {
        match self.choices.screen {
            Screen::Waits => {
                let lines = self.waits().lines.into_iter();
                lines.map(|line| (line.who, self.choices.gpu)).collect()
            }
            Screen::Models => {
                let rows = self.models().into_iter();
                rows.map(|row| (row.who, row.holding.gpu)).collect()
            }
            Screen::Detail(_) => self.places(),
            Screen::Main => {
                let rows = self.rows();
                let lines = groups::lines(&rows, &self.choices).into_iter();
                let lines = lines.filter(|line| !matches!(line, Line::Group(_, false)));
                lines.filter_map(|line| self.place_of(line)).collect()
            }
        }
    }

    /// Returns the place by which a line is selected: a folded group by any of its rows.
    fn place_of(&self, line: Line<'_>) -> Option<Place> {
        let mut rows = line.rows().iter();
        let row = rows.clone().find(|row| self.is_selected(row));
        let row = row.or_else(|| rows.next())?;
        Some((row.who, row.holding.gpu))
    }

    /// Reports whether a row of the table is the selected one.
    pub fn is_selected(&self, row: &Row<'_>) -> bool {
        Some(row.who) == self.choices.selected && row.holding.gpu == self.choices.gpu
    }

    /// Returns the places of the folded group that is selected on the main screen; none if no group is.
    pub fn selected_group(&self) -> Vec<Place> {
        if self.choices.screen != Screen::Main || self.choices.folded.is_empty() {
            return Vec::new();
        }
        let rows = self.rows();
        let lines = groups::lines(&rows, &self.choices).into_iter();
        let mut folded = lines.filter_map(|line| match line {
            Line::Group(rows, true) => Some(rows),
            _ => None,
        });
        let group = folded.find(|rows| rows.iter().any(|row| self.is_selected(row)));
        let places = group.unwrap_or_default().iter();
        places.map(|row| (row.who, row.holding.gpu)).collect()
    }

    /// Folds the group of the selected process, or unfolds it. Returns false if there is none.
    pub fn fold(&mut self) -> bool {
        let rows = self.rows();
        let row = rows.iter().find(|row| self.is_selected(row));
        let group = row.map(|row| self.choices.tree.branch(row));
        let Some(group) = group.filter(|_| self.choices.tree != Tree::Flat) else {
            return false;
        };
        if !self.choices.folded.remove(&group) {
            self.choices.folded.insert(group);
        }
        true
    }

    /// Folds all groups, or unfolds all if none is open.
    pub fn fold_all(&mut self) {
        let tree = self.choices.tree;
        let mut all: BTreeSet<String> = self.rows().iter().map(|row| tree.branch(row)).collect();
        if tree == Tree::Flat || all.is_subset(&self.choices.folded) {
            all.clear();
        }
        self.choices.folded = all;
    }

    /// Unfolds the group of the selected process, so that a key acts on this process alone.
    pub fn unfold(&mut self) {
        if !self.selected_group().is_empty() {
            self.fold();
        }
    }

    /// Returns the rows of the process table, by process and device.
    fn places(&self) -> Vec<Place> {
        let rows = self.rows();
        rows.iter().map(|row| (row.who, row.holding.gpu)).collect()
    }

    /// Keeps the rows in their present order while a dialog is open, so that its row does not move.
    pub fn pin_rows(&mut self) {
        let pin = matches!(
            self.overlay,
            Some(Overlay::Dialog(_) | Overlay::Question(_))
        );
        match (pin, &self.choices.pinned) {
            (true, None) => self.choices.pinned = Some(self.places()),
            (false, Some(_)) => self.choices.pinned = None,
            _ => {}
        }
    }

    /// Returns the process and the device that a key acts on: the shown process, the selected one, or the only one. A
    /// row that is not on the screen is never returned.
    pub fn subject(&self) -> Subject {
        let data = self.data();
        if let Screen::Detail(who) = self.choices.screen {
            let shown = data.process(who).and_then(|p| self.shown_gpu(p));
            return shown.map_or(Subject::Nothing, |gpu| Subject::This(who, gpu));
        }
        let places = self.selectable();
        let selected = self.choices.selected;
        let here = places
            .iter()
            .find(|(who, gpu)| Some(*who) == selected && *gpu == self.choices.gpu);
        if !self.selected_group().is_empty() {
            return Subject::Group;
        }
        match (here, selected, places.as_slice()) {
            (Some((who, gpu)), _, _) => Subject::This(*who, *gpu),
            (None, None, [(who, gpu)]) if self.choices.folded.is_empty() => {
                Subject::This(*who, *gpu)
            }
            (None, Some(who), _) => Subject::Hidden(who),
            (None, None, _) => Subject::Nothing,
        }
    }

    /// Moves the selection by `by` rows.
    pub fn select(&mut self, by: isize) {
        let order = self.selectable();
        let now = self.choices.selected.and_then(|who| {
            let here = |place: &Place| *place == (who, self.choices.gpu);
            let same = |place: &Place| place.0 == who;
            order.iter().position(here).or(order.iter().position(same))
        });
        let last = order.len().saturating_sub(1);
        let next = match now {
            Some(now) => now.saturating_add_signed(by).min(last),
            None if by == -1 => last,
            None => 0_usize.saturating_add_signed(by - 1).min(last),
        };
        let next = order.get(next).copied();
        self.choices.selected = next.map(|(who, _)| who);
        // In the list of all devices a process has a row for each. The device of the row is shown and edited.
        if let Some((_, gpu)) = next.filter(|(_, gpu)| *gpu != self.choices.gpu) {
            self.show_gpu(gpu);
        }
    }

    /// Shows a device.
    pub fn show_gpu(&mut self, gpu: usize) {
        let mut choices = std::mem::take(&mut self.choices);
        choices.show_gpu(gpu, self.data());
        self.choices = choices;
    }
}

/// The item under the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// A row of the table, or a lane.
    Process(Who, usize),
    /// The heading of a column.
    Heading(usize),
    /// A device.
    Gpu(usize),
    /// The line of a group, by its first row.
    Group(Who, usize),
    /// An alert, by its position in the list.
    Alert(usize),
}

/// The item that the mouse holds while its button is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grip {
    /// The mark of a process's quota below the bar of a device's memory.
    Quota(Who, usize),
    /// The time of the lanes.
    Lanes,
    /// The strip of the last hour, or of the recording.
    Strip,
}

/// The value to which the mouse has dragged an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// The new quota in bytes.
    Quota(Who, usize, u64),
    /// The moment to show.
    Moment(u64),
}

/// A process on a device.
pub type Place = (Who, usize);

/// The target of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A process on a device.
    This(Who, usize),
    /// A folded group.
    Group,
    /// A process is selected, but the list does not show it.
    Hidden(Who),
    /// No process is selected.
    Nothing,
}
