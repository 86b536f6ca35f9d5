//! What the dashboard knows and what the user has chosen: everything a frame is drawn from.
//!
//! [`Data`] follows from samples alone, [`Choices`] from keys alone, the alerts from the data. Drawing takes them by
//! reference and changes nothing. Nothing in here knows the size of the screen.

mod choices;
pub mod rows;

pub use choices::{Choices, Notice, Screen, Tree};

use std::collections::HashSet;

use super::overlay::Overlay;
use super::rules::Rule;
use super::rules::watch::Watch;
use crate::rules::action::RuleAction;
use gpushare_observe::data::Data;
use gpushare_observe::data::log::Log;
use gpushare_observe::data::wait_attribution::Waits;
use gpushare_sample::columns::Row;
use gpushare_sample::{Origin, ProcessSample, Sample, Who};

/// An edit of another operator that is older is no news.
const FRESH_NS: u64 = 6_000_000_000;

/// The dashboard's whole state.
#[derive(Default)]
pub struct State {
    live: Data,
    /// What is shown instead of `live` while the screen is frozen.
    frozen: Option<Box<Data>>,
    /// What the user has chosen.
    pub choices: Choices,
    /// What lies over the screen.
    pub overlay: Option<Overlay>,
    /// The generations that this dashboard made.
    pub own_edits: HashSet<u64>,
    /// The rules of the settings.
    watch: Watch,
    /// What they want done.
    actions: Vec<RuleAction>,
}

impl State {
    /// The newest sample, whatever is shown, for what the next one can use of it.
    pub fn newest(&mut self) -> &mut Sample {
        &mut self.live.sample
    }

    /// Takes in a sample. While frozen it is remembered and not shown.
    pub fn update(&mut self, sample: Sample) {
        let fresh = sample.time_ns.saturating_sub(FRESH_NS);
        let mut others = sample
            .edits
            .iter()
            .filter(|edit| edit.time_ns >= fresh && !self.own_edits.contains(&edit.generation));
        let news = others
            .next_back()
            .map(|edit| format!("edited: {}", edit.told(sample.time_ns, "to")));
        self.live.update(sample);
        if let Some(news) = news {
            self.choices.say(news, false, &self.live);
        }
        if self.live.is_measured() {
            self.judge();
        }
        self.choices
            .settle(self.frozen.as_deref().unwrap_or(&self.live));
    }

    /// Looks for what is wrong.
    fn judge(&mut self) {
        let before = std::mem::take(&mut self.live.alerts);
        let mut found = gpushare_observe::alerts::find(&self.live, &before);
        let (own, actions) = self.watch.update(&self.live, &found);
        if self.live.sample.origin != Origin::Replay {
            self.actions.extend(actions);
        }
        found.extend(own);
        found.sort_by_key(gpushare_observe::alerts::rank);
        self.live.alerts = found;
    }

    /// Watches by these rules of the settings.
    pub fn watch_by(&mut self, rules: Vec<Rule>) {
        self.watch = Watch::new(rules);
    }

    /// What rules of the settings want done now.
    pub fn take_actions(&mut self) -> Vec<RuleAction> {
        std::mem::take(&mut self.actions)
    }

    /// What to draw.
    pub fn data(&self) -> &Data {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    /// Is the screen frozen?
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// What happened lately, whatever is shown.
    pub fn log(&self) -> &Log {
        &self.live.log
    }

    /// The newest moment that is known, whatever is shown.
    pub fn live_ns(&self) -> u64 {
        self.live.sample.time_ns
    }

    /// A moment by the clock on the wall.
    pub fn unix_ms_at(&self, time_ns: u64) -> i64 {
        self.live.sample.unix_ms_at(time_ns)
    }

    /// How far behind the present the frozen picture is.
    pub fn frozen_ns(&self) -> Option<u64> {
        let frozen = self.frozen.as_ref()?;
        Some(
            self.live
                .sample
                .time_ns
                .saturating_sub(frozen.sample.time_ns),
        )
    }

    /// Shows another moment, frozen: what a state knows that took in the samples up to there.
    pub fn freeze_at(&mut self, moment: &Self) {
        self.frozen = Some(Box::new(moment.live.clone()));
        self.choices.settle(&moment.live);
    }

    /// Freezes the screen, or lets it go on.
    pub fn toggle_freeze(&mut self) {
        self.frozen = match self.frozen.take() {
            Some(_) => None,
            None => Some(Box::new(self.live.clone())),
        };
        self.choices
            .settle(self.frozen.as_deref().unwrap_or(&self.live));
    }

    /// The rows of the process table as they are filtered and sorted now.
    pub fn rows(&self) -> Vec<Row<'_>> {
        rows::rows(self.data(), &self.choices)
    }

    /// Waits and blockers on the shown device.
    pub fn waits(&self) -> Waits {
        self.data().waits(self.choices.gpu, self.choices.lately)
    }

    /// Which device the screen shows of a process: the chosen one, else its first.
    pub fn shown_gpu(&self, process: &ProcessSample) -> Option<usize> {
        let holding = process
            .uses()
            .find(|h| h.gpu == self.choices.gpu)
            .or(process.uses().next());
        holding.map(|holding| holding.gpu)
    }

    /// What one may select now, in the order of the screen: processes, each on a device.
    fn selectable(&self) -> Vec<Place> {
        match self.choices.screen {
            Screen::Waits => {
                let lines = self.waits().lines.into_iter();
                lines.map(|line| (line.who, self.choices.gpu)).collect()
            }
            Screen::Main | Screen::Detail(_) => self.places(),
        }
    }

    /// The rows of the process table, by name.
    fn places(&self) -> Vec<Place> {
        let rows = self.rows();
        rows.iter().map(|row| (row.who, row.holding.gpu)).collect()
    }

    /// Keeps the rows in their present order while a dialog lies over them, so that what it is about does not move away
    /// from under it.
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

    /// The process that a key is about, and the device: the shown one, the selected one, or the only one. What is not on
    /// the screen is never meant.
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
        match (here, selected, places.as_slice()) {
            (Some((who, gpu)), _, _) | (None, None, [(who, gpu)]) => Subject::This(*who, *gpu),
            (None, Some(who), _) => Subject::Hidden(who),
            (None, None, _) => Subject::Nothing,
        }
    }

    /// Moves the selection `by` rows.
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
        // The list of all devices has each process once for each: what is shown and edited is the row's.
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

/// What lies under the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// A row of the table, or a lane.
    Process(Who, usize),
    /// The heading of a column.
    Heading(usize),
    /// A device.
    Gpu(usize),
    /// An alert, by its place in the list.
    Alert(usize),
}

/// What the mouse holds while its button is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grip {
    /// The mark of a process's quota below the bar of a device's memory.
    Quota(Who, usize),
    /// The time line of the lanes, at this column of the screen.
    Time(u16),
}

/// Where the mouse has pulled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// So much the quota would be.
    Quota(Who, usize, u64),
    /// So far the picture would go on, or back, in nanoseconds.
    Time(i64),
}

/// A process on a device.
pub type Place = (Who, usize);

/// What a key is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// This process on this device.
    This(Who, usize),
    /// One is selected, and the list does not show it.
    Hidden(Who),
    /// None is selected.
    Nothing,
}
