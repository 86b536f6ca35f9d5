//! The first line: the source, and the state of the view.

use jiff::Timestamp;

use super::Look;
use super::pen::Pen;
use super::strip::{behind, behind_ns};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_sample::host::Machine;
use gpushare_sample::{Nvml, Origin};

/// Draws the line; `keys` is false in printed output, where no keys can be pressed.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, look: &Look, keys: bool) {
    let data = state.data();
    let sample = &data.sample;
    let managed = sample.processes.iter().filter(|p| p.is_managed()).count();
    let strangers = || sample.processes.iter().filter(|p| p.is_unmanaged());
    let astray = strangers().filter(|p| p.elsewhere.is_some()).count();
    let strangers = strangers().count() - astray;

    // The moment that is shown, so that it is not taken for the present.
    let at_ns = state.moment_ns();
    let form = if state.is_played() { "%F %T" } else { "%T" };
    let then = at_ns.or_else(|| state.is_played().then_some(sample.time_ns));
    let then = then.and_then(|at_ns| Timestamp::from_millisecond(state.unix_ms_at(at_ns)).ok());
    let then = then.map(|then| then.to_zoned(look.zone.clone()).strftime(form).to_string());
    let mut flags = Vec::new();
    let origin = state.origin();
    if at_ns.is_none() || origin != Origin::Live {
        flags.push((origin.word(), origin_role(origin)));
    }
    if let Some(then) = &then {
        flags.push((then, Role::Text));
    }
    if sample.gpus().any(|gpu| data.is_mps(gpu)) {
        flags.push(("MPS", Role::Good));
    }
    if matches!(sample.nvml, Nvml::Missing(_) | Nvml::Off) {
        flags.push(("no NVML", Role::Warn));
    }
    let past = behind_ns(state).map(|ns| match state.is_played() {
        true => "PAUSED".to_owned(),
        false => behind(ns),
    });
    if let Some(past) = &past {
        flags.push((past, Role::Bad));
    }
    if state.choices.read_only {
        flags.push(("read-only", Role::Warn));
    }
    let help = state.choices.keymap.key_of(Action::Help);
    let end = if keys { help.len() + " help ".len() } else { 0 };
    let flags_width = flags.iter().map(|(word, _)| word.len() + 2).sum::<usize>() + end;
    let mut x = pen
        .width()
        .saturating_sub(u16::try_from(flags_width).unwrap_or(0));
    let start = x;
    for (word, role) in flags {
        x = pen.put(x, 0, word, pen.style(role)) + 2;
    }
    if keys {
        pen.pieces(x, 0, &[(&help, Role::Key), (" help", Role::Dim)]);
    }

    let more = |count: usize, what: &str| match count {
        0 => String::new(),
        n => format!(" +{n} {what}"),
    };
    let strangers = more(strangers, "without shim") + &more(astray, "elsewhere");
    let (mut host, is_full) = self::host(&sample.machine);
    let noun = if managed == 1 { "process" } else { "processes" };
    let mut counts = format!("  {managed} {noun}{strangers}");
    if !state.has_details() {
        (counts, host) = Default::default();
    }
    let pieces = [
        ("gpushare-top".to_owned(), Role::Title),
        (format!("  {}", sample.host), Role::Text),
        (counts, Role::Text),
        (host, if is_full { Role::Warn } else { Role::Dim }),
        (format!("  {}", sample.segment.dir), Role::Dim),
    ];
    let mut x = 1;
    for (text, role) in pieces {
        let end = x + u16::try_from(text.chars().count()).unwrap_or(0);
        if end + 1 > start {
            break;
        }
        x = pen.put(x, 0, &text, pen.style(role));
    }
}

/// Use of the host's processors or memory, in per cent, from which a host is full.
const FULL: u64 = 90;

/// Describes the load of the host, and reports whether it is full.
fn host(machine: &Machine) -> (String, bool) {
    let memory = machine.memory_bytes.zip(machine.available_bytes);
    let memory = memory.map(|(all, free)| 100 - free.min(all).saturating_mul(100) / all.max(1));
    let used = [("cpu", machine.cpu_percent.map(u64::from)), ("mem", memory)];
    let used = used
        .into_iter()
        .filter_map(|(word, percent)| Some((word, percent?)));
    let texts: Vec<String> = used
        .clone()
        .map(|(word, percent)| format!(" {word} {percent}%"))
        .collect();
    match texts.is_empty() {
        true => (String::new(), false),
        false => (
            format!("  host{}", texts.concat()),
            used.into_iter().any(|(_, percent)| percent >= FULL),
        ),
    }
}

fn origin_role(origin: Origin) -> Role {
    match origin {
        Origin::Live => Role::Good,
        Origin::Sim | Origin::Replay => Role::Warn,
    }
}
