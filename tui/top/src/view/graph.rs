//! A graph of a value over time: rising columns, with the maximum at the left and the time below.

use ratatui::style::Style;

use super::pen::Pen;
use crate::palette::Role;
use gpushare_base::text::units::format_duration;

/// The width of the labels at the left.
const LABELS: u16 = 7;

/// A graph in a frame.
pub(super) struct Graph<'a> {
    pub(super) title: &'a str,
    /// The label of the maximum: `100%`, `48.0G`.
    pub(super) top: &'a str,
    /// Returns this many points of the span, oldest first: 0 at the bottom, 1 at the top, `None` for unknown.
    pub(super) points: &'a dyn Fn(usize) -> Vec<Option<f64>>,
    /// A limit drawn as a line, on the same scale.
    pub(super) line: Option<f64>,
    pub(super) span_ns: u64,
    pub(super) style: Style,
}

impl Graph<'_> {
    pub(super) fn draw(&self, pen: &mut Pen<'_>) {
        let mut inside = pen.pane(self.title, "");
        let left = if inside.width() >= 3 * LABELS {
            LABELS
        } else {
            0
        };
        let columns = inside.width().saturating_sub(left);
        let rows = inside.height().saturating_sub(1);
        let levels = f64::from(rows) * 8.0;
        let line = self
            .line
            .map(|share| (share.clamp(0.0, 1.0) * levels / 8.0) as u16);
        let points = (self.points)(columns.into());
        for row in 0..rows {
            let above = rows - 1 - row;
            let base = u32::from(above) * 8;
            for (column, point) in (0..columns).zip(&points) {
                let eighths = point.map_or(0, |share| {
                    let level = (share.clamp(0.0, 1.0) * levels) as u32;
                    // A value above zero is visible, however small.
                    level
                        .max(u32::from(share > 0.0))
                        .saturating_sub(base)
                        .min(8)
                });
                let (glyph, style) = match eighths as usize {
                    0 if line == Some(above) => (inside.glyphs().line, inside.style(Role::Bad)),
                    0 => continue,
                    part => (inside.glyphs().rising[part - 1], self.style),
                };
                inside.glyph(left + column, row, glyph, style);
            }
        }
        let dim = inside.style(Role::Dim);
        if left > 0 {
            inside.put_before(left - 1, 0, self.top, dim);
            inside.put_before(left - 1, rows.saturating_sub(1), "0", dim);
        }
        let right = inside.width();
        inside.put(
            left,
            rows,
            &format!("-{}", format_duration(self.span_ns)),
            dim,
        );
        inside.put_before(right, rows, "now", dim);
    }
}
