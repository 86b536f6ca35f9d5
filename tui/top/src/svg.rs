//! Frames as SVG: one as an image, several as an animation. The file needs no script, no font and no image.

use std::collections::HashMap;
use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

/// The size of a cell.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 17.0;
/// The baseline of letters in a cell.
const BASE: f32 = 13.0;
/// The margin around the screen.
const EDGE: f32 = 8.0;
const TEXT: &str = "#d8d8d8";
const GROUND: &str = "#16181d";

/// A frame and the time for which it is shown, in milliseconds.
pub type Shown = (Buffer, u64);

/// Returns one image, or an animation that repeats. All frames have the size of the first.
pub fn svg(frames: &[Shown]) -> String {
    let area = frames
        .first()
        .map(|(frame, _)| frame.area)
        .unwrap_or_default();
    let (columns, rows) = (area.width, area.height);
    let width = f32::from(columns) * WIDTH + 2.0 * EDGE;
    let height = f32::from(rows) * HEIGHT + 2.0 * EDGE;
    // A row with the same content in many frames is written once.
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut rows_written, mut film) = (String::new(), String::new());
    for (number, (frame, _)) in frames.iter().enumerate() {
        let x = number as f32 * width;
        let _ = write!(film, "<g transform=\"translate({x:.1} 0)\">");
        for y in 0..rows {
            let row = row(frame, y);
            if row.is_empty() {
                continue;
            }
            let next = known.len();
            let id = *known.entry(row).or_insert_with_key(|row| {
                let _ = writeln!(rows_written, "<g id=\"r{next}\">{row}</g>");
                next
            });
            let top = EDGE + f32::from(y) * HEIGHT;
            let _ = write!(film, "<use href=\"#r{id}\" y=\"{top}\"/>");
        }
        film += "</g>\n";
    }
    // The attribute keeps runs of blanks in viewers that ignore the style: librsvg, and many viewers based on it.
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\n\
         <style>text{{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}}{}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{GROUND}\"/>\n<defs>\n{rows_written}</defs>\n<g class=\"film\" fill=\"{TEXT}\">\n{film}</g>\n</svg>\n",
        animation(frames, width)
    )
}

/// Returns the animation that moves the strip of frames by one at a time.
fn animation(frames: &[Shown], width: f32) -> String {
    let whole: u64 = frames.iter().map(|(_, ms)| ms).sum();
    if frames.len() < 2 || whole == 0 {
        return String::new();
    }
    let mut steps = String::new();
    let mut at = 0;
    for (number, (_, ms)) in frames.iter().enumerate() {
        let percent = at as f64 / whole as f64 * 100.0;
        let x = -(number as f32) * width;
        let _ = write!(steps, "{percent:.3}%{{transform:translateX({x:.1}px)}}");
        at += ms;
    }
    let seconds = whole as f64 / 1000.0;
    format!("@keyframes film{{{steps}}}.film{{animation:film {seconds:.2}s step-end infinite}}")
}

/// Returns one row at height 0: text of one style is one element, as wide as its cells in any font.
fn row(frame: &Buffer, y: u16) -> String {
    let mut out = String::new();
    let mut x = 0;
    while x < frame.area.width {
        let style = frame[(x, y)].style();
        let from = x;
        let mut text = String::new();
        while x < frame.area.width && frame[(x, y)].style() == style {
            text += frame[(x, y)].symbol();
            x += 1;
        }
        run(&mut out, from, x - from, &text, style);
    }
    out
}

fn run(out: &mut String, from: u16, cells: u16, text: &str, style: Style) {
    let is = |modifier| style.add_modifier.contains(modifier);
    let colour = |colour: Option<Color>, usual: &str| {
        colour.and_then(hex).unwrap_or_else(|| usual.to_owned())
    };
    let (mut ink, mut ground) = (colour(style.fg, TEXT), style.bg.and_then(hex));
    if is(Modifier::REVERSED) {
        (ink, ground) = (colour(style.bg, GROUND), Some(ink));
    }
    let left = EDGE + f32::from(from) * WIDTH;
    let width = f32::from(cells) * WIDTH;
    if let Some(ground) = ground {
        let _ = write!(
            out,
            "<rect x=\"{left:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{ground}\"/>"
        );
    }
    // Blanks at the ends are only space.
    let blank = text.len() - text.trim_start_matches(' ').len();
    let text = text.trim_matches(' ');
    if text.is_empty() {
        return;
    }
    let left = left + blank as f32 * WIDTH;
    let width = text.width() as f32 * WIDTH;
    let _ = write!(
        out,
        "<text x=\"{left:.1}\" y=\"{BASE}\" textLength=\"{width:.1}\""
    );
    if ink != TEXT {
        let _ = write!(out, " fill=\"{ink}\"");
    }
    if is(Modifier::BOLD) {
        out.push_str(" font-weight=\"bold\"");
    }
    if is(Modifier::DIM) {
        out.push_str(" opacity=\".55\"");
    }
    out.push('>');
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // XML documents must not contain control characters.
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out.push_str("</text>");
}

fn hex(colour: Color) -> Option<String> {
    match colour {
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        _ => None,
    }
}
