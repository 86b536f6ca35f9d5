//! The first line: the source, and the state of the view.

use jiff::Timestamp;

use super::Look;
use super::findings::brief;
use super::pen::Pen;
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::units::short_time;
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

    let then = match sample.origin {
        Origin::Replay => Timestamp::from_millisecond(sample.unix_ms).ok(),
        Origin::Live | Origin::Sim => None,
    };
    let then = then.map(|then| {
        let then = then.to_zoned(look.zone.clone());
        then.strftime("%F %T").to_string()
    });
    let mut flags = vec![(sample.origin.word(), origin_role(sample.origin))];
    if let Some(then) = &then {
        flags.push((then, Role::Text));
    }
    if sample.gpus().any(|gpu| data.is_mps(gpu)) {
        flags.push(("MPS", Role::Good));
    }
    if matches!(sample.nvml, Nvml::Missing(_) | Nvml::Off) {
        flags.push(("no NVML", Role::Warn));
    }
    let position = recording(state);
    if let Some(position) = &position {
        flags.push((position, Role::Text));
    }
    // The age of a frozen screen, so that it is not taken for the present.
    let frozen = state.frozen_ns().map(|age| match sample.origin {
        Origin::Replay => "PAUSED".to_owned(),
        Origin::Live | Origin::Sim => format!("FROZEN {}", brief(age)),
    });
    if let Some(frozen) = &frozen {
        flags.push((frozen, Role::Bad));
    }
    let back = state
        .choices
        .pan
        .saturating_mul(state.choices.column_ns(data));
    let back = (back > 0).then(|| format!("lanes {} ago", short_time(back)));
    if let Some(back) = &back {
        flags.push((back, Role::Warn));
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
    let (host, is_full) = host(&sample.machine);
    let noun = if managed == 1 { "process" } else { "processes" };
    let pieces = [
        ("gpushare-top".to_owned(), Role::Title),
        (format!("  {}", sample.host), Role::Text),
        (format!("  {managed} {noun}{strangers}"), Role::Text),
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

/// Describes the position in a recording: `3m20s of 12m45s`.
fn recording(state: &State) -> Option<String> {
    let [first, last] = state.span_ns?;
    let length = short_time(last.saturating_sub(first));
    Some(match state.data().sample.time_ns.saturating_sub(first) {
        0 => format!("begin of {length}"),
        _ if state.data().sample.time_ns >= last => format!("END of {length}"),
        at => format!("{} of {length}", short_time(at)),
    })
}

fn origin_role(origin: Origin) -> Role {
    match origin {
        Origin::Live => Role::Good,
        Origin::Sim | Origin::Replay => Role::Warn,
    }
}
