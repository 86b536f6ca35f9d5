//! Drawing: from the state to the cells of one frame. Nothing here changes the state, and every size works.

use std::ops::Range;

use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr as _;

use super::palette::{Palette, Role};
use super::state::{Grip, Hit, Pulled, Screen, State};
use super::svg::Shown;

mod bars;
mod comparison;
mod device;
mod empty;
mod events;
mod findings;
mod footer;
mod graph;
mod header;
mod histogram;
mod history;
mod hit;
pub mod hosts;
mod lanes;
mod layout;
mod models;
mod moment;
mod overlay;
pub mod page;
mod pen;
mod process;
mod strip;
mod summary;
mod table;
pub(super) mod waits;
mod what_if;

pub use overlay::help_lines;
use pen::Pen;

/// The look of the screen, fixed at the start.
#[derive(Clone, Debug)]
pub struct Look {
    /// Colours and glyphs.
    pub palette: Palette,
    /// The time zone of the wall clock.
    pub zone: TimeZone,
}

impl Look {
    /// Returns this look on a dark or a light page.
    fn of_image(&self, light: bool) -> Self {
        Self {
            palette: self.palette.for_image(light),
            zone: self.zone.clone(),
        }
    }

    /// Draws a picture for dark and light pages, which is shown for `ms` milliseconds.
    pub fn shown(&self, ms: u64, draw: impl Fn(&Self) -> Buffer) -> Shown {
        let two = self.palette.has_two_pages();
        Shown {
            dark: draw(&self.of_image(false)),
            light: two.then(|| draw(&self.of_image(true))),
            ms,
        }
    }
}

/// Draws one frame.
pub fn draw(frame: &mut Buffer, state: &State, look: &Look) {
    draw_into(frame, frame.area, state, look);
}

/// Draws into the part `area` of a buffer.
pub fn draw_into(buffer: &mut Buffer, area: Rect, state: &State, look: &Look) {
    match state.choices.screen {
        // The others show nothing but details.
        _ if !state.has_details() => main(buffer, area, state, look),
        Screen::Main => main(buffer, area, state, look),
        Screen::Detail(who) => process::draw(buffer, area, state, look, who),
        Screen::Waits => waits::draw(buffer, area, state, look),
        Screen::Models => models::draw(buffer, area, state, look),
    }
    overlay::draw(buffer, area, state, look);
}

/// Returns the item of the main screen at a position.
pub fn hit(area: Rect, state: &State, x: u16, y: u16) -> Option<Hit> {
    hit::at(area, state, x, y)
}

/// Returns the item that the mouse takes hold of at a position.
pub fn grip(area: Rect, state: &State, x: u16, y: u16) -> Option<Grip> {
    hit::grip(area, state, x, y)
}

/// Returns the value of a held item once the mouse is in this column.
pub fn pulled(area: Rect, state: &State, grip: Grip, x: u16) -> Option<Pulled> {
    hit::pulled(area, state, grip, x)
}

/// Returns the time that the lanes of the main screen show.
pub fn window(area: Rect, state: &State) -> Range<u64> {
    let parts = layout::main(area, state);
    lanes::window(pen::inside(parts.lanes, parts.open), state)
}

/// Wraps a text between words into lines of this width; a word that is wider stays whole.
pub fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one from the start");
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// Returns the lines of printed output that stand in place of the table where there are no processes.
fn no_processes(state: &State, width: u16) -> Vec<String> {
    let waiting = state.data().sample.segment.waiting.as_deref();
    let text = waiting
        .unwrap_or("no process uses a GPU through gpushare; start one with gpushare run -- CMD");
    wrapped(text, width)
}

/// Returns the number of lines that [`text`] needs at this width.
pub fn text_height(state: &State, width: u16) -> u16 {
    let data = state.data();
    let table = match data.sample.processes.is_empty() {
        true => no_processes(state, width).len(),
        false => usize::from(table::lines(state)) + 3,
    };
    let devices = data.sample.devices.len();
    let waits = (0..devices).filter(|gpu| waits::sentence(data, *gpu).is_some());
    let lines = 1 + 2 * devices + waits.count() + table + data.alerts.len();
    u16::try_from(lines).unwrap_or(u16::MAX)
}

/// Draws every device, every row and every alert, without moving parts, as `--once` prints them.
pub fn text(buffer: &mut Buffer, area: Rect, state: &State, look: &Look) {
    let palette = &look.palette;
    let data = state.data();
    let mut rest = area;
    let mut part = |height: usize| {
        let height = u16::try_from(height).unwrap_or(u16::MAX).min(rest.height);
        let part = Rect { height, ..rest };
        rest.y += height;
        rest.height -= height;
        part
    };
    header::draw(&mut Pen::new(buffer, part(1), palette), state, look, false);
    for gpu in 0..data.sample.devices.len() {
        device::two_lines(&mut Pen::new(buffer, part(2), palette), state, gpu);
        if let Some(sentence) = waits::sentence(data, gpu) {
            Pen::new(buffer, part(1), palette).pieces(
                1,
                0,
                &[("wait ", Role::Dim), (&sentence, Role::Text)],
            );
        }
    }
    if data.sample.processes.is_empty() {
        for line in no_processes(state, area.width) {
            Pen::new(buffer, part(1), palette).put(0, 0, &line, palette.style(Role::Text));
        }
    } else {
        table::draw(
            &mut Pen::new(buffer, part(usize::from(table::lines(state)) + 3), palette),
            state,
        );
    }
    findings::all(
        &mut Pen::new(buffer, part(data.alerts.len()), palette),
        state,
    );
}

fn main(buffer: &mut Buffer, area: Rect, state: &State, look: &Look) {
    let parts = layout::main(area, state);
    let palette = &look.palette;
    header::draw(
        &mut Pen::new(buffer, parts.header, palette),
        state,
        look,
        true,
    );
    let is_known = state.has_details();
    if is_known {
        findings::sentence(&mut Pen::new(buffer, parts.sentence, palette), state);
        let mut device = Pen::new(buffer, parts.device, palette);
        device::draw(&mut device, state, parts.devices);
        history::draw(&mut Pen::new(buffer, parts.history, palette), state);
        findings::others(&mut Pen::new(buffer, parts.alerts, palette), state);
    }
    if empty::is_shown(state) {
        empty::draw(&mut Pen::new(buffer, parts.lanes, palette), state);
    } else {
        let lanes = Pen::new(buffer, parts.lanes, palette);
        lanes::draw(&mut lanes.opened(parts.open), state, look);
        let table = Pen::new(buffer, parts.table, palette);
        match is_known {
            true => table::draw(&mut table.opened(parts.open), state),
            false => moment::without_details(&mut table.opened(parts.open)),
        }
    }
    strip::draw(&mut Pen::new(buffer, parts.strip(), palette), state);
    events::draw(&mut Pen::new(buffer, parts.events, palette), state, look);
    footer::draw(&mut Pen::new(buffer, parts.footer, palette), state, look);
}
