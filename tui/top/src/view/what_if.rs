//! The foreseen effect of a dialog's values: for each job a ghost of its lane, and its shares now and then.

use std::cmp::Reverse;

use gpushare_observe::data::lanes::Cell;
use gpushare_observe::what_if::Ghost;

use super::lanes;
use super::pen::Pen;
use crate::dialog::{Check, WhatIf};
use crate::palette::Role;
use crate::state::State;
use gpushare_observe::data::Data;

/// Maximum number of jobs that are shown: those whose shares change most.
const MOST: usize = 6;
/// The column where the ghosts of lanes begin.
const LEFT: u16 = 22;
/// The columns behind a ghost, for its shares.
const SHARES: u16 = 30;
/// A job that would get less than this, and a half of what it has, is a warning.
const LITTLE: f64 = 0.05;

/// Returns the number of lines.
pub(super) fn height(foreseen: &WhatIf) -> usize {
    match foreseen {
        Ok(ghosts) => 1 + ghosts.len().min(MOST) + usize::from(ghosts.len() > MOST),
        Err(_) => 1,
    }
}

/// Returns the jobs whose shares change most, in the order of their letters.
fn most_changed(ghosts: &[Ghost]) -> Vec<&Ghost> {
    let mut ranked: Vec<(usize, &Ghost)> = ghosts.iter().enumerate().collect();
    let change = |ghost: &Ghost| ((ghost.then.held - ghost.now).abs() * 1000.0) as u64;
    ranked.sort_by_key(|(_, ghost)| Reverse(change(ghost)));
    ranked.truncate(MOST);
    ranked.sort_by_key(|(at, _)| *at);
    ranked.into_iter().map(|(_, ghost)| ghost).collect()
}

fn gets_little(ghost: &Ghost) -> bool {
    ghost.then.held < LITTLE && ghost.then.held < ghost.now / 2.0
}

fn shares(ghost: &Ghost, arrow: &str) -> String {
    let [now, then] = [ghost.now, ghost.then.held].map(|share| share * 100.0);
    format!("{now:.0}% {arrow} {then:.0}%")
}

/// Describes the change in one sentence, for a screen without room for ghosts.
pub(super) fn in_words(data: &Data, gpu: usize, foreseen: &WhatIf) -> Check {
    let ghosts = match foreseen {
        Ok(ghosts) => most_changed(ghosts),
        Err(why) => return Check::good(unknown(gpu, why)),
    };
    let each = ghosts
        .iter()
        .map(|ghost| format!("{} {}", data.name(ghost.who), shares(ghost, "to")));
    let text = format!("GPU{gpu}: about {}", each.collect::<Vec<_>>().join(", "));
    match ghosts.into_iter().any(gets_little) {
        true => Check::warn(text),
        false => Check::good(text),
    }
}

fn unknown(gpu: usize, why: &str) -> String {
    format!("GPU{gpu}: the shares are not known: {why}")
}

/// Draws the ghosts: what the last seconds would have been.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, gpu: usize, foreseen: &WhatIf) {
    let ghosts = match foreseen {
        Ok(ghosts) => ghosts,
        Err(why) => {
            pen.put(1, 0, "if", pen.style(Role::Dim));
            pen.words(6, 0, &unknown(gpu, why), pen.style(Role::Dim));
            return;
        }
    };
    let data = state.data();
    let width = pen.width().saturating_sub(LEFT + SHARES);
    pen.put(1, 0, "if", pen.style(Role::Key));
    let title = format!("GPU{gpu}: the last 20 s with these values would be about");
    let end = pen.put(6, 0, &title, pen.style(Role::Text));
    pen.words(end + 1, 0, "(same rules, same work)", pen.style(Role::Dim));
    let column_ns = state.choices.column_ns(data);
    let arrow = pen.glyphs().arrow;
    for (ghost, y) in most_changed(ghosts).into_iter().zip(1..pen.height()) {
        let colour = pen.palette.process(data.hue(ghost.who));
        pen.name(6, y, &data.name(ghost.who), LEFT - 7, colour);
        for column in 0..width {
            let from_ns = u64::from(column) * column_ns;
            let cell = cell(ghost, [from_ns, from_ns + column_ns]);
            if let Some((glyph, style)) = lanes::glyph(pen, column, cell, colour) {
                pen.glyph(LEFT + column, y, glyph, style);
            }
        }
        let role = match gets_little(ghost) {
            true => Role::Warn,
            false => Role::Text,
        };
        let x = LEFT + width + 2;
        pen.put(
            x,
            y,
            &format!("{:<14}", shares(ghost, arrow)),
            pen.style(role),
        );
        let waits = format!("waits {:.0}%", ghost.then.waited * 100.0);
        pen.put(x + 15, y, &waits, pen.style(Role::Dim));
    }
    if ghosts.len() > MOST {
        let more = format!("and {} others, which change less", ghosts.len() - MOST);
        pen.put(
            6,
            pen.height().saturating_sub(1),
            &more,
            pen.style(Role::Dim),
        );
    }
}

/// Returns the activity in a span of the foreseen time.
fn cell(ghost: &Ghost, [from_ns, to_ns]: [u64; 2]) -> Cell {
    let share = |spans: &[[u64; 2]]| {
        let first = spans.partition_point(|[_, end]| *end <= from_ns);
        let spans = spans[first..]
            .iter()
            .take_while(|[begin, _]| *begin < to_ns);
        let spent: u64 = spans
            .map(|[begin, end]| end.min(&to_ns) - begin.max(&from_ns))
            .sum();
        spent as f32 / (to_ns - from_ns).max(1) as f32
    };
    Cell {
        hold: share(&ghost.then.turns),
        wait: share(&ghost.then.waits),
        ..Cell::default()
    }
}
