//! Whole frames of the dashboard at common sizes, and no panic at any other size.

use gpushare_control::audit::{Entry, History, Outcome, Place, Record};
use gpushare_sample::{EventLine, Sample, TraceState, What};
use gpushare_top::app::{self, Next};
use gpushare_top::operator::{News, Task};
use gpushare_top::state::{Grip, State};
use gpushare_top::view;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use shm_layout::{Change, SlotId};

use serde_json::Value;

use crate::hands::press;
use crate::support::{frame, look, state, story, traced};

fn after(keys: &str) -> State {
    let mut state = state();
    press(&mut state, keys);
    state
}

/// Selects B and opens the view of `key`.
fn on_b(key: &str) -> State {
    let mut state = state();
    let b = state.data().on(0)[1];
    state.choices.selected = Some(b);
    press(&mut state, key);
    state
}

#[test]
fn the_main_screen_answers_who_holds_and_who_waits() {
    let state = state();
    insta::assert_snapshot!("main-60x20", frame(&state, 60, 20, false));
    insta::assert_snapshot!("main-20x5", frame(&state, 20, 5, false));
}

#[test]
fn the_main_screen_reads_in_ascii() {
    let backend = frame(&state(), 80, 24, true);
    assert!(backend.to_string().is_ascii(), "{backend}");
    insta::assert_snapshot!("main-80x24-ascii", backend);
}

#[test]
fn a_traced_process_is_marked_and_said_to_be() {
    let mut state = on_b(" ");
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    sample.processes[1].trace = traced(TraceState::On, Some(262_144), 12_345, false);
    state.update(sample);
    press(&mut state, "t");
    insta::assert_snapshot!("traced-80x24", frame(&state, 80, 24, false));
    press(&mut state, "n\n");
    insta::assert_snapshot!("traced-detail-80x24", frame(&state, 80, 24, false));
}

#[test]
fn the_waits_say_who_stood_in_whose_way() {
    let state = on_b("m");
    insta::assert_snapshot!("waits-40x10", frame(&state, 40, 10, true));
}

#[test]
fn the_quota_dialog_says_what_it_would_do() {
    let mut state = on_b("e");
    press(&mut state, &("\x08".repeat(8) + "20G"));
    insta::assert_snapshot!("quota-80x24", frame(&state, 80, 24, false));
}

#[test]
fn the_policy_dialog_says_what_it_would_do() {
    let mut state = on_b("p");
    press(&mut state, "\t\x08\x08500us");
    insta::assert_snapshot!("policy-80x24", frame(&state, 80, 24, false));
}

#[test]
fn the_share_dialog_says_what_it_would_do() {
    let mut state = on_b("w");
    press(&mut state, "\x08\x08\x08300");
    insta::assert_snapshot!("share-80x24", frame(&state, 80, 24, false));
    insta::assert_snapshot!("share-110x40", frame(&state, 110, 40, false));
}

/// Returns an edit of B's quota as an entry of the audit log.
fn edit(number: u64) -> Entry {
    let stored = |value: &str| Change::ProcessQuota {
        slot: SlotId { index: 1, epoch: 7 },
        device: Some(0),
        value: value.parse().unwrap(),
        until: None,
    };
    Entry {
        number,
        record: Record {
            schema_version: 1,
            time: "2025-11-20T14:31:07Z".into(),
            uid: 0,
            who: "root (alice)".into(),
            r#where: Place::Tui,
            target: "41849 vllm-worker".into(),
            target_start_time: Some(1000),
            old: Some("quota 20GiB".into()),
            new: "quota 40GiB".into(),
            generation: Some(812),
            reason: Some("ticket 4471".into()),
            result: Outcome::Applied,
            refusal: None,
            undoes: None,
            change: Some(stored("40GiB")),
            restore: Some(stored("20GiB")),
        },
    }
}

#[test]
fn an_undo_says_what_it_takes_back_before_it_does() {
    let mut state = after("a");
    let history = History {
        entries: vec![edit(1), edit(2)],
        ..History::default()
    };
    let path = "/dev/shm/gpushare-0/audit.jsonl".to_owned();
    app::news(&mut state, News::Audit(path, Ok(history)));
    let next = press(&mut state, "u");
    assert!(matches!(next, Next::Continue), "it asks first");
    insta::assert_snapshot!("undo-80x24", frame(&state, 80, 24, false));
    let next = press(&mut state, "n");
    assert!(matches!(next, Next::Continue), "no means no");
    press(&mut state, "\n");
    insta::assert_snapshot!("edit-80x24", frame(&state, 80, 24, false));
    press(&mut state, "u");
    let next = press(&mut state, "\n");
    let Next::Do(Task::Undo(entry)) = next else {
        panic!("nothing is undone");
    };
    assert_eq!(entry.number, 2, "the newest is selected");
}

#[test]
fn the_newest_edit_is_undone_after_one_line() {
    let mut state = after("u");
    app::news(&mut state, News::Newest(Ok(Box::new(edit(2)))));
    let seen = crate::hands::lines(&state, (80, 24), false);
    let line = seen.last().expect("a screen");
    assert!(line.contains("y undo  other keys no   undo "), "{line}");
    assert!(line.contains("quota 40GiB back to 20GiB?"), "{line}");
    let no = press(&mut state, "u");
    assert!(matches!(no, Next::Continue), "any other key means no");
    let asked = press(&mut state, "u");
    assert!(matches!(asked, Next::Do(Task::ReadNewest)), "{asked:?}");
    press(&mut state, "n");
    app::news(&mut state, News::Newest(Ok(Box::new(edit(2)))));
    assert!(state.overlay.is_none(), "it came too late");
    press(&mut state, "u");
    app::news(&mut state, News::Newest(Ok(Box::new(edit(2)))));
    let next = press(&mut state, "y");
    assert!(matches!(next, Next::Do(Task::Undo(entry)) if entry.number == 2));
}

#[test]
fn the_help_lists_every_key() {
    insta::assert_snapshot!("help-120x60", frame(&after("?"), 120, 60, false));
}

#[test]
fn an_empty_machine_says_how_to_start() {
    let mut state = State::default();
    let mut sample = Sample::default();
    sample.snapshot.time_ns = 1;
    sample.segment.waiting = Some("there is no segment in /dev/shm/gpushare-0 yet".into());
    state.update(sample);
    insta::assert_snapshot!("empty-80x24", frame(&state, 80, 24, false));
}

#[test]
fn the_strip_is_on_the_frame_and_hides_no_text_once_all_processes_have_ended() {
    let mut state = state();
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    sample.events = vec![EventLine {
        seq: u64::MAX,
        time_ns: sample.time_ns,
        what: What::Exit { reaped: false },
        ..EventLine::default()
    }];
    sample.processes.clear();
    state.update(sample);
    for (width, height) in [(80, 24), (100, 30), (120, 40)] {
        let lines = crate::hands::lines(&state, (width, height), false);
        let strip = lines.iter().position(|line| line.contains(" -1h "));
        let strip = strip.expect("a strip");
        assert!(lines[strip].starts_with('└'), "{lines:#?}");
        let text = lines.concat();
        assert!(text.contains("All processes have ended"), "{lines:#?}");
        assert!(text.contains("This screen updates when"), "{lines:#?}");
        let area = Rect::new(0, 0, width, height);
        let y = u16::try_from(strip).unwrap();
        let held = view::grip(area, &state, width / 2, y);
        assert_eq!(held, Some(Grip::Strip));
        assert_eq!(view::grip(area, &state, width / 2, y - 1), None);
    }
}

#[test]
fn no_size_and_no_screen_makes_it_panic() {
    let screens: Vec<State> = [
        "", "j\n", "je", "p", "jw", "a", "jt", "!j", "m", "mvj", "?", "/x", "\t", "jP", "jb", ":q",
        "Gfz<",
    ]
    .map(after)
    .into_iter()
    .chain([State::default()])
    .collect();
    let widths = [
        0, 1, 2, 3, 5, 8, 13, 21, 34, 39, 40, 55, 60, 80, 95, 98, 100, 120, 130,
    ];
    let heights = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 19, 20, 24, 33, 34, 40, 45,
    ];
    for state in &screens {
        for width in widths {
            for height in heights {
                frame(state, width, height, (width + height) % 2 == 0);
            }
        }
    }
}

#[test]
fn the_sentence_in_place_of_the_table_is_wrapped_where_it_is_printed() {
    let mut state = State::default();
    let mut sample = Sample::default();
    sample.snapshot.time_ns = 1;
    let sentence = ["there is no segment in a directory with a long name"; 4].join(" or ");
    sample.segment.waiting = Some(sentence.clone());
    state.update(sample);
    let height = view::text_height(&state, 100);
    let area = Rect::new(0, 0, 100, height);
    let mut buffer = Buffer::empty(area);
    view::text(&mut buffer, area, &state, &look(false));
    let line = |y: u16| -> String { (0..100_u16).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines: Vec<String> = (0..height).map(line).collect();
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    assert!(lines.join(" ").contains(&sentence), "{lines:#?}");
}

/// Sets every number of the document to its field's maximum.
fn extreme(mut sample: Value) -> Sample {
    let paths = numbers(&sample, String::new());
    for path in paths {
        for number in [
            u64::MAX,
            i64::MAX as u64,
            u32::MAX.into(),
            i32::MAX as u64,
            255,
        ] {
            let before = sample
                .pointer_mut(&path)
                .map(|place| std::mem::replace(place, number.into()));
            if serde_json::from_value::<Sample>(sample.clone()).is_ok() {
                break;
            }
            *sample.pointer_mut(&path).unwrap() = before.unwrap();
        }
    }
    serde_json::from_value(sample).unwrap()
}

fn numbers(value: &Value, path: String) -> Vec<String> {
    match value {
        Value::Number(_) => vec![path],
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| numbers(value, format!("{path}/{key}")))
            .collect(),
        Value::Array(items) => {
            let items = items.iter().take(4).enumerate();
            items
                .flat_map(|(at, value)| numbers(value, format!("{path}/{at}")))
                .collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn a_segment_full_of_nonsense_is_drawn_without_panic() {
    let mut usual = story().next().unwrap();
    usual.processes.truncate(2);
    let nonsense = extreme(serde_json::to_value(&usual).unwrap());
    let mut state = State::default();
    for sample in [usual.clone(), nonsense.clone(), nonsense, usual] {
        state.update(sample);
        for keys in ["", "j\n", "e", "w"] {
            press(&mut state, keys);
            frame(&state, 120, 40, false);
            press(&mut state, "\x1b\x1b");
        }
    }
}
