//! A screen as a file, a recording as a screencast, and moving through a recording.

use std::path::Path;

use gpushare_observe::source::Source;
use gpushare_observe::source::replay::{Recorder, Replay};
use gpushare_top::keys::press::Press;
use gpushare_top::screencast::{self, Form};
use gpushare_top::state::State;
use gpushare_top::theme;
use jiff::tz::TimeZone;

use crate::support::{coloured, look, look_with, state, story};

fn recording() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = Recorder::create(file.path()).unwrap();
    story().for_each(|sample| recorder.add(&sample).unwrap());
    file
}

#[test]
fn a_screencast_is_one_file_that_any_viewer_of_svg_can_read() {
    let file = recording();
    let mut replay = Replay::open(file.path()).unwrap();
    let svg = screencast::screencast(
        &mut replay,
        &mut State::default(),
        &coloured(),
        (80, 24),
        (&[], Path::new("")),
    )
    .unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "svg");
    let of = |class: &str| {
        let is = |node: &roxmltree::Node<'_, '_>| {
            node.attribute("class")
                .is_some_and(|all| all.starts_with(class))
        };
        root.children().find(is)
    };
    let frames = of("film")
        .unwrap()
        .children()
        .filter(|node| node.is_element());
    let frames = frames.count();
    assert!((40..=60).contains(&frames), "two frames a second: {frames}");
    let style = root
        .descendants()
        .find(|node| node.has_tag_name("style"))
        .unwrap();
    let style = style.text().unwrap();
    assert_eq!(style.matches("translateX").count(), frames);
    // Every row that is used exists.
    let ids: Vec<&str> = root
        .descendants()
        .filter_map(|node| node.attribute("id"))
        .collect();
    for used in root.descendants().filter_map(|node| node.attribute("href")) {
        assert!(ids.contains(&used.trim_start_matches('#')), "{used}");
    }
    assert!(
        svg.contains("train-7b") && svg.contains("#5"),
        "names and colours"
    );
    assert!(
        !svg.contains("http") || svg.matches("http").count() == 1,
        "nothing from elsewhere"
    );
    assert!(svg.contains("gpu-1"), "and not the name of the machine");
    let said = |text: &str| svg.contains(text);
    let sample = Replay::open(file.path()).unwrap().next().unwrap().unwrap();
    assert!(!said(&sample.host) && !said(&sample.segment.dir));
}

#[test]
fn a_key_of_a_screencast_is_pressed_and_shown_and_the_page_may_be_light() {
    let file = recording();
    let mut replay = Replay::open(file.path()).unwrap();
    let mut state = State::default();
    let presses =
        ["1s=x:why is it slow", "10s=:p99 9 ms", "20s=Esc"].map(|text| text.parse().unwrap());
    let script = (&presses[..], Path::new(""));
    let svg =
        screencast::screencast(&mut replay, &mut state, &coloured(), (110, 28), script).unwrap();
    assert!(svg.contains("Why is it slow?"), "the list that x opens");
    assert!(
        svg.contains("x  why is it slow<"),
        "the key, for the viewer"
    );
    assert!(svg.contains("p99 9 ms<"), "words alone");
    assert!(state.overlay.is_none(), "Esc closed the list");
    let (dark, light) = svg
        .split_once("@media(prefers-color-scheme:light){")
        .unwrap();
    let class = |rules: &str, class: &str| rules.split_once(class).unwrap().1[..7].to_owned();
    assert_ne!(
        class(dark, ".c0{fill:"),
        class(light, ".c0{fill:"),
        "the ground"
    );
    for wrong in ["x", "4s=", "4s=:", "soon=x", "4s=xy"] {
        assert!(wrong.parse::<Press>().is_err(), "{wrong}");
    }
}

#[test]
fn the_picture_of_the_readme_is_small_has_110_columns_and_is_made_of_the_recording_beside_it() {
    let assets = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../assets"));
    let recording = assets.join("screencast/recording");
    assert!(recording.metadata().unwrap().len() < 100 << 10);
    let svg = std::fs::read_to_string(assets.join("screencast.svg")).unwrap();
    assert!(svg.contains("viewBox=\"0 0 940 492\"") && svg.contains("prefers-color-scheme"));
    let mut replay = Replay::open(&recording).unwrap();
    let sample = replay.next().unwrap().unwrap();
    assert!(
        sample
            .processes
            .iter()
            .all(|process| svg.contains(process.name()))
    );
}

#[test]
fn a_moment_is_text_json_or_a_picture() {
    let state = state();
    let written = |form| {
        String::from_utf8(screencast::moment(&state, &look(false), (80, 24), form).unwrap())
            .unwrap()
    };
    let text = written(Form::Text);
    assert_eq!(text.lines().count(), 24);
    assert!(text.contains("vllm-worker"));
    let json: serde_json::Value = serde_json::from_str(&written(Form::Json)).unwrap();
    assert_eq!(json["processes"][0]["pid"], 41822);
    let svg = written(Form::Svg);
    roxmltree::Document::parse(&svg).unwrap();
    assert!(!svg.contains("@keyframes"), "a picture stands still");
    assert!(
        Form::of(std::path::Path::new("x.png"))
            .unwrap_err()
            .contains(".svg")
    );
}

#[test]
fn every_theme_colours_the_screen_in_its_own_way() {
    let state = state();
    let mut seen = Vec::new();
    for name in theme::names() {
        let look = look_with(coloured().palette.with_theme(theme::find(name).unwrap()));
        let svg = screencast::moment(&state, &look, (120, 40), Form::Svg).unwrap();
        assert!(!seen.contains(&svg), "{name} looks as another");
        seen.push(svg);
    }
}

#[test]
fn a_frozen_picture_says_how_old_it_is() {
    let mut state = State::default();
    let mut samples = story();
    samples
        .by_ref()
        .take(40)
        .for_each(|sample| state.update(sample));
    state.stop();
    samples.for_each(|sample| state.update(sample));
    let text = screencast::lines(&screencast::frame(&state, &look(false), (120, 40)));
    assert!(text.contains("14.2s behind LIVE"), "{text}");
}

#[test]
fn a_recording_starts_where_it_is_asked_to() {
    let file = recording();
    let mut replay = Replay::open(file.path()).unwrap();
    let span = replay.span().unwrap();
    let moment = screencast::at("-5s", span, &TimeZone::UTC).unwrap();
    replay.start_at(moment).unwrap();
    let first = replay.next().unwrap().unwrap().time_ns;
    assert!(first + 15_000_000_000 < moment, "with what led to it");
    let mut last = 0;
    while let Some(sample) = replay.next().unwrap() {
        last = sample.time_ns;
    }
    assert_eq!(last, span[1].0);
}
