//! What the dashboard knows and what the user has chosen: everything a frame is drawn from.
//!
//! [`Data`] follows from samples alone, [`Choices`] from keys alone, the alerts from the data. Drawing takes them by
//! reference and changes nothing. Nothing in here knows the size of the screen.

pub mod alerts;
mod choices;
pub mod filter;
pub mod rows;

pub use choices::{Choices, Notice, Screen};

use super::data::Data;
use super::data::blame::Waits;
use super::overlay::Overlay;
use crate::sample::columns::Row;
use crate::sample::{ProcessSample, Sample, Who};

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
}

impl State {
    /// Takes in a sample. While frozen it is remembered and not shown.
    pub fn update(&mut self, sample: Sample) {
        self.live.update(sample);
        self.live.alerts = alerts::find(&self.live);
        self.choices
            .settle(self.frozen.as_deref().unwrap_or(&self.live));
    }

    /// What to draw.
    pub fn data(&self) -> &Data {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    /// Is the screen frozen?
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
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

    /// The selected process, if it still is there.
    pub fn selected(&self) -> Option<&ProcessSample> {
        let who = self.choices.selected?;
        self.data().process(who)
    }

    /// Moves the selection `by` rows.
    pub fn select(&mut self, by: isize) {
        let order: Vec<Who> = match self.choices.screen {
            Screen::Waits => self.waits().lines.iter().map(|line| line.who).collect(),
            Screen::Main | Screen::Detail(_) => self.rows().iter().map(|row| row.who).collect(),
        };
        let now = self
            .choices
            .selected
            .and_then(|who| order.iter().position(|other| *other == who));
        let last = order.len().saturating_sub(1);
        let next = match now {
            Some(now) => now.saturating_add_signed(by).min(last),
            None if by == -1 => last,
            None => 0_usize.saturating_add_signed(by - 1).min(last),
        };
        self.choices.selected = order.get(next).copied();
    }
}
