//! One process: how long it holds and waits, its memory over ten minutes, its events, and who stood in its way.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};

use super::pen::Pen;
use super::{Look, events, footer, histogram};
use crate::sample::{Histogram, Holding, ProcessSample, quantile};
use crate::top::palette::Role;
use crate::top::state::{Data, State, Who};
use crate::units::{human_size, short_count, short_size, short_time};

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, who: Who) {
    let data = state.data();
    let Some(process) = data.process(who) else {
        return;
    };
    let Some(holding) = process.on(state.choices.gpu).or(process.devices.first()) else {
        return;
    };
    let [top, times, rest, bottom] = Layout::vertical([
        Constraint::Max(6 + u16::from(process.trace.is_some())),
        Constraint::Fill(3),
        Constraint::Fill(4),
        Constraint::Length(u16::from(area.height > 3)),
    ])
    .areas(area);
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]);
    let [holds, waits] = halves.areas(times);
    let [memory, log] = halves.areas(rest);
    let palette = &look.palette;

    summary(&mut Pen::new(buffer, top, palette), data, process, holding);
    let lock = &holding.lock;
    let ends: Vec<String> = shares(lock.ends.iter().map(|(end, n)| (end.word().to_owned(), *n)));
    let ends = format!("ended by: {}", ends.join("  "));
    let panel = histogram::Panel {
        title: "Holds by length",
        counts: &lock.hold_hist,
        line: &quantiles(&lock.hold_hist),
        note: &ends,
        role: Role::Good,
    };
    panel.draw(&mut Pen::new(buffer, holds, palette));
    let blockers = lock
        .waited_for
        .iter()
        .map(|(slot, ns)| (blocker(data, Who::Slot(*slot)), *ns));
    let blockers = format!("waited for: {}", shares(blockers).join("  "));
    let panel = histogram::Panel {
        title: "Waits by length",
        counts: &lock.wait_hist,
        line: &quantiles(&lock.wait_hist),
        note: &blockers,
        role: Role::Warn,
    };
    panel.draw(&mut Pen::new(buffer, waits, palette));
    chart(&mut Pen::new(buffer, memory, palette), data, who, holding);
    let mut pen = Pen::new(buffer, log, palette);
    let title = format!("Events  {}", state.choices.events.word());
    events::list(&mut pen.pane(&title, "l others"), state, look, Some(who));
    footer::draw(&mut Pen::new(buffer, bottom, palette), state);
}

fn blocker(data: &Data, who: Who) -> String {
    match data.process(who) {
        Some(_) => data.letter(who).to_string(),
        None => "gone".into(),
    }
}

/// Each count as a share of all, with its name.
fn shares(counts: impl Iterator<Item = (String, u64)>) -> Vec<String> {
    let counts: Vec<_> = counts.collect();
    let sum = counts.iter().map(|(_, n)| *n).fold(0, u64::saturating_add);
    let percent = |n: u64| n as f64 * 100.0 / sum.max(1) as f64;
    counts
        .into_iter()
        .take(6)
        .map(|(name, n)| format!("{name} {:.0}%", percent(n)))
        .collect()
}

fn summary(pen: &mut Pen<'_>, data: &Data, process: &ProcessSample, holding: &Holding) {
    let who = Who::of(process);
    let title = format!(
        "{} {} {}",
        data.letter(who),
        process.shown_pid(),
        process.name()
    );
    let mut inside = pen.pane(&title, "Down Up other processes   Esc back");
    let now = data.sample.time_ns;
    let quota = holding.quota_bytes.map_or("no quota".into(), human_size);
    let none = || "none".to_owned();
    let cap = process
        .cap_percent
        .map_or_else(none, |cap| format!("{cap}%"));
    let up = match process.slot {
        Some(_) => short_time(now.saturating_sub(process.registered_ns)),
        None => "?".into(),
    };
    let mut lines = vec![
        format!(
            "{}   user {}   container {}   group {}   up {up}",
            if process.exe.is_empty() {
                "?"
            } else {
                &process.exe
            },
            process.user,
            process.container.as_deref().unwrap_or("none"),
            group(data, process, holding.gpu),
        ),
        format!(
            "GPU{}  used {}   peak {}   quota {quota} ({})   NVML counts {}",
            holding.gpu,
            human_size(holding.used_bytes),
            human_size(holding.peak_bytes),
            if holding.quota_source.is_empty() {
                "nobody"
            } else {
                &holding.quota_source
            },
            holding.nvml_bytes.map_or_else(none, human_size),
        ),
        format!(
            "launches {}   copies {}   syncs {}   denials {}   pinned {}   stepped aside {}",
            short_count(holding.launches),
            short_count(holding.copies),
            short_count(holding.syncs),
            holding.denials,
            short_size(holding.pinned_bytes),
            short_count(holding.bypasses),
        ),
        format!(
            "weight {}   priority {}   cap {cap}   yields {} ({})   holds so far {}   forced {}   late {}",
            process.weight,
            process.priority,
            holding.lock.rule,
            if holding.lock.rule_source.is_empty() {
                "nobody"
            } else {
                &holding.lock.rule_source
            },
            short_count(holding.lock.acquisitions),
            holding.lock.forced,
            holding.late_drains,
        ),
    ];
    if let Some(trace) = process.trace {
        let line = format!(
            "trace {}   records {}{}   dropped {}   t {} it",
            trace.state.word(),
            short_count(trace.records),
            trace
                .room
                .map(|room| format!(" of {}", short_count(room.into())))
                .unwrap_or_default(),
            short_count(trace.dropped),
            if trace.room.is_some() {
                "stops"
            } else {
                "starts"
            },
        );
        lines.push(line);
    }
    for (line, y) in lines.iter().zip(0..inside.height()) {
        inside.put_within(1, y, line, u16::MAX, inside.style(Role::Text));
    }
}

/// The process's group and how much of its quota the members hold together.
fn group(data: &Data, process: &ProcessSample, gpu: usize) -> String {
    let Some(name) = &process.group else {
        return "none".into();
    };
    let known = data.sample.groups.iter().find(|group| group.name == *name);
    let used = known.and_then(|group| group.used_bytes.get(gpu)).copied();
    match (
        used,
        known
            .and_then(|group| group.quota_bytes.get(gpu))
            .copied()
            .flatten(),
    ) {
        (Some(used), Some(quota)) => {
            format!("{name} ({} of {})", short_size(used), short_size(quota))
        }
        _ => name.clone(),
    }
}

/// Half of the times and nearly all, as far as the buckets tell.
fn quantiles(histogram: &Histogram) -> String {
    let count: u64 = histogram.iter().map(|n| u64::from(*n)).sum();
    let show = |q| quantile(histogram, q).map_or("-".into(), short_time);
    format!(
        "{} times   p50 ~{}   p99 ~{}",
        short_count(count),
        show(0.5),
        show(0.99)
    )
}

fn chart(pen: &mut Pen<'_>, data: &Data, who: Who, holding: &Holding) {
    let quota = holding.quota_bytes.map_or("no quota".into(), human_size);
    let mut inside = pen.pane(&format!("Memory, last 10 min  quota line {quota}"), "");
    let columns = inside.width().saturating_sub(7);
    let rows = inside.height().saturating_sub(1);
    let Some(pulse) = data.pulse(who, holding.gpu) else {
        return;
    };
    let points = pulse.memory(columns.into());
    let highest = points.iter().flatten().copied().max().unwrap_or(0);
    let top = highest.max(holding.quota_bytes.unwrap_or(0)).max(1);
    let top = top.saturating_add(top / 8);
    let levels = u64::from(rows) * 8;
    let level = |bytes: u64| {
        u64::try_from(u128::from(bytes) * u128::from(levels) / u128::from(top)).unwrap_or(levels)
    };
    let quota_row = holding.quota_bytes.map(|bytes| level(bytes) / 8);
    let colour = inside.palette.process(data.hue(who));
    for row in 0..rows {
        let base = u64::from(rows - 1 - row) * 8;
        for (column, point) in (0..columns).zip(&points) {
            let eighths = point.map_or(0, |bytes| {
                level(bytes)
                    .max(u64::from(bytes > 0))
                    .saturating_sub(base)
                    .min(8)
            });
            let glyph = match usize::try_from(eighths).unwrap_or(0) {
                0 if quota_row == Some(base / 8) => (inside.glyphs().line, inside.style(Role::Bad)),
                0 => continue,
                part => (inside.glyphs().rising[part - 1], colour),
            };
            inside.glyph(7 + column, row, glyph.0, glyph.1);
        }
    }
    inside.put_before(6, 0, &short_size(top), inside.style(Role::Dim));
    inside.put_before(6, rows.saturating_sub(1), "0", inside.style(Role::Dim));
    inside.put(7, rows, "-10m", inside.style(Role::Dim));
    let right = inside.width();
    inside.put_before(right, rows, "now", inside.style(Role::Dim));
}
