//! The moment as a page for a browser: the sentences, a picture of the device and its lanes, the table and the events.
//!
//! The page is one file that takes nothing from elsewhere. Every text that comes from a process, a user or the machine is
//! written by `escaped`. The pictures are images, in which no script runs, and the page's policy allows no other source.

use std::fmt::Write as _;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;
use super::{Look, device, draw_into, events, findings, lanes, layout, table};
use crate::palette::Role;
use crate::state::{Screen, State, rows};
use crate::svg::{self, GROUND, TEXT};
use gpushare_base::text::base64::base64;
use gpushare_base::text::plain::plain;
use gpushare_observe::finding::Finding;
use gpushare_sample::Who;
use gpushare_sample::columns::{Column, Row, Value};

/// Columns of the picture in a wide and in a narrow window.
const WIDE: u16 = 130;
const NARROW: u16 = 60;
/// Rows of a screen that has no lanes.
const ROWS: u16 = 36;
/// Maximum number of rows of the lanes.
const LANES: u16 = 60;
/// Maximum number of events.
const EVENTS: usize = 40;
/// The width of the window, in pixels, up to which it is narrow.
const NARROW_PIXELS: u16 = 760;

/// The style sheet, without colours.
const STYLE: &str = "\
*{box-sizing:border-box}\
body{margin:0 auto;padding:16px;max-width:1140px;font:15px/1.45 system-ui,sans-serif;color:var(--text);background:var(--ground)}\
h1{font-size:22px;margin:0}h2{font-size:16px;margin:24px 0 6px}h2 small{font-weight:normal;color:var(--dim)}\
header p{margin:2px 0 12px;color:var(--dim)}nav a{display:inline-block;margin:0 12px 12px 0;color:var(--key)}nav [aria-current]{font-weight:bold;color:var(--text)}\
.findings p{margin:0 0 8px;padding:8px 12px;border-left:4px solid;background:var(--panel);overflow-wrap:anywhere}\
.findings .good,.findings .bad,.findings .key{font-weight:normal}.findings span{color:var(--text)}.findings .age{color:var(--dim)}\
code{font:13px ui-monospace,monospace;color:var(--text)}\
img{display:block;max-width:100%;height:auto}\
.scroll{overflow-x:auto;background:var(--panel)}\
table{border-collapse:collapse;font:13px/1.6 ui-monospace,'DejaVu Sans Mono',monospace;white-space:nowrap;width:100%}\
th,td{padding:1px 8px;text-align:right}th.t,td.t{text-align:left}thead th{color:var(--dim);font-weight:normal;border-bottom:1px solid var(--border)}\
td.last{width:100%;min-width:24ch;white-space:normal;overflow-wrap:anywhere}tbody tr:hover{background:var(--hover)}\
#lost{position:sticky;bottom:0;margin:16px 0 0;padding:8px 12px;color:var(--ground);background:var(--bad)}\
.bad,.warn,.title,.key{font-weight:bold}";

/// The script of a page that refreshes itself. It replaces only what changes, so that a wide table stays where it was
/// scrolled to, and nothing while text is selected.
const SCRIPT: &str = "\
const all=d=>[...d.querySelectorAll('[data-live]')],images=d=>[...d.querySelectorAll('source,img')],lost=document.querySelector('#lost');\
let since=new Date();\
const say=text=>{lost.hidden=!text;if(lost.textContent!==text)lost.textContent=text};\
async function refresh(){\
if(!document.hidden&&!getSelection().isCollapsed)say('Paused while text is selected');\
else if(!document.hidden)try{\
const answer=await fetch(document.body.dataset.part,{cache:'no-store',signal:AbortSignal.timeout(5000)});\
if(!answer.ok)throw answer.status;\
const fresh=new DOMParser().parseFromString(await answer.text(),'text/html'),old=all(document);\
all(fresh).forEach((part,at)=>old[at].replaceChildren(...part.childNodes));\
const now=images(document);\
images(fresh).forEach((image,at)=>[...image.attributes].forEach(one=>now[at].getAttribute(one.name)===one.value||now[at].setAttribute(one.name,one.value)));\
since=new Date();say('')\
}catch{say('No answer since '+since.toLocaleTimeString()+': gpushare-top has ended, or the connection is gone')}\
setTimeout(refresh,1000)}\
setTimeout(refresh,1000)";

/// The use of a page.
enum Use<'a> {
    /// A file, which stays as it is.
    File,
    /// A page that refreshes itself from the address `part`. Its style and its script carry the nonce.
    Live { part: &'a str, nonce: &'a str },
}

/// Returns the moment as a file.
pub fn file(state: &State, look: &Look) -> String {
    whole(state, look, &Use::File)
}

/// Returns a page that refreshes itself with what the address `part` returns.
pub fn live(state: &State, look: &Look, part: &str, nonce: &str) -> String {
    whole(state, look, &Use::Live { part, nonce })
}

/// Returns the part of a page that changes.
pub fn part(state: &State, look: &Look) -> String {
    main(state, look, true)
}

fn whole(state: &State, look: &Look, used: &Use<'_>) -> String {
    let sample = &state.data().sample;
    let title = match used {
        Use::File => format!("{} {}", sample.host, clock(state, look)),
        Use::Live { .. } => sample.host.clone(),
    };
    let (policy, nonce, part, script) = match used {
        Use::File => {
            let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n";
            (policy, String::new(), String::new(), String::new())
        }
        Use::Live { part, nonce } => {
            let nonce = format!(" nonce=\"{nonce}\"");
            let script = format!("<script{nonce}>{SCRIPT}</script>\n");
            let hint = "<noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>\n";
            (hint, nonce, format!(" data-part=\"{part}\""), script)
        }
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{policy}\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{} gpushare-top</title>\n<style{nonce}>{STYLE}\n{}</style>\n</head>\n\
         <body{part}>\n{}<p id=\"lost\" role=\"status\" hidden></p>\n{script}</body>\n</html>\n",
        escaped(&title),
        colours(look),
        main(state, look, matches!(used, Use::Live { .. })),
    )
}

fn main(state: &State, look: &Look, live: bool) -> String {
    let mut out = String::from("<main>\n");
    let sections = [
        header(state, look, live),
        sentences(state),
        picture(state, look),
        processes(state),
        event_list(state, look),
    ];
    sections.iter().for_each(|section| out += section);
    out + "</main>\n"
}

/// Returns a text as it is written in HTML, also in attributes. Control and hidden characters are shown.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in plain(text).chars() {
        match letter {
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            letter => svg::push_letter(&mut out, letter),
        }
    }
    out
}

fn clock(state: &State, look: &Look) -> String {
    let time = Timestamp::from_millisecond(state.data().sample.unix_ms).unwrap_or_default();
    let time = time.to_zoned(look.zone.clone());
    time.strftime("%F %T %Z").to_string()
}

/// Returns the machine and the moment and, on a page that changes, the links to the devices.
fn header(state: &State, look: &Look, live: bool) -> String {
    let data = state.data();
    let sample = &data.sample;
    let origin = match live {
        true => format!("<b class=\"title\">{}</b> ", sample.origin.word()),
        false => "At ".to_owned(),
    };
    let gpus = match live && sample.devices.len() > 1 {
        true => links(state),
        false => String::new(),
    };
    format!(
        "<header data-live=\"\"><h1>{}</h1><p>{origin}{}, segments in {}</p></header>\n<nav data-live=\"\" aria-label=\"GPUs\">{gpus}</nav>\n",
        escaped(&sample.host),
        escaped(&clock(state, look)),
        escaped(&sample.segment.dir),
    )
}

fn links(state: &State) -> String {
    let link = |gpu: usize| {
        let current = match gpu == state.choices.gpu {
            true => " aria-current=\"page\"",
            false => "",
        };
        format!("<a href=\"{gpu}\"{current}>GPU{gpu}</a>")
    };
    state.data().sample.gpus().map(link).collect()
}

/// Returns the alerts with their remedies, or that all is well.
fn sentences(state: &State) -> String {
    let alerts = &state.data().alerts;
    let text = match (alerts.as_slice(), findings::well(state)) {
        ([], None) => String::new(),
        ([], Some(well)) => format!("<p class=\"good\"><span>{}</span></p>", escaped(&well)),
        (alerts, _) => alerts.iter().map(|alert| sentence(state, alert)).collect(),
    };
    format!("<section class=\"findings\" aria-label=\"Alerts\" data-live=\"\">{text}</section>\n")
}

fn sentence(state: &State, alert: &Finding) -> String {
    let sample = &state.data().sample;
    let (mark, role) = findings::sign(alert.kind.severity);
    let age = findings::age(alert, sample.time_ns);
    let age = age.map_or_else(String::new, |age| {
        format!(" <span class=\"age\">{}</span>", escaped(&age))
    });
    let remedy = alert.proposal().map_or_else(String::new, |text| {
        format!("<br/><span>What helps: {}</span>", escaped(&text))
    });
    let commands = alert.commands(sample).into_iter();
    let commands: String = commands
        .map(|command| format!("<br/><code>{}</code>", escaped(&command)))
        .collect();
    format!(
        "<p class=\"{}\"><b>{mark} {}</b>{age} <span>{}</span>{remedy}{commands}</p>",
        class(role),
        alert.kind.word,
        escaped(&alert.sentence()),
    )
}

/// Returns the picture of the shown device for a wide and a narrow window.
fn picture(state: &State, look: &Look) -> String {
    let image = |columns: u16| {
        let svg = svg::svg(&[look.shown(0, |look| drawn(state, look, columns))]);
        format!("data:image/svg+xml;base64,{}", base64(svg.as_bytes()))
    };
    let sample = &state.data().sample;
    let gpu = state.choices.gpu;
    let name = sample.devices.get(gpu).map_or("", |device| &device.name);
    format!(
        "<section><h2 data-live=\"\">GPU{gpu} <small>{}</small></h2>\n<picture><source media=\"(max-width:{NARROW_PIXELS}px)\" srcset=\"{}\"/>\
         <img alt=\"Memory, holder and lanes of GPU{gpu} as gpushare-top draws them\" src=\"{}\"/></picture></section>\n",
        escaped(name),
        image(NARROW),
        image(WIDE),
    )
}

/// Draws the device and its lanes; of a screen without lanes, all of it.
fn drawn(state: &State, look: &Look, columns: u16) -> Buffer {
    let data = state.data();
    let (how, top) = layout::devices(columns, ROWS, data.sample.devices.len());
    let on_gpu = u16::try_from(data.on(state.choices.gpu).len()).unwrap_or(u16::MAX);
    let rows = match (state.choices.screen, on_gpu) {
        (Screen::Main, 0) => top,
        (Screen::Main, lanes) => top + layout::lanes_height(lanes.saturating_mul(2)).min(LANES),
        _ => ROWS,
    };
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    if state.choices.screen != Screen::Main {
        draw_into(&mut buffer, area, state, look);
        return buffer;
    }
    let (above, below) = (
        Rect {
            height: top,
            ..area
        },
        Rect {
            y: top,
            height: rows - top,
            ..area
        },
    );
    device::draw(&mut Pen::new(&mut buffer, above, &look.palette), state, how);
    let mut lanes = Pen::new(&mut buffer, below, &look.palette);
    lanes::draw(&mut lanes, state, look);
    buffer
}

/// Returns the table of processes, on all devices. Columns that a narrow screen would leave out are hidden in a narrow window.
fn processes(state: &State) -> String {
    let data = state.data();
    let mut choices = state.choices.clone();
    choices.all_gpus = data.sample.devices.len() > 1;
    let rows = rows::rows(data, &choices);
    let columns = |width| table::columns_of(width, &choices, &rows);
    let few: Vec<&str> = columns(NARROW)
        .iter()
        .map(|(column, _)| column.key)
        .collect();
    let columns = columns(WIDE);
    let kind = |column: &Column, text: bool| {
        let side = if text { "t" } else { "" };
        match few.contains(&column.key) {
            true => format!(" class=\"{side}\""),
            false => format!(" class=\"{side} wide\""),
        }
    };
    let is_text = |column: &Column| {
        let mut values = rows.iter().map(|row| (column.value)(row));
        values.any(|value| matches!(value, Value::Text(_)))
    };
    let mut head = String::from("<th></th>");
    for (column, _) in &columns {
        let kind = kind(column, is_text(column));
        let about = escaped(column.about);
        let _ = write!(
            head,
            "<th scope=\"col\"{kind} title=\"{about}\">{}</th>",
            column.title
        );
    }
    let mut body = String::new();
    for row in &rows {
        body += "<tr>";
        let hue = hue(state, row.who);
        let _ = write!(
            body,
            "<td class=\"{hue}\">{}</td>",
            escaped(&row.letter.to_string())
        );
        for (column, _) in &columns {
            cell(&mut body, column, row, &kind(column, is_text(column)));
        }
        body += "</tr>\n";
    }
    let filter = match choices.filter.is_empty() {
        true => String::new(),
        false => format!(", filter: {}", escaped(&choices.filter.to_string())),
    };
    let span = data.span(choices.gpu).words();
    format!(
        "<section><h2 data-live=\"\">Processes <small>{}, {span}{filter}</small></h2>\n<div class=\"scroll\" data-live=\"\"><table>\
         <thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div></section>\n",
        rows.len()
    )
}

fn cell(out: &mut String, column: &Column, row: &Row<'_>, kind: &str) {
    let value = (column.value)(row);
    let role = table::role(column.key, &value, row);
    let shown = escaped(&value.shown());
    let _ = match role {
        Role::Text => write!(out, "<td{kind}>{shown}</td>"),
        role => write!(
            out,
            "<td{kind}><span class=\"{}\">{shown}</span></td>",
            class(role)
        ),
    };
}

fn event_list(state: &State, look: &Look) -> String {
    let mut body = String::new();
    for event in events::words(state, look).take(EVENTS) {
        let hue = event.who.map_or("dim".to_owned(), |who| hue(state, who));
        let _ = writeln!(
            body,
            "<tr><td class=\"t dim\">{}</td><td class=\"t {}\">{}</td><td class=\"t {hue}\">{}</td><td class=\"t last\">{}</td></tr>",
            event.time,
            class(event.role),
            event.kind,
            escaped(&event.process),
            escaped(&event.details),
        );
    }
    let none = match body.is_empty() {
        true => "<p class=\"dim\">no events yet</p>",
        false => "",
    };
    format!(
        "<section><h2>Events <small>newest first</small></h2>\n<div class=\"scroll\" data-live=\"\">{none}<table><tbody>{body}</tbody></table></div></section>\n"
    )
}

/// Returns the class of a process's colour; a process that has ended has none.
fn hue(state: &State, who: Who) -> String {
    let data = state.data();
    match data.process(who) {
        Some(_) => format!("h{}", data.hue(who) % HUES),
        None => "dim".to_owned(),
    }
}

/// Number of colours of processes.
const HUES: usize = 8;

fn class(role: Role) -> &'static str {
    match role {
        Role::Text | Role::Selected => "text",
        Role::Dim => "dim",
        Role::Border => "border",
        Role::Title => "title",
        Role::Key => "key",
        Role::Good => "good",
        Role::Warn => "warn",
        Role::Bad => "bad",
    }
}

/// Returns the rules that colour the page for dark and for light windows.
fn colours(look: &Look) -> String {
    const ROLES: [Role; 6] = [
        Role::Dim,
        Role::Border,
        Role::Key,
        Role::Good,
        Role::Warn,
        Role::Bad,
    ];
    let page = |light: bool| {
        let look = look.of_image(light);
        let page = usize::from(light);
        let (text, ground) = (TEXT[page], GROUND[page]);
        let of = |style: Style| style.fg.and_then(svg::hex);
        let mut rules = format!("--text:{text};--ground:{ground};");
        let [panel, hover] = match light {
            false => ["#1e2128", "#2a2e37"],
            true => ["#ffffff", "#eaeef2"],
        };
        let _ = write!(rules, "--panel:{panel};--hover:{hover};");
        for role in ROLES {
            let dim = match light {
                false => "#9097a3",
                true => "#59636e",
            };
            let colour = of(look.palette.style(role)).unwrap_or_else(|| dim.to_owned());
            let _ = write!(rules, "--{}:{colour};", class(role));
        }
        for hue in 0..HUES {
            let colour = of(look.palette.process(hue)).unwrap_or_else(|| text.to_owned());
            let _ = write!(rules, "--h{hue}:{colour};");
        }
        rules
    };
    let dark = page(false);
    let (scheme, light) = match look.palette.has_two_pages() {
        true => {
            let light = page(true);
            let rule = format!("@media(prefers-color-scheme:light){{:root{{{light}}}}}");
            ("dark light", rule)
        }
        false => ("dark", String::new()),
    };
    let mut rules = format!(":root{{color-scheme:{scheme};{dark}}}{light}");
    let roles = ROLES.map(|role| class(role).to_owned());
    let hues = (0..HUES).map(|hue| format!("h{hue}"));
    for name in roles.into_iter().chain(hues) {
        let _ = write!(rules, ".{name}{{color:var(--{name})}}");
    }
    let _ = write!(
        rules,
        "@media(max-width:{NARROW_PIXELS}px){{.wide{{display:none}}body{{padding:8px}}}}"
    );
    rules
}
