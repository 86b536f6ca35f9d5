//! The line of a device's time: the shares of the last seconds with work under the lock, with the lock held idle, with
//! work without the lock, and idle.

use crate::palette::Role;
use crate::state::State;
use crate::view::pen::Pen;
use gpushare_base::text::units::short_time;
use gpushare_observe::data::Data;

/// The width of the bar.
const BAR: u16 = 18;
/// A smaller share is not shown.
const NEWS: f32 = 0.005;

/// The minimum width for whole words.
const WIDE: u16 = 98;

pub(super) fn draw(pen: &mut Pen<'_>, y: u16, state: &State, gpu: usize) {
    let data = state.data();
    if pen.width() < WIDE {
        return narrow(pen, y, data, gpu);
    }
    // The waits come first: the rest may be cut.
    let mut x = pen.pieces(
        1,
        y,
        &[
            ("wait p99 ", Role::Dim),
            (&longest(data, gpu), Role::Text),
            ("   time ", Role::Dim),
        ],
    );
    let glyphs = pen.glyphs();
    let Some(shares) = data.efficiency(gpu) else {
        pen.put(x, y, unknown(data, gpu), pen.style(Role::Dim));
        return;
    };
    let parts = [
        (
            shares.used,
            glyphs.full,
            Role::Text,
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
        let text = format!("  {:>2.0}% ", share * 100.0);
        let fits = usize::from(pen.width().saturating_sub(x)) >= text.len() + word.len();
        if fits && (always || share >= NEWS) {
            x = pen.put(x, y, &text, pen.style(Role::Text));
            let role = if role == Role::Warn && share >= 0.1 {
                role
            } else {
                Role::Dim
            };
            x = pen.put(x, y, word, pen.style(role));
        }
    }
    let of = format!("  ({})", data.span(gpu).words());
    if usize::from(pen.width().saturating_sub(x)) >= of.len() {
        pen.put(x, y, &of, pen.style(Role::Dim));
    }
}

/// Describes the 99th percentile of the waits.
fn longest(data: &Data, gpu: usize) -> String {
    let wait = data.span(gpu).wait_p99_ns;
    wait.map_or("-".into(), short_time)
}

/// Explains why there is no efficiency. For a MIG instance NVML reports less than for a whole GPU.
fn unknown(data: &Data, gpu: usize) -> &'static str {
    let device = data.sample.devices.get(gpu);
    match device.and_then(|device| device.nvml.util_percent) {
        Some(_) => "not known yet",
        None => "NVML tells no utilisation",
    }
}

/// Draws the line in few words, the waits first.
fn narrow(pen: &mut Pen<'_>, y: u16, data: &Data, gpu: usize) {
    let mut x = pen.pieces(
        1,
        y,
        &[
            ("wait p99 ", Role::Dim),
            (&longest(data, gpu), Role::Text),
            ("  time", Role::Dim),
        ],
    );
    let Some(shares) = data.efficiency(gpu) else {
        pen.put(x + 1, y, unknown(data, gpu), pen.style(Role::Dim));
        return;
    };
    let wasted = match shares.wasted >= 0.1 {
        true => Role::Warn,
        false => Role::Dim,
    };
    for (share, word, role, always) in [
        (shares.used, "busy", Role::Dim, true),
        (shares.wasted, "held idle", wasted, true),
        (shares.beside, "busy without lock", Role::Dim, false),
        (shares.idle, "free", Role::Dim, true),
    ] {
        if !always && share < NEWS {
            continue;
        }
        let text = format!(" {:>2.0}% ", share * 100.0);
        if usize::from(pen.width().saturating_sub(x)) < text.len() + word.len() {
            break;
        }
        x = pen.put(x, y, &text, pen.style(Role::Text));
        x = pen.put(x, y, word, pen.style(role));
    }
}
