//! Rules of the settings file: their conditions, their actions, and their limits.

use std::path::Path;
use std::time::Duration;

use gpushare_control::audit::{AuditLog, Outcome};
use gpushare_sample::{EditLine, Origin, Sample};
use gpushare_testbed::eventually;
use gpushare_top::config::Config;
use gpushare_top::operator::{News, Operator, Task};
use gpushare_top::rules::action::RuleAction;
use gpushare_top::rules::runner::{Runner, Signs};
use gpushare_top::state::State;
use shm_layout::{Change, Set, ShareEdit};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{sample, story};

const S: u64 = 1_000_000_000;
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a dashboard with the rules of this settings file.
fn watching(settings: &str) -> State {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), settings).unwrap();
    let mut state = State::default();
    state.watch_by(Config::read(Some(file.path())).unwrap().rules);
    state
}

/// Returns every action of the story with the second in which it was due.
fn actions(state: &mut State, change: impl Fn(&mut Sample)) -> Vec<(u64, RuleAction)> {
    let mut all = Vec::new();
    let mut first = None;
    for mut sample in story() {
        change(&mut sample);
        let now = sample.time_ns;
        let first = *first.get_or_insert(now);
        state.update(sample);
        all.extend(
            state
                .take_actions()
                .into_iter()
                .map(|action| ((now - first) / S, action)),
        );
    }
    all
}

fn nothing(_: &mut Sample) {}

#[test]
fn a_rule_acts_once_it_has_held_for_its_time_and_not_again_before_its_pause() {
    let mut state = watching(
        "[[alert]]\nname = \"old\"\nwhen = \"name=vllm-worker\"\nfor = \"5s\"\nagain = \"10s\"\nbell = true\n",
    );
    let done = actions(&mut state, nothing);
    let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [5, 15], "{done:?}");
    let action = &done[0].1;
    assert!(action.bell && !action.notify && action.command.is_none() && action.edit.is_none());
    assert_eq!(
        action.sentence,
        "old: B 41849 vllm-worker (alice) on GPU0: name=vllm-worker for 5s"
    );
    let shown = state
        .data()
        .alerts
        .iter()
        .find(|alert| alert.kind.id == "rule")
        .expect("it is shown");
    assert!(
        shown.sentence().starts_with("old: B 41849 vllm-worker"),
        "{shown:?}"
    );
}

#[test]
fn what_is_not_so_without_a_break_is_not_so_for_that_long() {
    // Turns are shorter than this time.
    let mut state = watching("[[alert]]\nwhen = \"state=hold\"\nfor = \"3s\"\nbell = true\n");
    assert!(actions(&mut state, nothing).is_empty());
    let mut state = watching(
        "[[alert]]\nwhen = \"state=hold name=train-7b\"\nfor = \"1s\"\nbell = true\nagain = \"1s\"\n",
    );
    assert!(
        actions(&mut state, nothing).len() >= 2,
        "it acts in each turn"
    );
}

#[test]
fn a_rule_may_look_at_an_alert() {
    let mut state = watching(
        "[[alert]]\nalert = \"denials\"\nwhen = \"user=bob\"\nnotify = true\n[[alert]]\nalert = \"denials\"\nwhen = \"user=alice\"\nbell = true\n",
    );
    let done = actions(&mut state, nothing);
    assert_eq!(done.len(), 1, "{done:?}");
    let action = &done[0].1;
    assert!(action.notify);
    assert!(
        action
            .sentence
            .starts_with("rule 1: C notebook-bob was denied"),
        "{}",
        action.sentence
    );
}

#[test]
fn a_recording_makes_no_rule_act() {
    let mut state = watching("[[alert]]\nwhen = \"name=vllm-worker\"\nbell = true\n");
    assert!(actions(&mut state, |sample| sample.origin = Origin::Replay).is_empty());
    assert!(
        state
            .data()
            .alerts
            .iter()
            .any(|alert| alert.kind.id == "rule"),
        "but it is shown"
    );
}

#[test]
fn a_remedy_ends_by_itself_and_is_bounded() {
    let settings = "[[alert]]\nname = \"b\"\nwhen = \"name=vllm-worker\"\nagain = \"1s\"\nremedy = \"boost 5\"\nexpires = \"1m\"\nat_most = 2\n";
    let done = actions(&mut watching(settings), nothing);
    let edit = done[0].1.edit.as_ref().unwrap().as_ref().unwrap();
    let Change::ProcessShare {
        share: ShareEdit {
            boost: Set::To(boost),
            ..
        },
        ..
    } = &edit.change
    else {
        panic!("{edit:?}");
    };
    assert_eq!(boost.priority, 5);
    let began = story().next().unwrap().time_ns;
    assert_eq!(boost.until_ns, began + 60 * S);
    assert_eq!(
        edit.reason.as_deref(),
        Some("alert rule b: name=vllm-worker")
    );
    assert_eq!(
        edit.expected_generation,
        Some(813),
        "refused if anything was edited meanwhile"
    );
    let made = done
        .iter()
        .filter(|(_, action)| matches!(action.edit, Some(Ok(_))));
    assert_eq!(made.count(), 2, "no more in an hour");
    let why = done[2].1.edit.as_ref().unwrap().as_ref().unwrap_err();
    assert_eq!(why, "it made 2 in an hour, which is its limit");

    let boosted = |sample: &mut Sample| sample.processes[1].share.boost_until_ns = Some(u64::MAX);
    let done = actions(&mut watching(settings), boosted);
    let why = done[0].1.edit.as_ref().unwrap().as_ref().unwrap_err();
    assert!(why.contains("ends by itself is in force"), "{why}");
}

#[test]
fn a_rule_whose_edit_was_taken_back_makes_no_more() {
    let settings = "[[alert]]\nname = \"q\"\nwhen = \"name=vllm-worker\"\nagain = \"5s\"\nremedy = \"quota +25%\"\nexpires = \"2s\"\nat_most = 60\n";
    let began = story().next().unwrap().time_ns;
    let done = actions(&mut watching(settings), |sample| {
        let line = |generation, undoes, reason: &str| EditLine {
            generation,
            undoes,
            reason: Some(reason.into()),
            ..EditLine::default()
        };
        if (7 * S..7 * S + S / 4).contains(&(sample.time_ns - began)) {
            sample
                .edits
                .push(line(814, None, "alert rule q: name=vllm-worker"));
        }
        if (12 * S..12 * S + S / 4).contains(&(sample.time_ns - began)) {
            sample.edits.push(line(815, Some(814), "undo of edit 9"));
        }
    });
    let made: Vec<bool> = done
        .iter()
        .map(|(_, action)| action.edit.as_ref().unwrap().is_ok())
        .collect();
    assert_eq!(made, [true, true, true, false, false], "{done:?}");
    assert!(
        done[3]
            .1
            .edit
            .as_ref()
            .unwrap()
            .as_ref()
            .unwrap_err()
            .contains("took its last one back")
    );
}

/// A stage with an operator for the actions, and their messages.
struct Stage {
    dir: tempfile::TempDir,
    operator: Operator,
    runner: Runner,
    news: UnboundedReceiver<News>,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sender, news) = unbounded_channel();
        Self {
            operator: Operator::start(dir.path().to_owned(), sender.clone()),
            runner: Runner::start(dir.path().to_owned(), sender),
            news,
            dir,
        }
    }

    fn act(&self, settings: &str) -> Signs {
        let mut state = watching(settings);
        state.update(sample(
            story().next().unwrap().time_ns - S,
            story().next().unwrap().time_ns,
        ));
        let action = state.take_actions().remove(0);
        self.runner.act(action, &self.operator, true)
    }

    fn told(&mut self) -> String {
        let mut told = None;
        eventually("something is said", LIMIT, || {
            told = self.news.try_recv().ok();
            told.is_some()
        });
        match told {
            Some(News::Warning(sentence)) => sentence,
            other => panic!("{other:?}"),
        }
    }

    fn log(&self) -> Vec<gpushare_control::audit::Record> {
        AuditLog::of_path(self.dir.path()).newest(1 << 20).unwrap()
    }
}

fn quoted(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_program_gets_the_facts_in_its_environment_and_is_recorded() {
    let stage = Stage::new();
    let out = stage.dir.path().join("out");
    let signs = stage.act(&format!(
        "[[alert]]\nname = \"hook\"\nwhen = \"name=vllm-worker\"\nshell = \"env | grep -E '^(ALERT|ROW)_' > {0}.part; mv {0}.part {0}\"\n",
        quoted(&out)
    ));
    assert_eq!(signs, Signs::default());
    eventually("the program has run", LIMIT, || out.exists());
    let facts = std::fs::read_to_string(&out).unwrap();
    for fact in [
        "ALERT_RULE=hook",
        "ROW_PID=41849",
        "ROW_USER=alice",
        "ALERT_GPU=0",
        "ALERT_HOST=gpu01",
        "ROW_QUOTA=42949672960",
    ] {
        assert!(facts.lines().any(|line| line == fact), "{fact}\n{facts}");
    }
    let record = stage.log().pop().expect("it is recorded");
    assert_eq!((record.result, record.change), (Outcome::Applied, None));
    assert!(
        record.new.starts_with("command /bin/sh -c env"),
        "{}",
        record.new
    );
    assert_eq!(record.target, "41849 vllm-worker gpu0");
    assert_eq!(
        record.reason.as_deref(),
        Some("alert rule hook: name=vllm-worker")
    );
}

#[test]
fn without_being_asked_no_shell_reads_a_command() {
    let stage = Stage::new();
    let marks = ["$HOME; *", "`id`"].map(|name| stage.dir.path().join(name));
    let [one, two] = marks.each_ref().map(|path| quoted(path));
    stage.act(&format!(
        "[[alert]]\nwhen = \"name=vllm-worker\"\ncommand = [\"/bin/touch\", '{one}', '{two}']\n"
    ));
    eventually("both files are there under these names", LIMIT, || {
        marks.iter().all(|path| path.exists())
    });
}

#[test]
fn a_program_that_hangs_fails_or_is_missing_is_told_of() {
    let mut stage = Stage::new();
    let rule = "[[alert]]\nname = \"r\"\nwhen = \"name=vllm-worker\"\n";
    stage.act(&format!(
        "{rule}command = [\"sleep\", \"1000\"]\nlimit = \"100ms\"\n"
    ));
    assert_eq!(
        stage.told(),
        "rule r: its program took too long and was ended"
    );
    stage.act(&format!("{rule}shell = \"exit 7\"\n"));
    assert_eq!(stage.told(), "rule r: its program ended with code 7");
    stage.act(&format!("{rule}command = [\"/no/such/program\"]\n"));
    assert!(stage.told().contains("/no/such/program cannot be started"));
    assert_eq!(stage.log().pop().unwrap().result, Outcome::Refused);
}

#[test]
fn more_programs_than_may_wait_are_not_started() {
    let stage = Stage::new();
    let settings = "[[alert]]\nname = \"r\"\nwhen = \"name=vllm-worker\"\ncommand = [\"sleep\", \"1000\"]\nlimit = \"60s\"\n";
    let said: Vec<Option<String>> = (0..30).map(|_| stage.act(settings).said).collect();
    assert!(said[..16].iter().all(Option::is_none), "{said:?}");
    let last = said.last().unwrap().as_deref();
    assert_eq!(
        last,
        Some("rule r: its program is not started: too many wait already")
    );
    let start = std::time::Instant::now();
    drop(stage);
    assert!(
        start.elapsed() < Duration::from_secs(50),
        "what runs is ended"
    );
}

#[test]
fn a_remedy_is_an_edit_of_the_operators_thread_and_none_where_nothing_may_be_changed() {
    let stage = Stage::new();
    let mut state = watching(
        "[[alert]]\nname = \"r\"\nwhen = \"name=vllm-worker\"\nremedy = \"quota 64G\"\nexpires = \"1m\"\n",
    );
    state.update(story().next().unwrap());
    let action = state.take_actions().remove(0);
    let signs = stage.runner.act(action.clone(), &stage.operator, false);
    assert_eq!(
        signs.said.as_deref(),
        Some("rule r: its remedy is not made: read-only")
    );
    let Some(Ok(request)) = action.edit else {
        panic!("{action:?}")
    };
    assert_eq!(request.target, "41849 vllm-worker gpu0");
    let _ = Task::Remedy("r".into(), request);
}
