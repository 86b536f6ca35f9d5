//! The sentence on top: the most urgent alert, or that all is well. The pane of the other alerts, one sentence a line. The lists
//! of all alerts and of the reasons why jobs are slow.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr as _;

use super::pen::Pen;
use super::{Look, bars, layout, wrapped};
use crate::keys::Action;
use crate::overlay::{Findings, Overlay};
use crate::palette::{Glyphs, Role};
use crate::state::State;
use gpushare_base::text::units::human_size;
use gpushare_observe::finding::{Finding, Severity};
use gpushare_observe::findings;
use gpushare_sample::Who;
use gpushare_sample::host::Machine;

/// Gap between the parts of the sentence.
const GAP: u16 = 3;

/// Draws the most urgent alert with its remedy and the keys that start it, or that all is well. The keys are never cut.
pub(super) fn sentence(pen: &mut Pen<'_>, state: &State) {
    let alerts = &state.data().alerts;
    let key = |action| state.choices.keymap.key_of(action);
    let Some(alert) = alerts.first() else {
        if let Some(text) = well(state) {
            pen.put(1, 0, &text, pen.style(Role::Good));
        }
        return;
    };
    let (mark, role) = sign(alert.kind.severity);
    pen.put(0, 0, mark, pen.style(role));
    let all = key(Action::Alerts);
    let start = "[1]".to_owned();
    let why = format!("[{}] why", key(Action::Why));
    let whole = alert
        .remedy
        .as_ref()
        .map(|remedy| match remedy.edits.is_empty() {
            true => (remedy.text.clone(), Role::Text),
            false => (format!("{start} {}", remedy.text), Role::Key),
        });
    let brief = alert
        .has_edits()
        .then(|| (format!("{start} fix"), Role::Key));
    let more = match alerts.len() {
        1 => None,
        count => Some((format!("+{} more: {all}", count - 1), Role::Dim)),
    };
    let tail = |remedy: Option<(String, Role)>| -> Vec<(String, Role)> {
        let parts = remedy.into_iter().chain([(why.clone(), Role::Key)]);
        parts.chain(more.clone()).collect()
    };
    let (whole, brief) = (tail(whole), tail(brief));
    let texts = [alert.sentence(), alert.what.clone()];
    let [full, what] = texts.map(|text| wrapped(&text, pen.width().saturating_sub(2)));
    let ways = [(&full, &whole), (&what, &whole), (&what, &brief)];
    let fits = ways
        .iter()
        .find(|(lines, tail)| placed(pen, lines, tail).is_some());
    let (lines, tail) = match fits {
        Some((lines, tail)) => ((*lines).clone(), *tail),
        None => (cut(pen, what.clone(), &brief), &brief),
    };
    let places = placed(pen, &lines, tail).unwrap_or_default();
    for (line, y) in lines.iter().zip(0..) {
        pen.put(2, y, line, pen.style(Role::Text));
    }
    for ((x, y), (text, role)) in places.into_iter().zip(tail) {
        pen.put(x, y, text, pen.style(*role));
    }
}

/// Leaves out words at the end of a text until the parts behind it fit.
fn cut(pen: &Pen<'_>, mut lines: Vec<String>, tail: &[(String, Role)]) -> Vec<String> {
    lines.truncate(pen.height().into());
    while placed(pen, &lines, tail).is_none() {
        let Some(last) = lines.last_mut() else { break };
        let kept = last.trim_end_matches(pen.glyphs().cut).trim_end();
        match kept.rsplit_once(' ') {
            Some((kept, _)) => *last = format!("{kept} {}", pen.glyphs().cut),
            None => drop(lines.pop()),
        }
    }
    lines
}

/// Returns the places of the parts behind the lines of a sentence; `None` if they do not all fit.
fn placed(pen: &Pen<'_>, lines: &[String], tail: &[(String, Role)]) -> Option<Vec<(u16, u16)>> {
    let mut y = u16::try_from(lines.len()).ok()?.checked_sub(1)?;
    let mut x = 2 + lines.last().map_or(0, |line| width(line)) + GAP;
    let mut places = Vec::new();
    for (text, _) in tail {
        if x + width(text) > pen.width() {
            (x, y) = (2, y + 1);
        }
        if y >= pen.height() || x + width(text) > pen.width() {
            return None;
        }
        places.push((x, y));
        x += width(text) + GAP;
    }
    Some(places)
}

/// Describes a machine without an alert.
pub(super) fn well(state: &State) -> Option<String> {
    let data = state.data();
    let processes = data.sample.processes.iter();
    let managed: Vec<_> = processes.filter(|process| process.is_managed()).collect();
    match managed.as_slice() {
        [] => None,
        [one] => Some(format!("{} gets all it asks for", data.name(Who::of(one)))),
        many if many.iter().any(|process| {
            findings::has_too_little(data, process) || findings::shares_without_turns(data, process)
        }) =>
        {
            Some("no alert; x says why a job is slow".into())
        }
        many => Some(format!("all {} get their share", many.len())),
    }
}

/// Draws every alert, for printed output, where no keys can be pressed.
pub(super) fn all(pen: &mut Pen<'_>, state: &State) {
    let now_ns = state.data().sample.time_ns;
    for (alert, y) in state.data().alerts.iter().zip(0..pen.height()) {
        line(pen, y, pen.width(), alert, None, now_ns);
    }
}

/// Draws the alerts behind the first. Their numbers are left out while another list has numbers.
pub(super) fn others(pen: &mut Pen<'_>, state: &State) {
    let now_ns = state.data().sample.time_ns;
    let are_taken = matches!(state.overlay, Some(Overlay::Findings(Findings::Why, _)));
    let others = state.data().alerts.iter().zip(1..).skip(1);
    for ((alert, number), y) in others.zip(0..pen.height()) {
        let key = (number <= KEYS && !are_taken).then(|| format!("[{number}]"));
        line(pen, y, pen.width(), alert, key, now_ns);
    }
}

/// Draws one alert up to column `right`: its word, its age, its sentence, and at the right its remedy behind the keys that
/// start it. The sentence is cut first, because the remedy matters more to the reader.
fn line(pen: &mut Pen<'_>, y: u16, right: u16, alert: &Finding, key: Option<String>, now_ns: u64) {
    let (mark, role) = sign(alert.kind.severity);
    let mut x = pen.put(
        0,
        y,
        &format!("{mark} {:<8}", alert.kind.word),
        pen.style(role),
    );
    if let Some(age) = age(alert, now_ns) {
        let text = format!("{age:<4} ");
        if right >= 76 {
            x = pen.put(x, y, &text, pen.style(Role::Dim));
        }
    }
    let key = key.filter(|_| alert.has_edits());
    let remedy = alert.remedy.as_ref().map(|remedy| match &key {
        Some(key) => format!("{key} {}", remedy.text),
        None => remedy.text.clone(),
    });
    let room = right.saturating_sub(x);
    // If less than half of the sentence fits, the remedy is reduced to its keys.
    let wanted = |text: &String| width(text) + 2;
    let remedy = match remedy {
        Some(text) if wanted(&text) > room / 2 => key,
        remedy => remedy,
    };
    let room = room.saturating_sub(remedy.as_ref().map_or(0, wanted));
    let style = pen.style(Role::Text);
    let end = pen.words_within(x, y, &alert.sentence(), room, style);
    if let Some(remedy) = remedy {
        pen.put_within(
            end + 2,
            y,
            &remedy,
            right.saturating_sub(end + 2),
            pen.style(Role::Key),
        );
    }
}

/// Returns the age of an alert, once it is worth showing: `21s`, or `>21s` if it was so before the first look.
pub(super) fn age(alert: &Finding, now_ns: u64) -> Option<String> {
    let age = now_ns.saturating_sub(alert.since_ns);
    let more = if alert.is_older { ">" } else { "" };
    (age >= 1_000_000_000).then(|| format!("{more}{}", brief(age)))
}

/// Writes a time in at most four characters.
pub(super) fn brief(ns: u64) -> String {
    match ns / 1_000_000_000 {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..356_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", (seconds / 86400).min(999)),
    }
}

fn width(text: &str) -> u16 {
    u16::try_from(text.width()).unwrap_or(u16::MAX)
}

pub(super) fn sign(severity: Severity) -> (&'static str, Role) {
    match severity {
        Severity::Warning => ("!", Role::Bad),
        Severity::Note => ("i", Role::Key),
    }
}

/// Number of findings that a number key reaches.
const KEYS: usize = 9;
/// Width of the bar of a job's time, and the width of a screen from which it is drawn.
const BAR: u16 = 16;
const BAR_FROM: u16 = 72;

/// The fixed words of a list of findings, and the column of its sentences.
struct Frame {
    title: String,
    empty: String,
    keys: &'static str,
    column: u16,
}

impl Frame {
    fn of_alerts(count: usize) -> Self {
        Self {
            title: format!("Alerts  {count}"),
            empty: "no alerts".into(),
            keys: "Down Up: select   Enter or number: open the remedy   Esc close",
            column: 12,
        }
    }

    /// Returns those of the question why it is slow; `bars` are the marks of the bars, where there is room for them.
    fn of_reasons(gpu: usize, bars: Option<&Glyphs>) -> Self {
        let legend = bars.map_or_else(String::new, |glyphs| {
            let (holds, waits, alone) = (glyphs.full, glyphs.wait, glyphs.empty);
            format!("  {holds} holds it {waits} waits {alone} leaves it alone")
        });
        Self {
            title: format!("Why is it slow?  GPU{gpu}{legend}"),
            empty: format!("no job of gpushare is on GPU{gpu}"),
            keys: "Down Up: details   Enter or number: try it for 10m (asks)   Esc close",
            column: if bars.is_some() { BAR + 4 } else { 2 },
        }
    }
}

/// A line of a list: a word, and a part of a sentence beside it.
struct Line {
    /// The number of the finding.
    number: usize,
    word: (String, Role),
    part: (String, Role),
}

/// Returns the lines of the findings in this room; `at` is the selected one.
fn lines(found: &[Finding], which: Findings, at: usize, room: u16, now_ns: u64) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, finding) in found.iter().enumerate() {
        // Of the other jobs the verdict is enough.
        let is_brief = which == Findings::Why && number != at;
        let (sentence, remedy) = match is_brief {
            true => (verdict(finding, number), None),
            false => (finding.sentence(), remedy(finding, number)),
        };
        let of = |text: &str, role| {
            wrapped(text, room)
                .into_iter()
                .map(move |part| (part, role))
        };
        let mut parts: Vec<_> = of(&sentence, Role::Text).collect();
        parts.extend(remedy.iter().flat_map(|remedy| of(remedy, Role::Key)));
        let mut words = Vec::new();
        if which == Findings::Alerts {
            let (mark, role) = sign(finding.kind.severity);
            words.push((format!("{mark} {}", finding.kind.word), role));
            words.extend(age(finding, now_ns).map(|age| (format!("  {age}"), Role::Dim)));
        }
        let height = parts.len().max(words.len());
        parts.resize(height, (String::new(), Role::Text));
        words.resize(height, (String::new(), Role::Text));
        let both = words.into_iter().zip(parts);
        lines.extend(both.map(|(word, part)| Line { number, word, part }));
    }
    lines
}

/// Draws a list of findings with their whole sentences, their remedies and the costs.
pub(super) fn list(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    look: &Look,
    which: Findings,
    at: usize,
) {
    let found = state.findings(which);
    let at = at.min(found.len().saturating_sub(1));
    let gpu = state.choices.gpu;
    let width = area.width.min(118);
    let bars = (width >= BAR_FROM).then_some(look.palette.glyphs);
    let sample = &state.data().sample;
    let (frame, bars, host) = match which {
        Findings::Alerts => (Frame::of_alerts(found.len()), None, None),
        Findings::Why => (Frame::of_reasons(gpu, bars), bars, host(&sample.machine)),
    };
    let room = width.saturating_sub(frame.column + 3);
    let mut lines = lines(&found, which, at, room, sample.time_ns);
    if lines.is_empty() {
        lines.push(Line {
            number: 0,
            word: (String::new(), Role::Dim),
            part: (frame.empty, Role::Dim),
        });
    }
    let below = 1 + u16::from(host.is_some());
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let height = height.saturating_add(below);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&frame.title);
    let bottom = inside.height().saturating_sub(below);
    let begins = lines.partition_point(|line| line.number < at);
    let ends = lines.partition_point(|line| line.number <= at);
    // An entry that does not fit is shown from its beginning.
    let first = ends.saturating_sub(bottom.into()).min(begins);
    let mut drawn = None;
    for (line, y) in lines[first..].iter().zip(0..bottom) {
        let Line { number, word, part } = line;
        let is_first = drawn.replace(*number) != Some(*number);
        let who = found.get(*number).and_then(|finding| finding.who);
        if let Some(who) = who.filter(|_| bars.is_some() && is_first) {
            let style = inside.palette.process(state.data().hue(who));
            bars::split(&mut inside, 2, y, BAR, state.data().spent(who, gpu), style);
        }
        if *number == at && !found.is_empty() {
            inside.put(0, y, inside.glyphs().holder, inside.style(Role::Title));
        }
        inside.put(2, y, &word.0, inside.style(word.1));
        // Only a name can be wider than the line.
        inside.name(frame.column, y, &part.0, u16::MAX, inside.style(part.1));
    }
    if let Some(host) = host {
        inside.put_within(2, bottom, &host, u16::MAX, inside.style(Role::Dim));
    }
    inside.hint(1, bottom + below - 1, frame.keys, inside.style(Role::Dim));
}

/// Describes the host's processors and memory; `None` where the kernel does not report them.
fn host(machine: &Machine) -> Option<String> {
    let (count, used) = (machine.processors?, machine.cpu_percent?);
    let (all, free) = (machine.memory_bytes?, machine.available_bytes?);
    Some(format!(
        "the host: {used}% of {count} processors used, {} of {} memory free",
        human_size(free),
        human_size(all)
    ))
}

/// Returns the fact alone, with the number that starts the remedy.
fn verdict(finding: &Finding, at: usize) -> String {
    match finding.has_edits() && at < KEYS {
        true => format!("{}  [{}]", finding.what, at + 1),
        false => finding.what.clone(),
    }
}

/// Returns the remedy in a list, behind the number that starts it.
fn remedy(finding: &Finding, at: usize) -> Option<String> {
    let text = finding.proposal()?;
    let remedy = finding.remedy.as_ref()?;
    Some(match remedy.edits.is_empty() {
        false if at < KEYS => format!("[{}] {text}", at + 1),
        _ => text,
    })
}
