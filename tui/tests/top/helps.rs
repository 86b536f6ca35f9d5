//! Help in the dashboard: the search, the mouse, and the reasons why a job is slow.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use gpushare_top::app::{self, Next};
use gpushare_top::operator::Task;
use gpushare_top::overlay::Overlay;
use gpushare_top::state::{Hit, Screen, State};
use ratatui::layout::Rect;
use shm_layout::{Change, QuotaValue, Set};

use crate::devices::eight;
use crate::hands::{S, notice, press, screen, select, title};
use crate::support::{state, story};

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
fn any_key_that_does_nothing_is_told_by_its_name() {
    let mut state = state();
    let with_control = KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL);
    for (key, name) in [
        (with_control, "^R"),
        (KeyCode::F(9).into(), "F9"),
        (KeyCode::Backspace.into(), "Backspace"),
    ] {
        app::key(&mut state, key);
        let told = notice(&state);
        assert!(told.starts_with(&format!("{name} does nothing")), "{told}");
    }
}

#[test]
fn what_is_counted_elsewhere_is_not_told_as_without_shim_and_no_quota_not_as_one_of_0_bytes() {
    let mut state = state();
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    assert!(screen(&state).contains(" +1 without shim"));
    sample.processes[6].elsewhere = Some("/dev/shm/old".into());
    for process in &mut sample.processes {
        let mine = process.view.devices.iter_mut();
        mine.for_each(|holding| holding.quota.bytes = None);
    }
    state.update(sample);
    let screen = screen(&state);
    assert!(screen.contains(" +1 elsewhere"), "{screen}");
    assert!(!screen.contains("without shim"), "{screen}");
    assert!(screen.contains("no quotas"), "{screen}");
    assert!(!screen.contains("quotas 0"), "{screen}");
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

/// Returns the first position of this text on the screen.
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
    match gpushare_top::view::hit(area, state, x, y) {
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
        gpushare_sample::columns::COLUMNS[state.choices.sort].key,
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
        if let Some(Hit::Process(who, gpu)) = gpushare_top::view::hit(area, &state, x, y) {
            assert!(state.data().process(who).unwrap().on(gpu).is_some());
        }
    }
}

#[test]
fn it_says_why_a_job_is_slow_and_tries_the_remedy_for_ten_minutes() {
    use gpushare_observe::findings;
    let mut state = state();
    let said = |state: &State, name: &str| {
        let all = findings::explain(state.data(), 0);
        let mut about = all.into_iter().filter(|why| why.what.contains(name));
        about.next().unwrap()
    };
    let bob = said(&state, "notebook-bob");
    assert!(
        bob.what.contains("was denied 5 allocations in 30 s"),
        "{bob:?}"
    );
    assert!(bob.remedy.unwrap().text.contains("15.0 GiB"));
    let cost = bob.cost.unwrap();
    assert!(
        cost.losers.first.contains(&"A train-7b".to_owned()),
        "{cost}"
    );
    assert!(
        !cost.losers.first.iter().any(|loser| loser.contains("bob")),
        "{cost}"
    );
    let ci = said(&state, "ci-job");
    assert!(
        ci.what
            .contains("gets 8%, its fair share is 2%: nothing wrong"),
        "{ci:?}"
    );
    let dave = said(&state, "notebook-dave");
    assert!(dave.what.contains("elsewhere, not on the GPU"), "{dave:?}");
    assert!(dave.remedy.is_none());

    press(&mut state, "x");
    assert!(
        screen(&state).contains("Why is it slow?"),
        "{}",
        screen(&state)
    );
    let all = findings::explain(state.data(), 0);
    let at = all
        .iter()
        .position(|why| why.what.contains("notebook-bob"))
        .unwrap();
    for _ in 0..at {
        app::key(&mut state, KeyEvent::from(KeyCode::Down));
    }
    press(&mut state, "\n");
    assert_eq!(
        title(&state),
        "41876 notebook-bob gpu0: raise its quota to 15.0 GiB for 10m?"
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
    assert_eq!(ci.text, "priority 1");
}

#[test]
fn a_remedy_is_offered_only_under_a_job_that_gains_by_it() {
    use gpushare_observe::findings;
    let mut state = State::default();
    for mut sample in story() {
        sample.processes[0].share.priority = 5;
        sample.processes[4].share.priority = -5;
        state.update(sample);
    }
    let remedy = |name: &str| {
        let all = findings::explain(state.data(), 0);
        let why = all.into_iter().find(|why| why.what.contains(name)).unwrap();
        (
            why.remedy.map(|remedy| remedy.text),
            why.cost.map(|cost| cost.losers),
        )
    };
    let (urgent, losers) = remedy("train-7b");
    assert_eq!(urgent.as_deref(), Some("overlap order=priority"));
    assert_eq!(
        losers.unwrap().to_string(),
        "B vllm-worker, C notebook-bob and 3 others"
    );
    let (batch, _) = remedy("ci-job-3312");
    assert_ne!(batch.as_deref(), Some("overlap order=priority"));
}

#[test]
fn a_number_opens_the_remedy_of_its_alert_with_the_proposed_value_whatever_is_selected() {
    let mut state = state();
    state.choices.selected = Some(state.data().on(0)[0]);
    let hint = "[1] raise its weight to 131";
    assert!(screen(&state).contains(hint), "{}", screen(&state));
    press(&mut state, "!1");
    let listed = title(&state).to_owned();
    press(&mut state, "\x1b1");
    assert_eq!(title(&state), listed, "without the list too");
    assert!(
        title(&state).starts_with("Share  C 41876 notebook-bob"),
        "{}",
        title(&state)
    );
    let Next::Do(Task::Edit(request)) = press(&mut state, "\n") else {
        panic!("nothing is sent: {}", screen(&state));
    };
    let Change::ProcessShare { share, .. } = request.change else {
        panic!("not a share: {request:?}");
    };
    assert_eq!(
        share,
        shm_layout::ShareEdit {
            weight: Set::To(131),
            ..Default::default()
        }
    );

    let mut sample = state.data().sample.clone();
    sample.time_ns += 1_000_000_000;
    sample.processes[1].devices[0].counters.drain_timeouts += 1;
    press(&mut state, "\x1b");
    state.update(sample);
    let alerts = &state.data().alerts;
    let at = alerts
        .iter()
        .position(|alert| alert.kind.id == "late")
        .unwrap();
    press(&mut state, "!");
    for _ in 0..at {
        app::key(&mut state, KeyEvent::from(KeyCode::Down));
    }
    press(&mut state, "\n");
    assert!(
        title(&state).starts_with("Lock policy  GPU0"),
        "{}",
        title(&state)
    );
    assert!(
        screen(&state).contains("grace=400ms (was 200ms)"),
        "{}",
        screen(&state)
    );
}
