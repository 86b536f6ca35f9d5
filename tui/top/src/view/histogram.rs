//! A histogram of times: a bar for each octave, then a summary.

use super::bars;
use super::pen::Pen;
use crate::palette::Role;
use gpushare_base::text::units::{short_count, short_time};
use gpushare_sample::{BUCKETS_PER_OCTAVE, Histogram, bucket_start_ns};

/// A histogram in a frame.
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    pub(super) times: &'a Histogram,
    /// The numbers below the bars.
    pub(super) line: &'a str,
    /// A note below the numbers.
    pub(super) note: &'a str,
    pub(super) role: Role,
}

impl Panel<'_> {
    pub(super) fn draw(&self, pen: &mut Pen<'_>) {
        let mut inside = pen.pane(self.title, "");
        let bottom = inside.height();
        let octaves = self.octaves();
        if octaves.iter().any(|count| *count > 0) {
            self.bars(&mut inside, bottom.saturating_sub(2), &octaves);
        } else {
            inside.put(1, 0, "none yet", inside.style(Role::Dim));
        }
        let text = inside.style(Role::Text);
        inside.put_within(1, bottom.saturating_sub(2), self.line, u16::MAX, text);
        let dim = inside.style(Role::Dim);
        inside.put_within(1, bottom.saturating_sub(1), self.note, u16::MAX, dim);
    }

    /// Returns the number of times in each octave: a bar for each bucket would not fit.
    fn octaves(&self) -> Vec<u64> {
        let octaves = self.times.counts.chunks(BUCKETS_PER_OCTAVE);
        octaves
            .map(|counts| counts.iter().map(|count| u64::from(*count)).sum())
            .collect()
    }

    fn bars(&self, pen: &mut Pen<'_>, lines: u16, counts: &[u64]) {
        let room = usize::from(lines);
        let used = |at: &usize| counts[*at] > 0;
        let last = (0..counts.len()).rfind(used).unwrap_or(0);
        let first = (0..counts.len()).find(used).unwrap_or(0);
        // If not all buckets fit, the range with the most counts is shown.
        let latest = first.max((last + 1).saturating_sub(room));
        let said = |from: &usize| -> u64 {
            let shown = counts.iter().skip(*from).take(room);
            shown.sum()
        };
        let first = (first..=latest).rev().max_by_key(said).unwrap_or(first);
        let is_cut = room > 1 && first + room <= last;
        let shown = lines - u16::from(is_cut);
        let most = counts.iter().copied().max().unwrap_or(1).max(1);
        let width = pen.width().saturating_sub(26);
        for (bucket, y) in (first..=last).zip(0..shown) {
            let from = bucket_start_ns(bucket * BUCKETS_PER_OCTAVE);
            let label = format!("{:>6} .. {:<6}", short_time(from), short_time(from * 2));
            pen.put(1, y, &label, pen.style(Role::Dim));
            let share = counts[bucket] as f64 / most as f64;
            let style = pen.style(self.role);
            bars::plain(pen, 18, y, width, share, style);
            let text = short_count(counts[bucket]);
            pen.put(19 + width, y, &text, pen.style(Role::Text));
        }
        if is_cut {
            let more = format!("{} more", pen.glyphs().cut);
            pen.put(1, shown, &more, pen.style(Role::Dim));
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::{Buffer, Cell};
    use ratatui::layout::Rect;

    use super::*;
    use crate::palette::{Depth, Palette};

    #[test]
    fn longer_times_that_have_no_line_are_announced() {
        let mut times = Histogram::default();
        for (ns, count) in [(1_500, 9), (3_000, 5), (6_000, 1), (12_000, 1)] {
            times.add(ns, count);
        }
        let palette = Palette::new(Depth::Mono, false, false);
        let drawn = |height| {
            let area = Rect::new(0, 0, 50, height);
            let mut buffer = Buffer::empty(area);
            let panel = Panel {
                title: "Holds",
                times: &times,
                line: "",
                note: "",
                role: Role::Key,
            };
            panel.draw(&mut Pen::new(&mut buffer, area, &palette));
            let cells = buffer.content.iter().map(Cell::symbol);
            cells.collect::<String>()
        };
        let all = drawn(8);
        assert!(
            all.contains("8us .. 16us") && !all.contains("more"),
            "{all}"
        );
        let most = drawn(7);
        assert!(
            most.contains("2us .. 4us") && most.contains("… more"),
            "{most}"
        );
        assert!(!most.contains("4us .. 8"), "{most}");
    }
}
