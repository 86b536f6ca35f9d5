use super::*;

pub(in crate::experiment) const GOOD: &str = r#"seconds = 1
[[program]]
name = "a"
command = ["sh", "-c", "echo x=1"]
figures = [{ name = "x", pattern = 'x=(\d+)', better = "higher" }]
[[condition]]
alone = true
[[condition]]
[[condition]]
policy = "off"
"#;

pub(in crate::experiment) fn parsed(text: &str) -> Result<Plan, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("plan.toml");
    std::fs::write(&path, text).expect("ours");
    Plan::read(&path).map_err(|failure| {
        let place = format!("{}:", path.display());
        assert!(failure.sentence.starts_with(&place), "{failure}");
        failure.sentence[place.len()..].to_owned()
    })
}

#[test]
fn conditions_without_a_name_are_called_by_what_they_are() {
    let plan = parsed(GOOD).expect("it makes sense");
    let names: Vec<&str> = plan.conditions.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["alone", "bare", "off"]);
    assert!(plan.conditions[1].is_bare() && plan.conditions[2].is_ours());
    assert_eq!(
        (plan.repeats, plan.warm_up, plan.title.as_str()),
        (3, 0, "plan")
    );
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (from, to, wanted) in [
        (
            "seconds = 1",
            "seconds = 0",
            "1: seconds = 0 is out of range",
        ),
        (
            "seconds = 1",
            "seconds = 1\nspeed = 2",
            "2: unknown field `speed`",
        ),
        ("seconds = 1", "seconds = ", "1: "),
        (
            "seconds = 1",
            "seconds = 1\ntimeout = '5 apples'",
            "2: timeout: ",
        ),
        (
            "seconds = 1",
            "seconds = 1\nrepeats = 0",
            "2: repeats = 0 is out of range",
        ),
        (
            "\"sh\"",
            "\"no-such-program\"",
            "4: cannot run \"no-such-program\"",
        ),
        ("(\\d+)", "\\d+", "5: pattern \"x=\\\\d+\" has no group"),
        ("(\\d+)", "(\\d+", "5: pattern"),
        (
            "better = \"higher\"",
            "better = \"more\"",
            "5: unknown variant `more`",
        ),
        (
            "[[condition]]\n[[",
            "[[condition]]\nalone = true\n[[",
            "8: there are two conditions \"alone\"",
        ),
        ("\"off\"", "\"slice=1\"", "10: policy: "),
        (
            "policy = \"off\"",
            "alone = true\npolicy = \"off\"",
            "9: condition \"alone, off\": alone goes with none",
        ),
        (
            "policy = \"off\"",
            "policy = \"off\"\npreload = 'x.so'",
            "9: condition",
        ),
        (
            "policy = \"off\"",
            "program.b.cap = 3",
            "10: there is no program \"b\"",
        ),
        (
            "policy = \"off\"",
            "policy = \"off\"\nprogram.a.cap = 300",
            "11: --cap: ",
        ),
        (
            "policy = \"off\"",
            "policy = \"off\"\nprogram.a.mps = false",
            "11: mps = false keeps a program out of a condition's MPS",
        ),
        (
            "policy = \"off\"",
            "mps = true\nprogram.a.cap = 3",
            "11: memory, weight, priority and cap are gpushare's",
        ),
        (
            "policy = \"off\"",
            "env = { 'A=B' = '1' }",
            "9: condition \"bare\": \"A=B\"",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let why = parsed(&GOOD.replacen(from, to, 1)).expect_err(to);
        assert!(why.starts_with(wanted), "{to:?}: {why:?} is not {wanted:?}");
        assert!(!why.contains('\n'), "{why:?}");
    }
}

#[test]
fn a_condition_overrides_what_it_names_of_a_program() {
    let text = GOOD.replace(
        "policy = \"off\"",
        "policy = \"off\"\nenv = { B = '2', C = '2' }\n[condition.program.a]\npriority = 7\nenv = { C = '3' }",
    );
    let text = text.replace(
        "name = \"a\"",
        "name = \"a\"\nweight = 50\npriority = 1\nenv = { A = '1', B = '1' }",
    );
    let plan = parsed(&text).expect("it makes sense");
    let (program, condition) = (&plan.programs[0], &plan.conditions[2]);
    let settings = program.settings(condition.change_of("a"));
    assert_eq!(settings.options(), ["--weight=50", "--priority=7"]);
    let variables = condition.variables(program);
    let variables: Vec<_> = variables.into_iter().collect();
    assert_eq!(variables, [("A", "1"), ("B", "2"), ("C", "3")]);
}

#[test]
fn a_library_that_is_not_there_is_a_sentence() {
    let text = GOOD.replace(
        "policy = \"off\"",
        "preload = '$GPUSHARE_TEST_NO_SUCH_LIBRARY'",
    );
    let plan = parsed(&text).expect("it makes sense");
    let why = plan.conditions[2]
        .library(Path::new("/"))
        .expect_err("not set");
    assert!(why.contains("is not set; set it"), "{why}");
}

#[test]
fn the_plans_that_are_shipped_make_sense() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/experiments");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("ours").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        // The plan must be readable without PyTorch's interpreter and without our workload.
        let text = std::fs::read_to_string(&path).expect("text");
        let text = text
            .replace("\"python3\"", "\"sh\"")
            .replace("\"torchrun\"", "\"sh\"");
        let text = text.replace("\"gpushare-workload\"", "\"sh\"");
        let plan = Plan::parse(&path, &text);
        let plan = plan.unwrap_or_else(|wrong| panic!("{}: {}", path.display(), wrong.why));
        let is_measured_against = |condition: &Condition| {
            let is_shared = condition.mps || condition.is_ours() || condition.preload.is_some();
            condition.alone || !is_shared
        };
        assert!(plan.conditions.iter().any(is_measured_against) || plan.scenario.is_some());
        seen += 1;
    }
    assert!(seen >= 3, "{seen}");
}
