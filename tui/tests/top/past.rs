//! The cursor in time: the moment that is shown instead of the present, in a recording and in the last hour.

use crossterm::event::KeyCode;
use gpushare_observe::data::log::Showing;
use gpushare_observe::marks::{About, Mark};
use gpushare_observe::source::Source;
use gpushare_observe::source::replay::{Recorder, Replay};
use gpushare_sample::{LockState, What};
use gpushare_top::app::{self, Next};
use gpushare_top::moments;
use gpushare_top::state::{Grip, Pulled, State};
use gpushare_top::view;
use ratatui::layout::Rect;

use crate::hands::{S, lines, notice, press, tap, title};
use crate::support::{frame, story};

/// The story as the dashboard has seen it, and its recording.
struct Story {
    state: State,
    record: Replay,
    _file: tempfile::NamedTempFile,
}

impl Story {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        let mut state = State::default();
        for sample in story() {
            recorder.add(&sample).unwrap();
            state.update(sample);
        }
        let record = Replay::open(file.path()).unwrap();
        Self {
            state,
            record,
            _file: file,
        }
    }

    /// Plays the whole recording instead.
    fn played() -> Self {
        let mut story = Self::new();
        story.state = State::default();
        let span = story.record.span().unwrap();
        story.state.span_ns = Some(span.map(|(time_ns, _)| time_ns));
        while let Some(sample) = story.record.next().unwrap() {
            story.state.update(sample);
        }
        story
    }

    fn tap(&mut self, keys: &[KeyCode]) -> Next {
        let mut next = Next::Continue;
        for key in keys {
            next = tap(&mut self.state, *key);
        }
        self.load((120, 40));
        next
    }

    fn load(&mut self, (width, height): (u16, u16)) {
        let window = view::window(Rect::new(0, 0, width, height), &self.state);
        moments::load(&mut self.state, &mut self.record, window).unwrap();
    }

    /// Puts the cursor on the last turn of the lock that begins before a moment.
    fn show_turn_before(&mut self, before_ns: u64) -> (u64, u64) {
        let mut log = self.state.log().newest(Showing::All, None);
        let turn = log.find_map(|event| match event.what {
            What::Hold { waited_ns } if event.time_ns < before_ns => {
                Some((event.time_ns, waited_ns))
            }
            _ => None,
        });
        drop(log);
        let (at_ns, waited_ns) = turn.expect("a turn");
        self.state.look_at(at_ns);
        self.load((120, 40));
        (at_ns, waited_ns)
    }

    fn screen(&self) -> Vec<String> {
        lines(&self.state, (120, 40), false)
    }

    /// Returns the strip of a recording.
    fn strip(&self) -> String {
        let mut lines = self.screen().into_iter();
        let line = lines.find(|line| line.contains(" of 24."));
        line.expect("a strip with the length")
    }

    fn last_line(&self) -> String {
        self.screen().pop().unwrap()
    }
}

#[test]
fn the_cursor_says_which_process_takes_over_and_header_lanes_and_table_are_of_that_moment() {
    let mut story = Story::new();
    let end_ns = story.state.live_ns();
    let (at_ns, _) = story.show_turn_before(end_ns - 5 * S);
    let line = story.last_line();
    let clock = story.state.unix_ms_at(at_ns) % 60_000;
    let clock = format!("{:02}.{:03} ", clock / 1000, clock % 1000);
    assert!(line.contains(&clock), "{clock} in {line}");
    assert!(line.contains(" takes over from "), "{line}");
    assert!(line.contains(" after 3.8s"), "{line}");
    let taker = line.split(" takes over").next().unwrap();
    let taker = taker.rsplit(' ').next().unwrap();

    let data = story.state.data();
    let shown_ns = data.sample.time_ns;
    assert!((at_ns..at_ns + S / 4 + 1).contains(&shown_ns), "{shown_ns}");
    let owner = data.sample.process(data.sample.devices[0].owner.unwrap());
    assert_eq!(owner.unwrap().name(), taker);
    let holds =
        |(_, holding): &(_, &gpushare_sample::Holding)| holding.lock.state == LockState::Hold;
    let holders: Vec<_> = data.there(0).filter(holds).collect();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].0.name(), taker);
    assert_eq!(
        holders[0].1.lock.since_ns, at_ns,
        "the event is between two samples"
    );
    let screen = story.screen();
    assert!(screen[0].contains("s behind LIVE"), "{}", screen[0]);
    assert!(
        screen
            .iter()
            .any(|line| line.contains(&format!("{taker} for "))),
        "{screen:#?}"
    );
}

#[test]
fn a_screen_of_the_past_has_a_cursor_a_strip_and_the_way_back() {
    let mut story = Story::new();
    story.tap(&[KeyCode::Left; 20]);
    story.load((80, 24));
    insta::assert_snapshot!("past-80x24", frame(&story.state, 80, 24, false));
    insta::assert_snapshot!("past-80x24-ascii", frame(&story.state, 80, 24, true));
    story.load((120, 40));
    insta::assert_snapshot!("past-120x40", frame(&story.state, 120, 40, false));
}

#[test]
fn the_arrows_move_by_a_column_and_back_to_the_present() {
    let mut story = Story::new();
    let column_ns = story.state.choices.column_ns(story.state.data());
    story.tap(&[KeyCode::Left]);
    let first = story.state.cursor().unwrap();
    assert_eq!(first.end - first.start, column_ns);
    story.tap(&[KeyCode::Left]);
    assert_eq!(story.state.cursor().unwrap().end, first.start);
    assert!(story.state.has_details());
    story.tap(&[KeyCode::Right]);
    assert_eq!(story.state.cursor(), Some(first));
    // The newest column is not over yet.
    story.tap(&[KeyCode::Right, KeyCode::Right]);
    assert!(!story.state.is_past());
    assert_eq!(notice(&story.state), "this is the present");
    story.tap(&[KeyCode::Left, KeyCode::Esc]);
    assert!(!story.state.is_past());
}

#[test]
fn ten_seconds_back_need_no_freeze_and_what_comes_is_still_collected() {
    let mut story = Story::new();
    let now_ns = story.state.live_ns();
    story.tap(&[KeyCode::Char(',')]);
    assert_eq!(story.state.past().unwrap().at_ns, now_ns - 10 * S);
    assert!(story.state.data().sample.time_ns < now_ns - 9 * S);
    let mut sample = crate::support::story().last().unwrap();
    sample.time_ns += 7 * S;
    story.state.update(sample);
    assert_eq!(story.state.past().unwrap().at_ns, now_ns - 10 * S);
    assert!(story.screen()[0].contains("s behind LIVE"));
    story.tap(&[KeyCode::Char('f')]);
    assert_eq!(story.state.data().sample.time_ns, now_ns + 7 * S);
}

#[test]
fn a_moment_without_samples_shows_its_marks_and_says_that_no_details_are_kept() {
    let mut story = Story::new();
    let at_ns = story.state.live_ns() - 1_800 * S;
    story.state.marks.add(Mark {
        at_ns,
        about: About::Edit,
        text: "gpu0: fair, by alice".into(),
    });
    story.state.look_at(at_ns + 60 * S);
    story.tap(&[KeyCode::Char('{')]);
    assert_eq!(story.state.past().unwrap().at_ns, at_ns);
    assert!(!story.state.has_details());
    let screen = story.screen().join("\n");
    assert!(
        screen.contains("The details of this moment are not kept."),
        "{screen}"
    );
    assert!(screen.contains("gpu0: fair, by alice"), "{screen}");
    for other in ["HOLD", "DENIED", "holds", "last 20 s"] {
        assert!(
            !screen.contains(other),
            "{other} is of another moment: {screen}"
        );
    }
}

#[test]
fn one_goes_from_mark_to_mark_and_back() {
    let mut story = Story::new();
    let now_ns = story.state.live_ns();
    let all = story.state.marks.within(0..u64::MAX).to_vec();
    assert!(all.iter().any(|mark| mark.about == About::Edit), "{all:?}");
    assert!(all.iter().any(|mark| mark.about == About::Alert), "{all:?}");
    for mark in all.iter().rev() {
        story.tap(&[KeyCode::Char('{')]);
        let cursor = story.state.cursor().unwrap();
        let seen = story.last_line();
        let here = story.state.marks.within(cursor.clone());
        assert!(!here.is_empty(), "{cursor:?}");
        let begin: String = here[0].text.chars().take(20).collect();
        assert!(seen.contains(&begin), "{seen}");
        if cursor.contains(&all[0].at_ns) {
            break;
        }
        assert!(cursor.start <= mark.at_ns);
    }
    story.tap(&[KeyCode::Char('{')]);
    assert!(
        notice(&story.state).contains("before this moment"),
        "{}",
        notice(&story.state)
    );
    story.tap(&[KeyCode::Char('}')]);
    assert!(story.state.past().unwrap().at_ns <= now_ns);
}

#[test]
fn a_change_is_made_in_the_present_and_a_remedy_of_the_past_is_not_offered() {
    let mut story = Story::new();
    let now_ns = story.state.live_ns();
    story.tap(&[KeyCode::Char(','), KeyCode::Char('1')]);
    assert!(story.state.overlay.is_none());
    let said = notice(&story.state);
    assert!(said.contains("f returns to the present"), "{said}");
    story.tap(&[KeyCode::Down, KeyCode::Char('e')]);
    assert!(title(&story.state).starts_with("Memory quota"));
    assert_eq!(story.state.data().sample.time_ns, now_ns);
}

#[test]
fn the_wheel_zooms_around_the_cursor() {
    let mut story = Story::new();
    story.tap(&[KeyCode::Left; 20]);
    let ruler = |story: &Story| {
        let screen = story.screen();
        let line = screen
            .iter()
            .find(|line| line.contains('▼') && line.contains("hold"));
        line.unwrap()
            .chars()
            .position(|letter| letter == '▼')
            .unwrap()
    };
    let before = (ruler(&story), story.state.cursor().unwrap().start);
    app::scroll(&mut story.state, -1, Some(Grip::Lanes));
    story.load((120, 40));
    let column_ns = story.state.choices.column_ns(story.state.around());
    let cursor = story.state.cursor().unwrap();
    assert_eq!(cursor.end - cursor.start, column_ns);
    assert!(cursor.start.abs_diff(before.1) < S / 4);
    assert!(
        ruler(&story).abs_diff(before.0) <= 2,
        "{} {}",
        ruler(&story),
        before.0
    );
}

#[test]
fn the_mouse_puts_the_cursor_where_it_is_and_on_the_strip() {
    let mut story = Story::new();
    let area = Rect::new(0, 0, 120, 40);
    let rows = |story: &Story, wanted: Grip| -> Vec<(u16, u16)> {
        let all = (0..area.height).flat_map(|y| (0..area.width).map(move |x| (x, y)));
        all.filter(|(x, y)| view::grip(area, &story.state, *x, *y) == Some(wanted))
            .collect()
    };
    let lanes = rows(&story, Grip::Lanes);
    let (x, _) = lanes[20];
    let pulled = view::pulled(area, &story.state, Grip::Lanes, x);
    app::pull(&mut story.state, pulled);
    story.load((120, 40));
    let Some(Pulled::Moment(at_ns)) = pulled else {
        panic!("{pulled:?}")
    };
    assert_eq!(story.state.cursor().unwrap().start, at_ns);
    let again = view::pulled(area, &story.state, Grip::Lanes, x);
    assert_eq!(again, pulled, "the lanes stay while the mouse moves");
    assert!(matches!(
        app::let_go(&mut story.state, again),
        Next::Continue
    ));
    assert!(story.state.is_past());

    let strip = rows(&story, Grip::Strip);
    assert!(strip.iter().all(|(_, y)| *y == strip[0].1), "one line");
    let moment = |x: u16| match view::pulled(area, &story.state, Grip::Strip, x) {
        Some(Pulled::Moment(at_ns)) => at_ns,
        other => panic!("{other:?}"),
    };
    let [first, last] = story.state.reach();
    assert_eq!(moment(strip[0].0), first);
    let end = moment(strip.last().unwrap().0);
    assert!(last - end < 120 * S, "{}", last - end);
}

#[test]
fn a_recording_stops_at_the_cursor_and_plays_on_from_there() {
    let mut story = Story::played();
    let [first, last] = story.state.span_ns.unwrap();
    assert!(story.strip().contains("END of 24.0s"), "{}", story.strip());
    story.tap(&[KeyCode::Char(',')]);
    assert_eq!(story.state.past().unwrap().at_ns, last - 10 * S);
    assert!(
        story.strip().contains("14.0s of 24.0s"),
        "{}",
        story.strip()
    );
    assert!(story.screen()[0].contains("PAUSED"));
    story.tap(&[KeyCode::Char('(')]);
    assert!(
        story.strip().contains("begin of 24.0s"),
        "{}",
        story.strip()
    );
    assert_eq!(
        notice(&story.state),
        "this is the beginning of the recording"
    );
    story.tap(&[KeyCode::Char('.')]);
    let Next::PlayFrom(at_ns) = press(&mut story.state, "f") else {
        panic!("it plays on");
    };
    assert_eq!(at_ns, first + 10 * S);
    moments::play_from(&mut story.state, &mut story.record, at_ns).unwrap();
    let now_ns = story.state.data().sample.time_ns;
    assert!((at_ns..at_ns + S).contains(&now_ns));
    let newest = story.state.log().newest(Showing::All, None).next();
    assert!(
        newest.unwrap().time_ns <= now_ns,
        "what is to come has not happened yet"
    );
    let hold = crate::support::held_together(&story.state);
    assert!(
        (0.9..=1.01).contains(&hold),
        "the shares are those of then: {hold}"
    );
}

#[test]
fn the_marks_of_a_recording_are_those_that_the_dashboard_saw() {
    let mut story = Story::new();
    let seen = story.state.marks.take();
    let mut found = Vec::new();
    let add = |marks| {
        found.extend::<Vec<Mark>>(marks);
        true
    };
    moments::find_marks(&mut story.record, story.state.begin_anew(), |_| true, add).unwrap();
    found.sort_by_key(|mark| mark.at_ns);
    assert_eq!(found, seen);

    let mut played = Story::played();
    found
        .into_iter()
        .for_each(|mark| played.state.marks.add(mark));
    let strip = played.strip();
    assert!(strip.contains('!') && strip.contains('◆'), "{strip}");
}
