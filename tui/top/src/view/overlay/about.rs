//! The screen about a process's start: its command, its limits and their sources, its CUDA calls, its environment.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use shm_layout::variables;

use crate::overlay::About;
use crate::palette::Role;
use crate::state::State;
use crate::view::{Look, layout, pen::Pen, wrapped};
use gpushare_base::host::launched::Launched;
use gpushare_base::text::units::{human_size, short_count};
use gpushare_sample::{Holding, ProcessSample};

const WIDTH: u16 = 118;
/// The column where the values of limits and calls begin.
const VALUES: u16 = 16;

type Line = (String, String, Role);

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, about: &About) {
    let data = state.data();
    let width = area.width.min(WIDTH);
    let mut lines: Vec<Line> = Vec::new();
    if let Some(process) = data.process(about.who) {
        limits(process, &mut lines);
        calls(process, &mut lines);
    }
    match &about.launched {
        None => heading("Command", &mut lines, Some("reading …")),
        Some(Err(why)) => heading("Command", &mut lines, Some(why)),
        Some(Ok(launched)) => self::launched(launched, width.saturating_sub(4), &mut lines),
    }
    let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&format!("About {}", data.title(about.who)));
    let bottom = inside.height().saturating_sub(1);
    let first = about.scroll.min(lines.len().saturating_sub(bottom.into()));
    for ((word, text, role), y) in lines[first..].iter().zip(0..bottom) {
        let x = inside.put(1, y, word, inside.style(*role));
        let x = if *role == Role::Dim {
            VALUES.max(x + 1)
        } else {
            x
        };
        inside.put_within(x, y, text, u16::MAX, inside.style(Role::Text));
    }
    let keys = "Down Up scroll   any other key closes";
    inside.hint(1, bottom, keys, inside.style(Role::Dim));
}

fn heading(text: &str, lines: &mut Vec<Line>, why: Option<&str>) {
    if !lines.is_empty() {
        lines.push((String::new(), String::new(), Role::Text));
    }
    lines.push((text.into(), String::new(), Role::Title));
    if let Some(why) = why {
        lines.push((String::new(), why.into(), Role::Text));
    }
}

fn limits(process: &ProcessSample, lines: &mut Vec<Line>) {
    if !process.is_managed() {
        return heading("Limits", lines, Some("none: gpushare does not manage it"));
    }
    heading("Limits, and where each comes from", lines, None);
    let mut line = |word: String, value: String, source: &str| {
        lines.push((word, format!("{value:<32} {source}"), Role::Dim));
    };
    for holding in process.uses() {
        let quota = holding.quota.bytes.map_or("no quota".into(), human_size);
        line(
            format!("quota GPU{}", holding.gpu),
            quota,
            holding.quota.source.word(),
        );
        let (policy, source) = holding.policy;
        line(
            format!("policy GPU{}", holding.gpu),
            policy.kind.to_string(),
            source.word(),
        );
    }
    for (about, value, source) in process.settings() {
        if about.is_typed() {
            line(about.word.into(), value, source.word());
        }
    }
    if let Some(group) = &process.group {
        line("group".into(), group.clone(), "");
    }
    if process.invalid {
        line(
            "not understood".into(),
            "a variable of its launch has a bad value".into(),
            "",
        );
    }
}

fn calls(process: &ProcessSample, lines: &mut Vec<Line>) {
    for holding in process.uses().filter(|_| process.is_managed()) {
        heading(&format!("Driver calls on GPU{}", holding.gpu), lines, None);
        for (word, text) in counts(holding) {
            lines.push((word.into(), text, Role::Dim));
        }
    }
}

fn counts(holding: &Holding) -> [(&'static str, String); 4] {
    let c = &holding.counters;
    let n = |count| short_count(count);
    [
        (
            "launched",
            format!(
                "{} kernels   {} graphs   {} captured",
                n(c.launches),
                n(c.graphs),
                n(c.captured)
            ),
        ),
        (
            "moved",
            format!(
                "{} copies of {}   {} memsets",
                n(c.copies),
                human_size(c.copy_bytes),
                n(c.memsets)
            ),
        ),
        (
            "memory",
            format!(
                "{} allocations   {} frees   {} denied   {} waited",
                n(c.allocations),
                n(c.frees),
                n(c.denials),
                n(c.memory_waits)
            ),
        ),
        (
            "synchronised",
            format!(
                "{} by itself   {} drains by gpushare",
                n(c.syncs),
                n(c.drains)
            ),
        ),
    ]
}

fn launched(launched: &Launched, width: u16, lines: &mut Vec<Line>) {
    let plain = |text: String| (String::new(), text, Role::Text);
    heading("Command", lines, None);
    lines.extend(
        wrapped(&launched.command.join(" "), width)
            .into_iter()
            .map(plain),
    );
    if let Some(directory) = &launched.directory {
        lines.push(plain(format!("in {directory}")));
    }
    let variables = match &launched.variables {
        Ok(variables) => variables,
        Err(why) => return heading("Environment", lines, Some(why)),
    };
    let (ours, others): (Vec<_>, Vec<_>) = variables.iter().partition(|(name, _)| is_read(name));
    for (title, some) in [
        ("Variables that gpushare reads", ours),
        ("Environment", others),
    ] {
        let none = some.is_empty().then_some("none");
        heading(title, lines, none);
        for (name, value) in some {
            lines.push((name.clone(), format!("={value}"), Role::Key));
        }
    }
}

/// Reports whether gpushare reads a variable of this name. `_n` in the table stands for a device number.
fn is_read(name: &str) -> bool {
    let without = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    variables::TABLE.iter().any(|known| {
        let of_device = known.name.strip_suffix('n');
        known.name == name || of_device.is_some_and(|start| start == without && without != name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_that_count_are_told_from_the_rest() {
        assert!(is_read("GPUSHARE_MEMORY") && is_read("CUDA_DEVICE_MEMORY_LIMIT_3"));
        assert!(!is_read("HOME") && !is_read("CUDA_DEVICE_MEMORY_LIMIT_"));
    }
}
