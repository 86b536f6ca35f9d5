//! What became of a device's last seconds: worked under the lock, held and idle, worked without the lock, neither.

use crate::sample::{Histogram, quantile};
use crate::text::units::short_time;
use crate::top::data::Data;
use crate::top::data::history::JUDGED_NS;
use crate::top::palette::Role;
use crate::top::state::State;
use crate::top::view::pen::Pen;

/// The columns of the bar.
const BAR: u16 = 18;
/// A share below this is no news.
const NEWS: f32 = 0.005;

pub(super) fn draw(pen: &mut Pen<'_>, y: u16, state: &State, gpu: usize) {
    let data = state.data();
    let mut x = pen.put(1, y, "time ", pen.style(Role::Dim));
    let glyphs = pen.glyphs();
    if let Some(shares) = data.efficiency(gpu) {
        let parts = [
            (
                shares.used,
                glyphs.full,
                Role::Good,
                "busy under the lock",
                true,
            ),
            (shares.wasted, glyphs.wait, Role::Warn, "held idle", true),
            (
                shares.beside,
                glyphs.full,
                Role::Dim,
                "busy without the lock",
                false,
            ),
            (shares.idle, glyphs.empty, Role::Dim, "free", true),
        ];
        let mut sum = 0.0;
        let (from, mut column) = (x, 0);
        for (share, glyph, role, ..) in parts {
            sum += share;
            let end = ((sum * f32::from(BAR)).round() as u16).min(BAR);
            while column < end {
                let style = pen.style(role);
                pen.glyph(from + column, y, glyph, style);
                column += 1;
            }
        }
        x = from + BAR;
        for (share, _, role, word, always) in parts {
            if always || share >= NEWS {
                x = pen.put(
                    x,
                    y,
                    &format!("  {:>2.0}% ", share * 100.0),
                    pen.style(Role::Text),
                );
                let role = if role == Role::Warn && share >= 0.1 {
                    role
                } else {
                    Role::Dim
                };
                x = pen.put(x, y, word, pen.style(role));
            }
        }
        let of = format!(
            "  (last {:.0} s)",
            JUDGED_NS.min(data.seen_ns()) as f64 / 1e9
        );
        x = pen.put(x, y, &of, pen.style(Role::Dim));
    } else {
        x = pen.put(x, y, "NVML tells no utilisation", pen.style(Role::Dim));
    }
    let wait = wait_p99(data, gpu).map_or("-".into(), short_time);
    pen.put(
        x + 3,
        y,
        &format!("wait p99 ~{wait}"),
        pen.style(Role::Text),
    );
}

/// The 99th percentile of the waits of all processes there, as far as the buckets tell.
fn wait_p99(data: &Data, gpu: usize) -> Option<u64> {
    let mut all = Histogram::default();
    for (_, holding) in data.sample.holdings(gpu) {
        for (sum, count) in all.iter_mut().zip(&holding.lock.wait_hist) {
            *sum = sum.saturating_add(*count);
        }
    }
    quantile(&all, 0.99)
}
