//! Exports: a moment as text, JSON, SVG or HTML, a recording as an animation, and the parser of moments.

use std::path::Path;

use anyhow::{Context, Result, bail};
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use shm_layout::SegmentDir;

use super::app::{self, Next};
use super::keys::press::Press;
use super::operator::{self, Task};
use super::options::Format;
use super::state::State;
use super::view::{self, Look};
use crate::svg::{self, Shown};
use gpushare_base::text::units::parse_duration;
use gpushare_observe::source::Source;

/// The forms of an export, by the suffix of the file.
pub const FORMS: [(&str, Form); 4] = [
    ("txt", Form::Text),
    ("json", Form::Json),
    ("svg", Form::Svg),
    ("html", Form::Html),
];

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The screen as lines.
    Text,
    /// The document that `--once --format json` prints.
    Json,
    /// The screen as an image.
    Svg,
    /// A page for a browser.
    Html,
}

impl Form {
    /// Returns the form for a file's suffix.
    pub fn of(path: &Path) -> Result<Self, String> {
        let end = path.extension().unwrap_or_default();
        let form = FORMS.iter().find(|(name, _)| end == *name);
        form.map(|(_, form)| *form)
            .ok_or_else(|| "the file's name must end in .txt, .json, .svg or .html".into())
    }
}

/// Draws the screen in this size.
pub fn frame(state: &State, look: &Look, (width, height): (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    view::draw_into(&mut buffer, area, state, look);
    buffer
}

/// Returns the lines of a screen.
pub fn lines(frame: &Buffer) -> String {
    let line = |y| -> String {
        (0..frame.area.width)
            .map(|x| frame[(x, y)].symbol())
            .collect()
    };
    let lines = (0..frame.area.height).map(|y| format!("{}\n", line(y).trim_end()));
    lines.collect()
}

/// Writes the shown moment in a form.
pub fn moment(state: &State, look: &Look, size: (u16, u16), form: Form) -> Result<Vec<u8>> {
    Ok(match form {
        Form::Text => lines(&frame(state, look, size)).into_bytes(),
        Form::Svg => svg::svg(&[shown(state, look, size, 0)]).into_bytes(),
        Form::Html => view::page::file(state, look).into_bytes(),
        Form::Json => {
            let mut out = Vec::new();
            super::once::print(&mut out, state, Format::Json, None, true)?;
            out
        }
    })
}

/// Draws the screen for dark and light pages.
fn shown(state: &State, look: &Look, size: (u16, u16), ms: u64) -> Shown {
    look.shown(ms, |look| frame(state, look, size))
}

/// Time for which a key that was pressed is shown, in milliseconds.
const KEY_MS: u64 = 2_500;

/// Draws the key in the middle of the last line.
fn draw_key(page: &mut Buffer, text: &str) {
    let area = page.area;
    let x = area.width.saturating_sub(text.chars().count() as u16) / 2;
    let style = Style::reset().add_modifier(Modifier::REVERSED | Modifier::BOLD);
    page.set_string(x, area.height.saturating_sub(1), text, style);
}

/// Time for which a frame of an animation is shown, in milliseconds.
const FRAME_MS: u64 = 500;
/// Maximum number of frames; a longer recording skips some.
const FRAMES: usize = 120;
/// Time for which the last frame is shown, in milliseconds.
const LAST_MS: u64 = 2_000;

/// The host name in an animation, which replaces the real one because animations are published.
const ANY_HOST: &str = "gpu-1";
const ANY_DIR: &str = "/dev/shm/gpushare";

/// Writes the rest of a recording as an animation. The keys are pressed in it; their edits are those of the recording, and none
/// is made. A key that lists the edits shows those of the audit log beside the segments in `dir`.
pub fn screencast(
    source: &mut dyn Source,
    state: &mut State,
    look: &Look,
    size: (u16, u16),
    (presses, dir): (&[Press], &Path),
) -> Result<String> {
    let mut frames: Vec<Shown> = Vec::new();
    let (mut due, mut step, mut first) = (0, FRAME_MS, None);
    let mut waiting = presses.iter().peekable();
    let mut pressed: Option<&Press> = None;
    while let Some(mut sample) = source.next()? {
        let now = sample.time_ns / 1_000_000;
        let since = now - *first.get_or_insert(now);
        sample.host = ANY_HOST.into();
        sample.segment.dir = ANY_DIR.into();
        state.update(sample);
        while let Some(press) = waiting.next_if(|press| press.at_ms <= since) {
            if let Some(key) = press.key
                && let Next::Do(Task::ReadAudit) = app::key(state, key)
            {
                app::news(state, operator::read_audit(&SegmentDir::at(dir)));
            }
            pressed = Some(press);
        }
        if now < due {
            continue;
        }
        due = now + step;
        let mut shown = shown(state, look, size, step);
        if let Some(press) = pressed.filter(|press| since < press.at_ms + KEY_MS) {
            let pages = [Some(&mut shown.dark), shown.light.as_mut()];
            pages
                .into_iter()
                .flatten()
                .for_each(|page| draw_key(page, &press.shown));
        }
        frames.push(shown);
        if frames.len() == FRAMES {
            // Keeps every other frame, for twice as long.
            let mut number = 0;
            frames.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            step *= 2;
            frames.iter_mut().for_each(|frame| frame.ms = step);
        }
    }
    let Some(last) = frames.last_mut() else {
        bail!("there is nothing in the recording");
    };
    last.ms = LAST_MS;
    Ok(svg::svg(&frames))
}

/// Parses a moment into the segments' clock: `-10m` before the end, `+90s` after the beginning, a time of day, or a day
/// and a time. The recording spans `[first, last]`, each by the segments' clock and the wall clock.
pub fn at(text: &str, span: [(u64, i64); 2], zone: &TimeZone) -> Result<u64> {
    let [(first_ns, first_ms), (last_ns, last_ms)] = span;
    let ago = |text: &str| parse_duration(text).map_err(|error| anyhow::anyhow!("{error}"));
    if let Some(text) = text.strip_prefix('-') {
        return Ok(last_ns.saturating_sub(ago(text)?).max(first_ns));
    }
    if let Some(text) = text.strip_prefix('+') {
        return Ok(first_ns.saturating_add(ago(text)?).min(last_ns));
    }
    let wall =
        |ms: i64| Ok::<_, jiff::Error>(Timestamp::from_millisecond(ms)?.to_zoned(zone.clone()));
    let (first, last) = (wall(first_ms)?, wall(last_ms)?);
    let timed = |form: &str| Time::strptime(form, text).ok();
    let dated = |form: &str| DateTime::strptime(form, text).ok();
    let wanted = if let Some(time) = timed("%H:%M:%S").or_else(|| timed("%H:%M")) {
        let same_day = first.date().to_datetime(time).to_zoned(zone.clone())?;
        // A minute is named by its beginning, which may be just before the recording's.
        match same_day.timestamp().as_millisecond() + 60_000 > first_ms {
            true => same_day,
            false => same_day.checked_add(1.day())?,
        }
    } else {
        let dated = dated("%Y-%m-%d %H:%M:%S").or_else(|| dated("%Y-%m-%d %H:%M"));
        let dated = dated.with_context(|| {
            format!("\"{text}\" is no moment; write 03:00, \"2026-01-31 03:00\", -10m (before the end) or +90s")
        })?;
        dated.to_zoned(zone.clone())?
    };
    let ms = wanted.timestamp().as_millisecond();
    if ms + 60_000 < first_ms || ms > last_ms {
        let shown = |zoned: &jiff::Zoned| zoned.strftime("%F %T").to_string();
        bail!(
            "the recording is from {} to {}; {} is not in it",
            shown(&first),
            shown(&last),
            shown(&wanted)
        );
    }
    let since = u64::try_from(ms - first_ms).unwrap_or(0);
    Ok(first_ns
        .saturating_add(since.saturating_mul(1_000_000))
        .min(last_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_found_by_what_a_person_calls_it() {
        const S: u64 = 1_000_000_000;
        let utc = TimeZone::UTC;
        // From 23:50 to 00:50.
        let first_ms = 1_763_682_600_000;
        let span = [(5_000 * S, first_ms), (8_600 * S, first_ms + 3_600_000)];
        let second = |text: &str| at(text, span, &utc).unwrap() / S;
        assert_eq!(second("-10m"), 8_000);
        assert_eq!(second("-2h"), 5_000);
        assert_eq!(second("+90s"), 5_090);
        assert_eq!(second("23:55"), 5_300);
        assert_eq!(second("00:10:30"), 6_230, "the next day");
        assert_eq!(second("2025-11-21 00:00"), 5_600);
        for wrong in ["03:00", "soon", "-soon", "2025-11-20 00:00"] {
            assert!(at(wrong, span, &utc).is_err(), "{wrong}");
        }
        let error = at("03:00", span, &utc).unwrap_err().to_string();
        assert_eq!(
            error,
            "the recording is from 2025-11-20 23:50:00 to 2025-11-21 00:50:00; 2025-11-21 03:00:00 is not in it"
        );
    }
}
