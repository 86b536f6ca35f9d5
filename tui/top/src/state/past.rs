//! The moment that is shown: the present, or the moment on which the cursor is. A frozen screen, a step back, a recording that is
//! paused and the cursor in the lanes are all this.

use std::ops::Range;
use std::sync::Arc;

use super::State;
use gpushare_observe::data::Data;
use gpushare_sample::Origin;

/// The time before the present that can be shown.
pub const HOUR_NS: u64 = 3_600_000_000_000;
/// Number of columns of the lanes that are shown after the cursor where it moves on beyond their end.
const AHEAD: u64 = 8;

/// A moment of the past that is shown instead of the present.
#[derive(Clone, Debug)]
pub struct Past {
    /// The moment on which the cursor is.
    pub at_ns: u64,
    /// The end of the time that the lanes show.
    pub end_ns: u64,
    /// The data at the end of the lanes.
    around: Arc<Data>,
    /// The data of the moment; `None` if its details are not kept.
    moment: Option<Arc<Data>>,
    /// The moment and the end of the lanes for which both were loaded.
    loaded: [u64; 2],
}

impl State {
    /// Reports whether a moment of the past is shown.
    pub fn is_past(&self) -> bool {
        self.past.is_some()
    }

    /// Returns the moment of the past that is shown.
    pub fn past(&self) -> Option<&Past> {
        self.past.as_ref()
    }

    /// Returns the data to draw: those of the shown moment.
    pub fn data(&self) -> &Data {
        match &self.past {
            None => &self.live,
            Some(past) => past.moment.as_ref().unwrap_or(&past.around),
        }
    }

    /// Returns the data of the lanes, which also show the time after the cursor.
    pub fn around(&self) -> &Data {
        self.past.as_ref().map_or(&self.live, |past| &past.around)
    }

    /// Reports whether the processes and devices of the shown moment are known.
    pub fn has_details(&self) -> bool {
        self.past.as_ref().is_none_or(|past| past.moment.is_some())
    }

    /// Returns the origin of the samples, whichever moment is shown.
    pub fn origin(&self) -> Origin {
        self.live.sample.origin
    }

    /// Reports whether the samples are from a recording.
    pub fn is_played(&self) -> bool {
        self.origin() == Origin::Replay
    }

    /// Returns the first and the last moment that can be shown: those of the recording, or of the last hour.
    pub fn reach(&self) -> [u64; 2] {
        let now_ns = self.live_ns();
        match (self.is_played(), self.span_ns) {
            (true, Some(span)) => span,
            (true, None) => [0, now_ns],
            (false, _) => [now_ns.saturating_sub(HOUR_NS), now_ns],
        }
    }

    /// Returns the span of the cursor: a column of the lanes.
    pub fn cursor(&self) -> Option<Range<u64>> {
        let past = self.past.as_ref()?;
        let column_ns = self.choices.column_ns(self.around());
        let start = past.at_ns / column_ns * column_ns;
        Some(start..start.saturating_add(column_ns))
    }

    /// Returns the moment whose state is shown: the end of the cursor, so that what happens in it has happened.
    pub fn moment_ns(&self) -> Option<u64> {
        let end_ns = self.past.as_ref()?.end_ns;
        Some(self.cursor()?.end.min(end_ns))
    }

    /// Stops the screen at the newest sample.
    pub fn stop(&mut self) {
        let now_ns = self.live_ns();
        let data = Arc::new(self.live.clone());
        self.past = Some(Past {
            at_ns: now_ns,
            end_ns: now_ns,
            around: Arc::clone(&data),
            moment: Some(data),
            loaded: [now_ns; 2],
        });
    }

    /// Puts the cursor on a moment within reach. What it shows is loaded before the next frame.
    pub fn look_at(&mut self, at_ns: u64) {
        if self.past.is_none() {
            self.stop();
        }
        let [first, last] = self.reach();
        let column_ns = self.choices.column_ns(self.around());
        if let Some(past) = &mut self.past {
            past.at_ns = at_ns.clamp(first, last);
            let next_ns = past.at_ns.saturating_add(column_ns);
            if next_ns > past.end_ns {
                past.end_ns = next_ns.saturating_add(AHEAD * column_ns).min(last);
            }
        }
    }

    /// Shows more time in the lanes, or less. The cursor keeps its place on the screen.
    pub fn zoom(&mut self, by: isize) {
        let data = self.around();
        let (zoom, before_ns) = (self.choices.zoom(data), self.choices.column_ns(data));
        self.choices.zoom_by(zoom, by);
        let column_ns = self.choices.column_ns(self.around());
        let [_, last] = self.reach();
        if let Some(past) = &mut self.past {
            let columns = past.end_ns.saturating_sub(past.at_ns) / before_ns;
            let after_ns = columns.saturating_mul(column_ns);
            past.end_ns = past.at_ns.saturating_add(after_ns).min(last);
        }
    }

    /// Returns to the present. Returns the moment that was shown.
    pub fn resume(&mut self) -> Option<u64> {
        let past = self.past.take();
        self.choices.settle(&self.live);
        past.map(|past| past.at_ns)
    }

    /// Returns the moment to load, if it or the lanes up to `end_ns` are not loaded yet.
    pub fn wanted(&self, end_ns: u64) -> Option<u64> {
        let moment_ns = self.moment_ns()?;
        let loaded = self.past.as_ref()?.loaded;
        (loaded != [moment_ns, end_ns]).then_some(moment_ns)
    }

    /// Reports whether the lanes up to `end_ns` are loaded.
    pub fn has_lanes(&self, end_ns: u64) -> bool {
        let mut past = self.past.iter();
        past.all(|past| past.loaded[1] == end_ns)
    }

    /// Returns a state without a sample that judges as this one does, to load another moment.
    pub fn begin_anew(&self) -> Self {
        Self {
            live: self.live.begin_anew(),
            watch: self.watch.begin_anew(),
            ..Self::default()
        }
    }

    /// Shows what was loaded: the lanes up to `end_ns` unless they stay, and the moment if its details are kept.
    pub fn show(&mut self, lanes: Option<Self>, moment: Option<Self>, end_ns: u64) {
        let Some(moment_ns) = self.moment_ns() else {
            return;
        };
        if let Some(past) = &mut self.past {
            if let Some(lanes) = lanes {
                past.around = Arc::new(lanes.live);
            }
            past.moment = moment.map(|moment| Arc::new(moment.live));
            past.loaded = [moment_ns, end_ns];
        }
        let shown = self.past.as_ref().and_then(|past| past.moment.clone());
        if let Some(shown) = shown {
            self.choices.settle(&shown);
        }
    }
}
