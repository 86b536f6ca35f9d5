//! The history on a large screen: the shown device over the last minutes, and beside it the selected process.

use ratatui::layout::{Constraint, Layout, Rect};

use super::graph::Graph;
use super::pen::Pen;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::units::short_size;
use gpushare_observe::data::Data;
use gpushare_observe::data::history::Moment;
use gpushare_observe::data::rates::Past;
use gpushare_sample::{Holding, Who};

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let data = state.data();
    let gpu = state.choices.gpu;
    let selected = state.choices.selected.and_then(|who| {
        let process = data.process(who)?;
        Some((who, process.uses().find(|h| h.gpu == gpu)?))
    });
    let area = pen.area;
    let Some((who, holding)) = selected else {
        device(pen, area, data, gpu);
        return;
    };
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]);
    let [left, right] = halves.areas(area);
    device(pen, left, data, gpu);
    let [holds, waits, bytes] = thirds(right);
    lock(pen, holds, data, who, holding, true);
    lock(pen, waits, data, who, holding, false);
    memory(pen, bytes, data, who, holding);
}

fn thirds(area: Rect) -> [Rect; 3] {
    Layout::horizontal([Constraint::Fill(1); 3]).areas(area)
}

fn device(pen: &mut Pen<'_>, area: Rect, data: &Data, gpu: usize) {
    let Some(history) = data.history(gpu) else {
        return;
    };
    let now = history.last(1).next().unwrap_or_default();
    let most = history.last(usize::MAX).map(|moment| moment.waiting);
    let most = most.fold(1.0_f32, f32::max).ceil();
    let busy = now
        .busy
        .map_or("-".into(), |busy| format!("{:.0}%", busy * 100.0));
    let full = format!("GPU{gpu} memory {:.0}%", now.full * 100.0);
    type Value<'a> = &'a dyn Fn(Moment) -> Option<f32>;
    let graphs: [(&str, &str, Value<'_>, Role); 3] = [
        (
            &format!("GPU{gpu} util {busy}"),
            "100%",
            &|at| at.busy,
            Role::Good,
        ),
        (&full, "100%", &|at| Some(at.full), Role::Title),
        (
            &format!("GPU{gpu} waiting {:.1}", now.waiting),
            &format!("{most:.0}"),
            &|at| Some(at.waiting / most),
            Role::Warn,
        ),
    ];
    for (part, (title, top, value, role)) in thirds(area).into_iter().zip(graphs) {
        let style = pen.style(role);
        let points = |columns| {
            let columns = history.columns(columns).into_iter();
            columns
                .map(|moment| moment.and_then(value).map(f64::from))
                .collect()
        };
        Graph {
            title,
            top,
            points: &points,
            line: None,
            span_ns: history.span_ns(),
            style,
        }
        .draw(&mut pen.part(part));
    }
}

/// Draws the share of its time that a process held the lock, or waited for it.
pub(super) fn lock(
    pen: &mut Pen<'_>,
    area: Rect,
    data: &Data,
    who: Who,
    holding: &Holding,
    holds: bool,
) {
    let Some(rates) = data.rates(who, holding.gpu) else {
        return;
    };
    let spent = data.spent(who, holding.gpu);
    let (word, share, role) = match holds {
        true => ("holds", spent.hold, Role::Good),
        false => ("waits", spent.wait, Role::Warn),
    };
    let value = |past: Past| f64::from(if holds { past.hold() } else { past.wait() });
    let points = |columns| {
        let columns = rates.past.columns(columns).into_iter();
        columns.map(|past| past.map(value)).collect()
    };
    let style = pen.style(role);
    Graph {
        title: &format!("{} {word} {:.0}%", data.letter(who), share * 100.0),
        top: "100%",
        points: &points,
        line: None,
        span_ns: rates.past.span_ns(),
        style,
    }
    .draw(&mut pen.part(area));
}

/// Draws the memory of a process, with its quota as a line.
pub(super) fn memory(pen: &mut Pen<'_>, area: Rect, data: &Data, who: Who, holding: &Holding) {
    let Some(rates) = data.rates(who, holding.gpu) else {
        return;
    };
    let quota = holding.quota.bytes;
    let highest = rates.past.last(usize::MAX).map(Past::bytes).max();
    let top = highest.unwrap_or(0).max(quota.unwrap_or(0)).max(1);
    let top = top.saturating_add(top / 8);
    let share = |bytes: u64| bytes as f64 / top as f64;
    let points = |columns| {
        let columns = rates.past.columns(columns).into_iter();
        columns
            .map(|past| past.map(|past| share(past.bytes())))
            .collect()
    };
    let of = quota.map_or("no quota".into(), |quota| {
        format!("quota {}", short_size(quota))
    });
    let style = pen.palette.process(data.hue(who));
    Graph {
        title: &format!(
            "{} memory {}, {of}",
            data.letter(who),
            short_size(holding.used)
        ),
        top: &short_size(top),
        points: &points,
        line: quota.map(share),
        span_ns: rates.past.span_ns(),
        style,
    }
    .draw(&mut pen.part(area));
}
