//! The line about the newest edit: what each job did before it and does since, in place of the keys for half a minute.

use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::edits::{self, new_first};
use gpushare_base::text::policy::in_words;
use gpushare_base::text::units::short_time;
use gpushare_observe::data::Data;
use gpushare_observe::data::before_after::Change;
use gpushare_observe::rhythm::{P99_CHANCE, RATE_CHANCE};
use gpushare_sample::{EditLine, PolicyKind};

/// Draws the line if there is an edit to tell of. Returns false if there is none.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State) -> bool {
    let Some(edit) = state.compared() else {
        return false;
    };
    let data = state.data();
    let now_ns = data.sample.time_ns;
    let left = edit.until_ns.map(|until| until.saturating_sub(now_ns));
    let keep = if left.is_some() { " close" } else { " keep" };
    let keys = &state.choices.keymap;
    let (undo, word) = match edit.can_be_undone() {
        true => (format!("  {}", keys.letter('u')), " undo  "),
        false => (String::new(), "  "),
    };
    let hints = [
        (
            left.map_or_else(String::new, |left| {
                format!("  reverts in {}", short_time(left))
            }),
            Role::Dim,
        ),
        (undo, Role::Key),
        (word.to_owned(), Role::Dim),
        (keys.key_of(Action::Detail), Role::Key),
        (keep.to_owned(), Role::Dim),
    ];
    let told: usize = hints.iter().map(|(text, _)| text.width()).sum();
    let room = usize::from(pen.width()).saturating_sub(told + 1);
    let mut line = label(data, edit);
    let mut x = pen.put_within(
        1,
        0,
        &line,
        u16::try_from(room).unwrap_or(u16::MAX),
        pen.style(Role::Title),
    );
    let arrow = pen.glyphs().arrow;
    for (at, (text, role)) in jobs(data, state.choices.gpu, arrow).into_iter().enumerate() {
        let text = format!("{}{text}", if at == 0 { ": " } else { ", " });
        line += &text;
        // A job that does not fit is left out as a whole.
        if line.width() > room {
            break;
        }
        x = pen.put(x, 0, &text, pen.style(role));
    }
    for (text, role) in &hints {
        x = pen.put(x, 0, text, pen.style(*role));
    }
    true
}

/// Describes the edit in a few words: a policy by what it does, else the target and the change.
fn label(data: &Data, edit: &EditLine) -> String {
    let old = edit.old.as_deref();
    if let Some(generation) = edit.undoes {
        let undone = data.edit(generation);
        let restored = undone.and_then(|undone| undone.old.as_deref());
        return edits::undone(&edit.target, restored, old, &edit.new);
    }
    match edits::policy(&edit.new) {
        Some(policy) if policy.kind == PolicyKind::Off => policy.kind.to_string(),
        Some(policy) => in_words(&policy),
        None => format!("{}: {}", edit.target, new_first(old, &edit.new)),
    }
}

/// Returns what became of each job, the one of the highest priority first. Where priorities differ, those of the highest have
/// their percentile; all others have their rate.
fn jobs(data: &Data, gpu: usize, arrow: &str) -> Vec<(String, Role)> {
    let changes = data.before_after().changes(gpu);
    if changes.is_empty() {
        return vec![("measuring".to_owned(), Role::Dim)];
    }
    let priority = |change: &Change| {
        data.process(change.who)
            .map_or(i32::MIN, |process| process.share.priority)
    };
    let top = changes.iter().map(priority).max();
    let differ = changes.iter().any(|change| Some(priority(change)) != top);
    let mut jobs: Vec<(bool, &Change)> = changes
        .iter()
        .map(|change| (differ && Some(priority(change)) == top, change))
        .collect();
    jobs.sort_by_key(|(urgent, _)| !urgent);
    let told = jobs.into_iter().filter_map(|(urgent, change)| {
        let name = data.process(change.who)?.name();
        Some(match change.p99_ns {
            (Some(before), Some(since)) if urgent => percentile(name, before, since, arrow),
            _ => rate(name, change.rates),
        })
    });
    told.collect()
}

fn percentile(name: &str, before: u64, since: u64, arrow: &str) -> (String, Role) {
    let text = format!(
        "{name} p99 {} {arrow} {}",
        short_time(before),
        short_time(since)
    );
    let change = since as f64 / before.max(1) as f64 - 1.0;
    (text, role(-change, P99_CHANCE))
}

fn rate(name: &str, (before, since): (f64, f64)) -> (String, Role) {
    if before == 0.0 {
        return (format!("{name} began to work"), Role::Text);
    }
    let change = since / before - 1.0;
    (
        // Without a zero of its own, no change could be written as -0%.
        format!("{name} {:+.0}%", (change * 100.0).round() + 0.0),
        role(change, RATE_CHANCE),
    )
}

/// Returns the colour of a gain or a loss.
fn role(gain: f64, least: f64) -> Role {
    match gain {
        gain if gain > least => Role::Good,
        gain if gain < -least => Role::Bad,
        _ => Role::Text,
    }
}
