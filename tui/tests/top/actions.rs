//! What keys do to whom: never to what is not on the screen, and never without saying it.

use crossterm::event::{KeyCode, KeyEvent};
use gpushare_tui::edit::Applied;
use gpushare_tui::sample::{EditLine, ProcessSample, Sample, Who};
use gpushare_tui::top::app::{self, Next};
use gpushare_tui::top::dialog::Verdict;
use gpushare_tui::top::operator::{News, Task};
use gpushare_tui::top::overlay::Overlay;
use gpushare_tui::top::state::{Hit, Screen, State};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use shm_layout::{Change, PolicyKind, QuotaValue, Set, SlotId, Until};

use crate::support::{look, state, story};

fn press(state: &mut State, keys: &str) -> Next {
    let mut next = Next::Continue;
    for letter in keys.chars() {
        next = app::key(state, KeyEvent::from(code(letter)));
    }
    next
}

fn code(letter: char) -> KeyCode {
    match letter {
        '\n' => KeyCode::Enter,
        '\t' => KeyCode::Tab,
        '\x1b' => KeyCode::Esc,
        '\x08' => KeyCode::Backspace,
        letter => KeyCode::Char(letter),
    }
}

fn notice(state: &State) -> &str {
    state.choices.notice.as_ref().map_or("", |said| &said.text)
}

/// What lies over the screen, by its title.
fn title(state: &State) -> &str {
    match &state.overlay {
        Some(Overlay::Dialog(dialog)) => &dialog.title,
        Some(Overlay::Question(question)) => &question.title,
        _ => "",
    }
}

fn screen(state: &State) -> String {
    let area = Rect::new(0, 0, 120, 40);
    let mut buffer = Buffer::empty(area);
    gpushare_tui::top::view::draw_into(&mut buffer, area, state, &look(false));
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
    (0..area.height)
        .map(line)
        .collect::<Vec<String>>()
        .join("\n")
}

/// Selects the process with this name on the shown device.
fn select(state: &mut State, name: &str) {
    let found = state
        .data()
        .sample
        .processes
        .iter()
        .find(|p| p.name() == name);
    state.choices.selected = found.map(Who::of);
    assert!(state.choices.selected.is_some(), "{name}");
}

/// `vllm-worker` uses the second device as well.
fn on_two_devices(mut sample: Sample) -> Sample {
    let process: &mut ProcessSample = &mut sample.processes[1];
    let mut second = process.devices[0].clone();
    (second.gpu, second.view.entry) = (1, 1);
    process.devices.push(second);
    sample.devices[1].index = 1;
    sample
}

fn state_of_two_devices() -> State {
    let mut state = State::default();
    story().for_each(|sample| state.update(on_two_devices(sample)));
    state
}

#[test]
fn a_filter_without_a_hit_leaves_no_process_to_act_on() {
    let mut state = state();
    select(&mut state, "train-7b");
    press(&mut state, "/zzz\n");
    assert!(state.rows().is_empty());
    for key in ["P", "e", "w", "t", "\n", "y"] {
        assert!(matches!(press(&mut state, key), Next::Continue), "{key}");
        assert!(state.overlay.is_none(), "{key} opens {}", title(&state));
        assert_eq!(state.choices.screen, Screen::Main, "{key}");
        let said = notice(&state);
        assert!(
            said.contains("train-7b is selected, but the filter hides it"),
            "{key}: {said}"
        );
    }
    press(&mut state, "\x1bP");
    assert!(
        title(&state).contains("Pause A 41822 train-7b"),
        "{}",
        title(&state)
    );
}

#[test]
fn without_a_selection_a_key_selects_and_does_nothing_more() {
    for key in ["P", "e", "w", "t", "\n", "y"] {
        let mut state = state();
        assert!(matches!(press(&mut state, key), Next::Continue), "{key}");
        assert!(state.overlay.is_none(), "{key} opens {}", title(&state));
        assert_eq!(state.choices.screen, Screen::Main, "{key}");
        let first = state.rows()[0].who;
        assert_eq!(state.choices.selected, Some(first), "{key}");
        assert!(
            notice(&state).contains("press the key again"),
            "{}",
            notice(&state)
        );
    }
}

#[test]
fn on_a_device_without_the_selected_process_nothing_is_done_to_it() {
    let mut state = state();
    select(&mut state, "train-7b");
    press(&mut state, "\tP");
    assert!(state.overlay.is_none());
    assert!(
        notice(&state).contains("not in this list"),
        "{}",
        notice(&state)
    );
}

#[test]
fn a_pause_is_asked_about_by_name_and_only_yes_means_yes() {
    let mut state = state();
    select(&mut state, "notebook-bob");
    press(&mut state, "P");
    assert_eq!(title(&state), "Pause C 41876 notebook-bob (bob) on GPU0?");
    assert!(
        matches!(press(&mut state, "P"), Next::Continue),
        "P is no yes"
    );
    assert!(state.overlay.is_none());
    let Next::Do(Task::Edit(request)) = press(&mut state, "Py") else {
        panic!("it is not paused");
    };
    let Change::ProcessShare { slot, paused, .. } = request.change else {
        panic!("not a share");
    };
    assert_eq!((slot.index, paused), (2, Set::To(true)));
}

#[test]
fn in_the_list_of_all_devices_a_key_means_the_row() {
    let mut state = state_of_two_devices();
    state.choices.all_gpus = true;
    select(&mut state, "vllm-worker");
    let rows: Vec<usize> = state.rows().iter().map(|row| row.holding.gpu).collect();
    assert_eq!(rows.iter().filter(|gpu| **gpu == 1).count(), 1);
    // To the row of the second device.
    for _ in 0..rows.len() {
        if state.choices.gpu == 1 {
            break;
        }
        app::key(&mut state, KeyEvent::from(KeyCode::Down));
    }
    assert_eq!(state.choices.gpu, 1, "the card shows the row's device");
    let marked = screen(&state);
    assert!(marked.contains("GPU1 H200"), "{marked}");
    press(&mut state, "e");
    assert_eq!(
        title(&state),
        "Memory quota  B 41849 vllm-worker on GPU1 (alice)"
    );
    let Next::Do(Task::Edit(request)) = press(&mut state, "32G\n") else {
        panic!("no edit");
    };
    let Change::ProcessQuota { device, .. } = request.change else {
        panic!("not a quota");
    };
    assert_eq!(device, Some(1), "its entry of the second device");
    press(&mut state, "\x1bp");
    assert_eq!(title(&state), "Lock policy  GPU1 H200");
}

#[test]
fn a_process_alone_is_edited_on_the_device_it_is_shown_on() {
    let mut state = state_of_two_devices();
    select(&mut state, "train-7b");
    press(&mut state, "\n");
    state.choices.gpu = 1;
    press(&mut state, "p");
    assert_eq!(title(&state), "Lock policy  GPU0 H200", "its only device");
    press(&mut state, "\x1b\x1b");
    state.show_gpu(0);
    select(&mut state, "vllm-worker");
    press(&mut state, "\n\te");
    assert!(title(&state).contains("on GPU1"), "{}", title(&state));
    press(&mut state, "\x1b\te");
    assert!(title(&state).contains("on GPU0"), "{}", title(&state));
}

#[test]
fn the_list_of_all_devices_names_the_device_of_each_row_on_a_narrow_screen_too() {
    let mut state = state_of_two_devices();
    state.choices.all_gpus = true;
    for width in [40, 60, 80, 120] {
        let area = Rect::new(0, 0, width, 24);
        let mut buffer = Buffer::empty(area);
        gpushare_tui::top::view::draw_into(&mut buffer, area, &state, &look(true));
        let line = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        let heading = (0..24)
            .map(line)
            .find(|line| line.contains("NAME"))
            .unwrap();
        assert!(heading.contains(" G "), "{width}: {heading}");
    }
}

#[test]
fn rows_stand_still_under_a_dialog() {
    let mut samples: Vec<Sample> = story().collect();
    let rest = samples.split_off(40);
    let mut state = State::default();
    samples.into_iter().for_each(|sample| state.update(sample));
    let order = |state: &State| -> Vec<Who> { state.rows().iter().map(|row| row.who).collect() };
    select(&mut state, "vllm-worker");
    press(&mut state, "e");
    let before = order(&state);
    let mut moved = false;
    for sample in rest {
        let mut free = State::default();
        free.update(sample.clone());
        state.update(sample);
        moved |= order(&free) != before;
        assert_eq!(order(&state), before);
    }
    assert!(moved, "they would have moved");
    press(&mut state, "\x1b");
    assert!(state.choices.pinned.is_none());
}

#[test]
fn what_is_typed_first_replaces_what_stood_there() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    let Next::Do(Task::Edit(request)) = press(&mut state, "e8G\n") else {
        panic!("no edit");
    };
    let Change::ProcessQuota { value, .. } = request.change else {
        panic!("not a quota");
    };
    assert_eq!(
        value,
        shm_layout::QuotaValue::Bytes(8 << 30),
        "and not 408G"
    );

    // An arrow goes into the text instead.
    press(&mut state, "\x1be");
    app::key(&mut state, KeyEvent::from(KeyCode::End));
    press(&mut state, "\x08");
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("no dialog");
    };
    assert_eq!(dialog.fields[0].value(), "40Gi");
}

#[test]
fn a_priority_that_no_order_looks_at_is_warned_of() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    press(&mut state, "w\t5");
    let checks = |state: &State| match &state.overlay {
        Some(Overlay::Dialog(dialog)) => dialog.checks(state.data()),
        _ => panic!("no dialog"),
    };
    let about = |state: &State| {
        let checks = checks(state).into_iter();
        checks
            .filter(|check| check.text.contains("the priority has no effect"))
            .collect::<Vec<_>>()
    };
    let found = about(&state);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].verdict, Verdict::Warn);
    assert!(found[0].text.contains("under order=fair"), "{found:?}");
    let mut sample = state.data().sample.clone();
    sample.devices[0].policy.0.order = shm_layout::Order::Priority;
    sample.devices[0].policy.0.kind = PolicyKind::Always;
    state.update(sample);
    assert!(about(&state).is_empty(), "now it has one");
}

#[test]
fn pasted_text_is_never_a_command() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    app::paste(&mut state, "PPP");
    assert!(state.overlay.is_none());
    assert!(notice(&state).contains("pasted text is taken in fields only"));
    app::paste(&mut state, "eq\r\n");
    assert!(state.overlay.is_none());

    press(&mut state, "e");
    app::paste(&mut state, "32G\n\x1b[2Jq");
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("the line ended the dialog");
    };
    assert_eq!(
        dialog.fields[0].value(),
        "32G",
        "one line, without what acts on a terminal"
    );
    press(&mut state, "\x1b/");
    app::paste(&mut state, "user=\u{7}alice\n");
    let Some(Overlay::Filter(line)) = &state.overlay else {
        panic!("no filter");
    };
    assert_eq!(line.input.value(), "user=alice");
}

const S: u64 = 1_000_000_000;

/// A quota for the second process, for ten minutes.
fn quota(value: QuotaValue, until: Option<Until>) -> Change {
    Change::ProcessQuota {
        slot: SlotId { index: 1, epoch: 7 },
        device: Some(0),
        value,
        until,
    }
}

fn in_force(state: &mut State, missing: Vec<SlotId>) {
    let now = state.data().sample.time_ns;
    let applied = Applied {
        generation: 814,
        old: quota(QuotaValue::Unlimited, None),
        new: quota(
            QuotaValue::Bytes(32 << 30),
            Some(Until::lasting(now + 600 * S)),
        ),
        acknowledged_by: Vec::new(),
        missing,
        unlogged: None,
    };
    let target = "41849 vllm-worker gpu0".to_owned();
    app::news(state, News::Settled { target, applied });
}

#[test]
fn after_an_edit_the_change_its_end_and_who_has_not_applied_it_are_said() {
    let mut state = state();
    in_force(&mut state, Vec::new());
    assert_eq!(
        notice(&state),
        "41849 vllm-worker gpu0: quota none to 32GiB for 10m; applied by all"
    );
    in_force(&mut state, vec![SlotId { index: 2, epoch: 7 }]);
    assert_eq!(
        notice(&state),
        "41849 vllm-worker gpu0: quota none to 32GiB for 10m; NOT yet applied by C notebook-bob"
    );
}

/// Somebody's edit, as the audit log told of it in a sample.
fn edited(generation: u64, state: &State) -> Sample {
    let mut sample = state.data().sample.clone();
    sample.time_ns += S;
    sample.events = vec![gpushare_tui::sample::EventLine {
        seq: u64::MAX,
        time_ns: sample.time_ns - 1,
        what: gpushare_tui::sample::What::Edit { generation },
        ..Default::default()
    }];
    sample.edits = vec![EditLine {
        generation,
        time_ns: sample.time_ns - 1,
        who: "alice".into(),
        place: "ctl".into(),
        target: "41822 train-7b gpu0".into(),
        old: Some("quota 48GiB".into()),
        new: "quota 40GiB for a while".into(),
        reason: Some("ticket 4471".into()),
        until_ns: Some(sample.time_ns + 60 * S),
        undoes: None,
    }];
    sample
}

#[test]
fn an_edit_of_somebody_else_is_said_with_who_and_what() {
    let mut state = state();
    let sample = edited(814, &state);
    state.update(sample);
    assert_eq!(
        notice(&state),
        "edited: 41822 train-7b gpu0: quota 48GiB to 40GiB for 1m00s, by alice: ticket 4471"
    );
    let seen = screen(&state);
    let row =
        "edit     41822 train-7b gpu0: quota 48GiB \u{2192} 40GiB for 1m00s, by alice: ticket 4471";
    assert!(seen.contains(row), "{seen}");

    let mut state = crate::support::state();
    in_force(&mut state, Vec::new());
    state.choices.notice = None;
    let sample = edited(814, &state);
    state.update(sample);
    assert_eq!(notice(&state), "", "one's own is no news");
}

/// The story on eight devices, the last two parts of one.
pub fn eight(mut sample: Sample) -> Sample {
    for gpu in 2..8 {
        let mut device = sample.devices[1].clone();
        device.uuid = format!("GPU-8f1c2d3e-0000-4000-8000-0000000000{gpu:02}");
        if gpu >= 6 {
            device.name = "NVIDIA H200 MIG 1g.18gb".into();
            device.nvml.mig_parent = Some(6);
        }
        sample.devices.push(device);
    }
    sample
}

#[test]
fn a_digit_shows_the_device_with_that_number() {
    let mut state = State::default();
    story().for_each(|sample| state.update(eight(sample)));
    press(&mut state, "5");
    assert_eq!(state.choices.gpu, 5);
    press(&mut state, "0");
    assert_eq!(state.choices.gpu, 0);
    press(&mut state, "9");
    assert_eq!(state.choices.gpu, 0);
    assert_eq!(notice(&state), "there is no GPU9; there are 8");
}

#[test]
fn eight_devices_are_seen_at_once_at_every_usual_size() {
    let mut state = State::default();
    story().for_each(|sample| state.update(eight(sample)));
    for (width, height) in [(60, 16), (80, 24), (120, 40), (200, 50)] {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        gpushare_tui::top::view::draw_into(&mut buffer, area, &state, &look(true));
        let line = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        let top: Vec<String> = (0..12.min(height)).map(line).collect();
        let seen = top.join("\n");
        for gpu in 0..if width == 60 { 3 } else { 8 } {
            let named = seen.contains(&format!("GPU{gpu} ")) || seen.contains(&format!(" {gpu} "));
            assert!(named, "GPU{gpu} at {width}x{height}:\n{seen}");
        }
        assert!(seen.contains("HOLDER A train-7b"), "{seen}");
    }
}

#[test]
fn everything_one_can_do_is_found_by_its_words() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    press(&mut state, ":memory quota");
    let Some(Overlay::Commands(commands)) = &state.overlay else {
        panic!("nothing to search in");
    };
    let found = commands.found(state.choices.screen.place());
    assert_eq!(found.len(), 1, "{found:?}");
    press(&mut state, "\n");
    assert!(
        title(&state).starts_with("Memory quota  B 41849"),
        "{}",
        title(&state)
    );
    press(&mut state, "\x1b:no such thing\n");
    assert!(state.overlay.is_none());
    press(&mut state, "Q");
    assert!(
        notice(&state).contains("Q does nothing here; : searches"),
        "{}",
        notice(&state)
    );
}

#[test]
fn a_signal_is_sent_when_the_pid_was_typed_and_not_before() {
    let mut state = state();
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    // A process that lives: this one.
    sample.processes[1].pid = Some(std::process::id());
    state.update(sample);
    select(&mut state, "vllm-worker");
    press(&mut state, "K");
    assert!(title(&state).starts_with("Signal  B "), "{}", title(&state));
    assert!(matches!(press(&mut state, "\n"), Next::Continue));
    assert!(
        matches!(press(&mut state, "\t41849\n"), Next::Continue),
        "another's pid"
    );
    let pid = std::process::id().to_string();
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("it closed");
    };
    assert_eq!(dialog.fields[1].value(), "41849");
    press(&mut state, "\x1bK\t");
    let Next::Do(Task::Signal(signal)) = press(&mut state, &format!("{pid}\n")) else {
        panic!("nothing is sent");
    };
    assert_eq!((signal.pid, signal.word), (std::process::id(), "TERM"));
    app::news(&mut state, News::Done("SIGTERM was sent".into()));
    assert!(state.overlay.is_none(), "the dialog closes");
}

#[test]
fn a_boost_is_a_priority_that_ends_by_itself() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    press(&mut state, "b");
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("no dialog");
    };
    let checks = dialog.checks(state.data());
    assert!(checks.iter().any(|check| {
        check
            .text
            .contains("under order=fair the priority has no effect")
    }));
    let now = state.data().sample.time_ns;
    let Next::Do(Task::Edit(request)) = press(&mut state, "12\n") else {
        panic!("no edit");
    };
    let Change::ProcessShare {
        boost: Set::To(boost),
        priority,
        ..
    } = request.change
    else {
        panic!("no boost");
    };
    assert_eq!((boost.priority, boost.until_ns), (12, now + 600 * S));
    assert_eq!(priority, Set::Keep);
}

#[test]
fn the_list_follows_the_filter_as_it_is_written() {
    let mut state = state();
    press(&mut state, "/user=al");
    assert!(state.rows().is_empty());
    press(&mut state, "ice");
    assert_eq!(state.rows().len(), 1);
    press(&mut state, " used>");
    assert!(
        state.rows().is_empty(),
        "\"used\" was a word; what cannot be understood changes nothing"
    );
    press(&mut state, "1G");
    assert_eq!(state.rows().len(), 1);
    press(&mut state, "\x1b");
    assert!(state.choices.filter.is_empty(), "Esc brings back what was");
    press(&mut state, "/user=alice\n");
    assert_eq!(state.rows().len(), 1);
}

/// The first place on the screen where this text stands.
fn place(state: &State, text: &str) -> (u16, u16) {
    let seen = screen(state);
    let (y, line) = seen
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains(text))
        .unwrap();
    let before = &line[..line.find(text).unwrap()];
    (before.chars().count() as u16, y as u16)
}

fn click(state: &mut State, text: &str) -> Next {
    let (x, y) = place(state, text);
    let area = Rect::new(0, 0, 120, 40);
    match gpushare_tui::top::view::hit(area, state, x, y) {
        Some(hit) => app::click(state, hit),
        None => panic!("nothing is hit at {text}, {x} {y}:\n{}", screen(state)),
    }
}

#[test]
fn a_click_selects_sorts_turns_and_helps() {
    let mut state = State::default();
    story().for_each(|sample| state.update(eight(sample)));
    click(&mut state, "41849 alice");
    let b = state.data().on(0)[1];
    assert_eq!(state.choices.selected, Some(b), "a row");
    click(&mut state, "D 41903  embed-svc");
    assert_eq!(
        state.choices.selected,
        Some(state.data().on(0)[3]),
        "a lane"
    );
    click(&mut state, "QUOTA");
    assert_eq!(
        gpushare_tui::sample::columns::COLUMNS[state.choices.sort].key,
        "quota"
    );
    let descending = state.choices.descending;
    click(&mut state, "QUOTA\u{25bc} FULL");
    assert_ne!(
        state.choices.descending, descending,
        "the same heading turns the order"
    );
    click(&mut state, "GPU3 ");
    assert_eq!(state.choices.gpu, 3, "a device");
    press(&mut state, "0");
    click(&mut state, "raise its weight");
    assert!(
        title(&state).starts_with("Share  C 41876 notebook-bob"),
        "{}",
        title(&state)
    );
    press(&mut state, "\x1b");
    click(&mut state, "41876 bob");
    assert_eq!(
        state.choices.screen,
        Screen::Detail(state.data().on(0)[2]),
        "the second click"
    );
    let area = Rect::new(0, 0, 120, 40);
    state.choices.screen = Screen::Main;
    for (x, y) in (0..140).flat_map(|x| (0..50).map(move |y| (x, y))) {
        if let Some(Hit::Process(who, gpu)) = gpushare_tui::top::view::hit(area, &state, x, y) {
            assert!(state.data().process(who).unwrap().on(gpu).is_some());
        }
    }
}

#[test]
fn it_says_why_a_job_is_slow_and_tries_the_remedy_for_ten_minutes() {
    use gpushare_tui::top::why;
    let mut state = state();
    let said = |state: &State, name: &str| {
        let all = why::explain(state.data(), 0);
        all.into_iter()
            .find(|why| why.sentence.contains(name))
            .unwrap()
    };
    let bob = said(&state, "notebook-bob");
    assert!(
        bob.sentence.contains("was denied 5 allocations in 30 s"),
        "{}",
        bob.sentence
    );
    assert!(bob.remedy.unwrap().what.contains("15.0 GiB"));
    let ci = said(&state, "ci-job");
    assert!(
        ci.sentence
            .contains("waits 92% of its time, 42% of it for A"),
        "{}",
        ci.sentence
    );
    let dave = said(&state, "notebook-dave");
    assert!(
        dave.sentence.contains("elsewhere, not on the GPU"),
        "{}",
        dave.sentence
    );
    assert!(dave.remedy.is_none());

    press(&mut state, "x");
    assert!(
        screen(&state).contains("Why is it slow?"),
        "{}",
        screen(&state)
    );
    let all = why::explain(state.data(), 0);
    let at = all
        .iter()
        .position(|why| why.sentence.contains("notebook-bob"))
        .unwrap();
    for _ in 0..at {
        app::key(&mut state, KeyEvent::from(KeyCode::Down));
    }
    press(&mut state, "\n");
    assert_eq!(
        title(&state),
        "41876 notebook-bob gpu0: a quota of 15.0 GiB for 10m?"
    );
    let now = state.data().sample.time_ns;
    let Next::Do(Task::Edit(request)) = press(&mut state, "y") else {
        panic!("nothing is tried");
    };
    let Change::ProcessQuota {
        until: Some(until),
        value,
        ..
    } = request.change
    else {
        panic!("not a quota with an end");
    };
    assert_eq!(
        (until.ns, value),
        (now + 600 * S, QuotaValue::Bytes(15 << 30))
    );

    let mut sample = state.data().sample.clone();
    sample.time_ns += 1;
    sample.devices[0].policy.0.order = shm_layout::Order::Priority;
    state.update(sample);
    let ci = said(&state, "ci-job").remedy.expect("it may go first");
    assert_eq!(ci.what, "priority 1");
}
