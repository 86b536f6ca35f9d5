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
/// The colour of text on a dark and on a light page.
pub const TEXT: [&str; 2] = ["#d8d8d8", "#24292f"];
/// The colour of a dark and of a light page.
pub const GROUND: [&str; 2] = ["#16181d", "#f6f8fa"];

/// A picture of an image or an animation, in the colours for a dark and for a light page.
#[derive(Debug)]
pub struct Shown {
    /// On a dark ground.
    pub dark: Buffer,
    /// On a light ground, with the same text; `None` if the picture is dark on every page.
    pub light: Option<Buffer>,
    /// Time for which it is shown, in milliseconds.
    pub ms: u64,
}

/// Pairs of colours on a dark and on a light page, each written once as a class.
#[derive(Default)]
struct Colours(Vec<[String; 2]>);

impl Colours {
    /// Returns the number of the class.
    fn class(&mut self, pair: [String; 2]) -> usize {
        let known = self.0.iter().position(|known| *known == pair);
        known.unwrap_or_else(|| {
            self.0.push(pair);
            self.0.len() - 1
        })
    }

    /// Returns the rules of the style sheet. A viewer that knows no media queries shows the dark page.
    fn rules(&self) -> String {
        let rules = |page: usize| -> String {
            let rule = |(number, pair): (usize, &[String; 2])| {
                format!(".c{number}{{fill:{}}}", pair[page])
            };
            self.0.iter().enumerate().map(rule).collect()
        };
        format!(
            "{}@media(prefers-color-scheme:light){{{}[opacity]{{opacity:.7}}}}",
            rules(0),
            rules(1)
        )
    }
}

/// Returns one image, or an animation that repeats. All frames have the size of the first.
pub fn svg(frames: &[Shown]) -> String {
    let area = frames
        .first()
        .map(|frame| frame.dark.area)
        .unwrap_or_default();
    let (columns, rows) = (area.width, area.height);
    let width = f32::from(columns) * WIDTH + 2.0 * EDGE;
    let height = f32::from(rows) * HEIGHT + 2.0 * EDGE;
    let mut colours = Colours::default();
    let has_light = frames.iter().all(|frame| frame.light.is_some());
    let pages = [0, usize::from(has_light)];
    let [ground, text] =
        [GROUND, TEXT].map(|pair| colours.class(pages.map(|page| pair[page].to_owned())));
    // A row with the same content in many frames is written once.
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut rows_written, mut film) = (String::new(), String::new());
    for (number, frame) in frames.iter().enumerate() {
        let x = number as f32 * width;
        let _ = write!(film, "<g transform=\"translate({x:.1} 0)\">");
        for y in 0..rows {
            let row = row(frame, y, pages, &mut colours);
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
         <style>text{{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}}{}{}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" class=\"c{ground}\"/>\n<defs>\n{rows_written}</defs>\n<g class=\"film c{text}\">\n{film}</g>\n</svg>\n",
        colours.rules(),
        animation(frames, width)
    )
}

/// Returns the animation that moves the strip of frames by one at a time.
fn animation(frames: &[Shown], width: f32) -> String {
    let whole: u64 = frames.iter().map(|frame| frame.ms).sum();
    if frames.len() < 2 || whole == 0 {
        return String::new();
    }
    let mut steps = String::new();
    let mut at = 0;
    for (number, frame) in frames.iter().enumerate() {
        let percent = at as f64 / whole as f64 * 100.0;
        let x = -(number as f32) * width;
        let _ = write!(steps, "{percent:.3}%{{transform:translateX({x:.1}px)}}");
        at += frame.ms;
    }
    let seconds = whole as f64 / 1000.0;
    format!("@keyframes film{{{steps}}}.film{{animation:film {seconds:.2}s step-end infinite}}")
}

/// Returns one row at height 0: text of one style is one element, as wide as its cells in any font.
fn row(frame: &Shown, y: u16, pages: [usize; 2], colours: &mut Colours) -> String {
    let mut out = String::new();
    let mut x = 0;
    let light = frame.light.as_ref().unwrap_or(&frame.dark);
    let styles = |x| [&frame.dark, light].map(|page| page[(x, y)].style());
    while x < frame.dark.area.width {
        let style = styles(x);
        let from = x;
        let mut text = String::new();
        while x < frame.dark.area.width && styles(x) == style {
            text += frame.dark[(x, y)].symbol();
            x += 1;
        }
        run(
            &mut out,
            from,
            x - from,
            &text,
            Styles { style, pages },
            colours,
        );
    }
    out
}

/// Returns the colours of letters and ground on one page; no ground is that of the page.
fn inks(style: Style, page: usize) -> (String, Option<String>) {
    let colour = |colour: Option<Color>, usual: &str| {
        colour.and_then(hex).unwrap_or_else(|| usual.to_owned())
    };
    let ink = colour(style.fg, TEXT[page]);
    match style.add_modifier.contains(Modifier::REVERSED) {
        true => (colour(style.bg, GROUND[page]), Some(ink)),
        false => (ink, style.bg.and_then(hex)),
    }
}

/// The styles of a text on both pages, and the pages' numbers in [`TEXT`] and [`GROUND`].
struct Styles {
    style: [Style; 2],
    pages: [usize; 2],
}

fn run(
    out: &mut String,
    from: u16,
    cells: u16,
    text: &str,
    Styles { style, pages }: Styles,
    colours: &mut Colours,
) {
    let is = |modifier| style[0].add_modifier.contains(modifier);
    let [(dark, dark_ground), (light, light_ground)] = [0, 1].map(|at| inks(style[at], pages[at]));
    let left = EDGE + f32::from(from) * WIDTH;
    let width = f32::from(cells) * WIDTH;
    if dark_ground.is_some() || light_ground.is_some() {
        let ground =
            |ground: Option<String>, page: usize| ground.unwrap_or_else(|| GROUND[page].to_owned());
        let class = colours.class([
            ground(dark_ground, pages[0]),
            ground(light_ground, pages[1]),
        ]);
        let _ = write!(
            out,
            "<rect x=\"{left:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" class=\"c{class}\"/>"
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
    if [dark.as_str(), &light] != pages.map(|page| TEXT[page]) {
        let _ = write!(out, " class=\"c{}\"", colours.class([dark, light]));
    }
    if is(Modifier::BOLD) {
        out.push_str(" font-weight=\"bold\"");
    }
    if is(Modifier::DIM) {
        out.push_str(" opacity=\".55\"");
    }
    out.push('>');
    text.chars().for_each(|letter| push_letter(out, letter));
    out.push_str("</text>");
}

/// Writes a letter of a text so that it is no markup.
pub fn push_letter(out: &mut String, letter: char) {
    match letter {
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '&' => out.push_str("&amp;"),
        // XML documents must not contain control characters.
        letter if letter.is_control() => out.push(' '),
        letter => out.push(letter),
    }
}

/// Returns a colour as style sheets write it; `None` for a colour that only a terminal knows.
pub fn hex(colour: Color) -> Option<String> {
    match colour {
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        _ => None,
    }
}
