//! The past on the screen: a moment of the recording that is played, or of the last hour.

use std::path::PathBuf;

use anyhow::Result;
use tokio::sync::mpsc::UnboundedSender;

use super::{Dashboard, screen};
use crate::operator::News;
use crate::state::past::HOUR_NS;
use crate::{moments, view};
use gpushare_observe::source::replay::{RUN_UP_NS, Replay};
use gpushare_observe::source::ring;
use gpushare_sample::Sample;

/// Time after which a sample can be read in the recording of the last hour.
const WRITTEN_NS: u64 = 2_000_000_000;

/// The recording of the last hour, opened to show moments of it.
struct LastHour {
    replay: Replay,
    /// The moment from which on it is read, and the moment at which it was opened.
    span_ns: [u64; 2],
}

/// The part of the loop's state that concerns the past.
#[derive(Default)]
pub(super) struct Past {
    last_hour: Option<LastHour>,
    /// Set once a thread reads the recording for its marks.
    pub(super) is_read: bool,
}

impl Dashboard {
    /// Loads the moment that is to be shown.
    pub(super) fn load(&mut self, past: &mut Past) {
        if !self.state.is_past() {
            past.last_hour = None;
            return;
        }
        let window = view::window(screen(), &self.state);
        let end_ns = window.end;
        let Some(moment_ns) = self.state.wanted(end_ns) else {
            return;
        };
        let loaded = match self.state.is_played() {
            true => moments::load(&mut self.state, &mut *self.source, window),
            false => self
                .last_hour(past, moment_ns.min(window.start))
                .and_then(|replay| moments::load(&mut self.state, replay, window)),
        };
        if loaded.is_err() {
            self.state.show(None, None, end_ns);
        }
    }

    /// Returns the recording of the last hour, so that it can be read from this moment on.
    fn last_hour<'p>(&self, past: &'p mut Past, from_ns: u64) -> Result<&'p mut Replay> {
        let from_ns = from_ns.saturating_sub(RUN_UP_NS);
        let newest_ns = self.state.moment_ns().unwrap_or(0);
        let serves = |hour: &LastHour| {
            let [first, opened] = hour.span_ns;
            // Samples that are written later, or just now, are not seen.
            first <= from_ns && newest_ns.saturating_add(WRITTEN_NS) <= opened
        };
        let known = past.last_hour.take().filter(serves);
        let hour = match known {
            Some(known) => known,
            None => LastHour {
                replay: Replay::open_parts(self.parts_from(from_ns)?)?,
                span_ns: [from_ns, self.state.live_ns()],
            },
        };
        Ok(&mut past.last_hour.insert(hour).replay)
    }

    /// Returns the files of the last hour from a moment on.
    fn parts_from(&self, from_ns: u64) -> Result<Vec<PathBuf>> {
        let place = match &self.ring {
            Some(ring) => ring.dir().to_owned(),
            // Another dashboard may keep the ring.
            None => ring::place(&self.dir)?,
        };
        ring::parts_from(&place, self.state.unix_ms_at(from_ns))
    }

    /// Starts a thread that finds the marks of the recording, or of the part of the last hour before this program began.
    pub(super) fn read_marks(&mut self, began_ns: u64, news: UnboundedSender<News>) {
        let now_ns = self.state.live_ns();
        let parts = match self.state.is_played() {
            true => Ok(self.recording.clone()),
            false => self.parts_from(now_ns.saturating_sub(HOUR_NS)),
        };
        let judge = self.state.begin_anew();
        let unix_ms = self.state.unix_ms_at(now_ns);
        let played = self.state.is_played();
        // The clock of the segments begins anew with each boot of the machine.
        let is_of_this_boot = move |sample: &Sample| {
            let ago_ms = (now_ns.saturating_sub(sample.time_ns) / 1_000_000) as i64;
            (unix_ms - ago_ms).abs_diff(sample.unix_ms) < 60_000
        };
        let is_wanted =
            move |sample: &Sample| played || sample.time_ns < began_ns && is_of_this_boot(sample);
        let read = move || {
            let marks = |marks| news.send(News::Marks(marks)).is_ok();
            let replay = parts.and_then(Replay::open_parts);
            let read = replay
                .and_then(|mut replay| moments::find_marks(&mut replay, judge, is_wanted, marks));
            // Without the recording there are fewer marks.
            drop(read);
            let _ = news.send(News::Marks(Vec::new()));
        };
        drop(std::thread::Builder::new().name("marks".into()).spawn(read));
    }
}
