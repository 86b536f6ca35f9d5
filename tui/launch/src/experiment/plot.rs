//! Results as an SVG: a panel for each figure, a row for each condition, a point for each round.
//!
//! Written by hand: rectangles, lines, circles and text, with colours that follow the reader's light or dark theme.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::results::{Panel, Results, Row, short};

/// All lengths are in pixels.
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 28.0;
/// Where the axis begins and ends.
const LEFT: f64 = 318.0;
const RIGHT: f64 = 738.0;
const ROW: f64 = 30.0;
const TITLE: f64 = 44.0;
const AXIS: f64 = 34.0;
/// Longer names of conditions are cut.
const NAME: usize = 40;

/// What no theme changes.
const STYLE: &str = "\
  text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',Arial,sans-serif;\
font-size:13px}\n  \
.head{font-size:19px;font-weight:600}.title{font-size:15px;font-weight:600}.small{font-size:12px}\n  \
.end{text-anchor:end}.middle{text-anchor:middle}.number{font-variant-numeric:tabular-nums}.strong{font-weight:600}\n  \
.reference{stroke-dasharray:4 4}\n";

/// Colours: what has them, whether it is filled or drawn, on light paper and on dark. Not every program that shows
/// SVG knows variables of CSS, so they are written out.
const COLOURS: &[(&str, &str, &str, &str)] = &[
    (".paper", "fill", "#ffffff", "#0d1117"),
    ("text", "fill", "#1f2328", "#e6edf3"),
    (".soft", "fill", "#656d76", "#8d96a0"),
    (".grid", "stroke", "#e4e8ec", "#2a313a"),
    (".stripe", "fill", "#f6f8fa", "#151b23"),
    (".reference", "stroke", "#656d76", "#8d96a0"),
    (".alone", "both", "#6e7781", "#8d96a0"),
    (".bare", "both", "#24292f", "#e6edf3"),
    (".mps", "both", "#1a7f37", "#3fb950"),
    (".gpushare", "both", "#0969da", "#58a6ff"),
    (".over", "both", "#8250df", "#bc8cff"),
    (".preload", "both", "#bc4c00", "#f0883e"),
];

fn colours(dark: bool) -> String {
    let of = |(what, how, light, night): &(&str, &str, &str, &str)| {
        let colour = if dark { night } else { light };
        match *how {
            "both" => format!("{what}{{fill:{colour};stroke:{colour}}}"),
            how => format!("{what}{{{how}:{colour}}}"),
        }
    };
    COLOURS.iter().map(of).collect()
}

/// The class of a kind of condition, for its colour.
fn class(kind: &str) -> &'static str {
    match kind {
        "alone" => "alone",
        "MPS" => "mps",
        "gpushare" => "gpushare",
        "gpushare over MPS" => "over",
        "preload" => "preload",
        _ => "bare",
    }
}

/// Writes the plot.
pub fn svg(results: &Results<'_>, out: &mut dyn Write) -> io::Result<()> {
    let panels = results.panels();
    let mut body = String::new();
    let mut y = MARGIN + 20.0;
    text(&mut body, MARGIN, y, "head", &results.plan.title);
    y += 22.0;
    let rounds = results.plan.repeats;
    let about = format!(
        "{} · {rounds} round{} of {} s · each point is a round, the bar is the median",
        results.place(),
        if rounds == 1 { "" } else { "s" },
        results.plan.seconds
    );
    text(&mut body, MARGIN, y, "soft", &about);
    for panel in &panels {
        y += 26.0;
        y = draw(&mut body, panel, y);
    }
    let height = y + MARGIN;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n<style>\n{STYLE}  {}\n  \
         @media (prefers-color-scheme:dark){{{}}}\n</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{body}</svg>",
        escaped(&results.plan.title),
        colours(false),
        colours(true),
    )
}

/// Draws a panel and returns where it ends.
fn draw(body: &mut String, panel: &Panel<'_>, top: f64) -> f64 {
    text(body, MARGIN, top + 18.0, "title", &panel.title());
    let better = panel.figure.better.word();
    let unit = match panel.figure.unit.as_str() {
        "" => better.to_owned(),
        unit => format!("{unit} · {better}"),
    };
    text(body, RIGHT, top + 18.0, "soft end", &unit);
    for (x, head) in [(RIGHT + 68.0, "median"), (WIDTH - MARGIN, head(panel))] {
        text(body, x, top + 18.0, "soft end small", head);
    }
    let first = top + TITLE - 12.0;
    let bottom = first + ROW * panel.rows.len() as f64;
    let scale = Scale::of(
        panel
            .rows
            .iter()
            .flat_map(|row| row.samples.iter().copied()),
    );
    for at in 0..panel.rows.len() {
        if at % 2 == 0 {
            let y = first + ROW * at as f64;
            let width = WIDTH - 2.0 * MARGIN + 16.0;
            let x = MARGIN - 8.0;
            line_of(
                body,
                format_args!(
                    "<rect class=\"stripe\" x=\"{x}\" y=\"{y:.1}\" width=\"{width}\" height=\"{ROW}\" rx=\"4\"/>"
                ),
            );
        }
    }
    for tick in scale.ticks() {
        let x = scale.x(tick);
        line_of(
            body,
            format_args!(
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{first:.1}\" y2=\"{bottom:.1}\"/>"
            ),
        );
        text(
            body,
            x,
            bottom + 17.0,
            "soft small middle number",
            &tick_text(tick),
        );
    }
    if let Some(reference) = reference(panel) {
        let x = scale.x(reference);
        line_of(
            body,
            format_args!(
                "<line class=\"reference\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{first:.1}\" y2=\"{bottom:.1}\"/>"
            ),
        );
    }
    for (at, row) in panel.rows.iter().enumerate() {
        mark(body, row, &scale, first + ROW * (at as f64 + 0.5));
    }
    bottom + AXIS - 10.0
}

/// The ratio that the last column has.
fn head(panel: &Panel<'_>) -> &'static str {
    match panel.rows.iter().any(|row| row.of_alone.is_some()) {
        true => "× alone",
        false => "× bare",
    }
}

/// What a dashed line marks: what the ratios are to.
fn reference(panel: &Panel<'_>) -> Option<f64> {
    let of = |kind: &str| panel.rows.iter().find(|row| row.kind == kind)?.median;
    of("alone").or_else(|| of("bare"))
}

/// A condition's name, its points, their spread, and its median.
fn mark(body: &mut String, row: &Row, scale: &Scale, y: f64) {
    let base = y + 4.5;
    let mut name: String = row.condition.chars().take(NAME).collect();
    if name.len() < row.condition.len() {
        name.push('…');
    }
    text(body, MARGIN, base, "", &name);
    let (Some(min), Some(median), Some(max)) = (row.min, row.median, row.max) else {
        let why = row.why.as_deref().unwrap_or("not run");
        let why = why.split(':').next().unwrap_or(why);
        text(body, LEFT + 8.0, base, "soft small", why);
        return;
    };
    let class = class(row.kind);
    let (from, to) = (scale.x(min), scale.x(max));
    line_of(
        body,
        format_args!(
            "<line class=\"{class}\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke-width=\"1.5\" \
         stroke-opacity=\"0.5\"/>"
        ),
    );
    let count = row.samples.len() as f64;
    let apart = (14.0 / count).min(3.5);
    for (at, sample) in row.samples.iter().enumerate() {
        let x = scale.x(*sample);
        // Equal samples stay apart.
        let y = y + (at as f64 - (count - 1.0) / 2.0) * apart;
        line_of(
            body,
            format_args!(
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill-opacity=\"0.4\" stroke-width=\"1\"/>"
            ),
        );
    }
    let x = scale.x(median) - 1.5;
    let above = y - 10.0;
    line_of(
        body,
        format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{above:.1}\" width=\"3\" height=\"20\" rx=\"1.5\" stroke=\"none\"/>"
        ),
    );
    text(
        body,
        RIGHT + 68.0,
        base,
        "end number strong",
        &short(median),
    );
    let ratio = row.of_alone.or(row.of_bare);
    let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    text(body, WIDTH - MARGIN, base, "end number soft", &ratio);
}

fn line_of(body: &mut String, line: std::fmt::Arguments<'_>) {
    // Memory takes all that is written.
    let _ = writeln!(body, "{line}");
}

fn text(body: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let class = match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    line_of(
        body,
        format_args!(
            "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escaped(words)
        ),
    );
}

/// Text of other people's as XML takes it: what does not show becomes a mark.
fn escaped(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            c if shm_layout::text::is_hidden(c) => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

/// An axis from zero, or a logarithmic one where the values lie far apart.
struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// From here on, points at the lower end could no longer be told apart.
    const FAR: f64 = 25.0;

    fn of(samples: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for sample in samples {
            (least, most) = (least.min(sample), most.max(sample));
        }
        if least > most {
            (least, most) = (0.0, 1.0);
        }
        let log = least > 0.0 && most / least > Self::FAR;
        let (from, to) = match log {
            true => (least / 1.3, most * 1.3),
            false => (least.min(0.0), most.max(0.0)),
        };
        match from < to {
            true => Self {
                from,
                to: if log { to } else { to + (to - from) * 0.06 },
                log,
            },
            false => Self {
                from: 0.0,
                to: 1.0,
                log: false,
            },
        }
    }

    fn x(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        LEFT + share * (RIGHT - LEFT)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
            let few = (self.to / self.from).log10() <= 2.5;
            let steps: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all = decades.flat_map(|decade| steps.iter().map(move |s| s * 10f64.powi(decade)));
            return all
                .filter(|tick| (self.from..=self.to).contains(tick))
                .collect();
        }
        let rough = (self.to - self.from) / 6.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
        let step = step
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step).floor() as i64;
        (first..=last).map(|at| at as f64 * step).collect()
    }
}

/// A tick as short as it is exact.
fn tick_text(tick: f64) -> String {
    let text = format!("{tick:.6}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{GOOD, parsed};
    use super::super::results::sample;
    use super::*;

    fn drawn(results: &Results<'_>) -> String {
        let mut out = Vec::new();
        svg(results, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_plot_has_a_row_for_each_condition_and_a_point_for_each_round() {
        let plan = parsed(GOOD).expect("it makes sense");
        let mut results = sample(&plan);
        results.runs.retain(|run| run.condition != "off");
        results.skipped.push(("off".into(), "no room: none".into()));
        let text = drawn(&results);
        assert_eq!(text.matches("<circle").count(), 6);
        assert!(text.contains(">bare</text>") && text.contains(">skipped</text>"));
        // The dashed line of what the ratios are to, and one median for each row with points.
        assert_eq!(text.matches("class=\"reference\"").count(), 1);
        assert_eq!(text.matches("width=\"3\"").count(), 2);
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_name_with_markup_stays_text() {
        let mut plan = parsed(GOOD).expect("it makes sense");
        plan.conditions[1].name = "<script>&\u{202e}\"".into();
        let text = drawn(&sample(&plan));
        assert!(text.contains("&lt;script&gt;&amp;\u{fffd}&quot;"), "{text}");
        assert!(!text.contains("<script") && !text.contains('\u{202e}'));
    }

    #[test]
    fn every_axis_has_its_values_and_a_few_ticks_on_it() {
        for samples in [
            vec![],
            vec![0.0],
            vec![5.0],
            vec![-3.0, 4.0],
            vec![0.001, 0.002],
            vec![1.0, 1e6],
            vec![4.8, 126.0],
            vec![0.0, 1e12],
        ] {
            let scale = Scale::of(samples.iter().copied());
            for sample in &samples {
                let x = scale.x(*sample);
                assert!((LEFT..=RIGHT).contains(&x), "{samples:?}: {sample} at {x}");
            }
            let ticks = scale.ticks();
            assert!((2..=9).contains(&ticks.len()), "{samples:?}: {ticks:?}");
            assert!(ticks.iter().all(|tick| scale.x(*tick).is_finite()));
        }
        assert_eq!(tick_text(0.002), "0.002");
        assert_eq!(tick_text(100.0), "100");
    }
}
