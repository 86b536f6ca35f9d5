//! The measured figures on the pages, generated from `assets/results`.
//!
//! A page has a template in a comment, and below it what the test made of it:
//!
//! ```text
//! <!-- results inference
//! | how the GPU is shared | p50 | of time slicing |
//! |---|---|---|
//! | {condition} | {inference p50 .2} | {training steps over bare %} |
//! -->
//! …
//! <!-- end of results -->
//! ```
//!
//! The first line names files, each a document of `gpushare experiment --json`. A line with `{condition}` is repeated for
//! each condition of these files, or for those of a line `rows: CONDITION; CONDITION`. `{PROGRAM FIGURE}` is the median, or the
//! range if there is no median; `{PROGRAM FIGURE & PROGRAM FIGURE}` is the sum of medians. Behind it may stand `at CONDITION`,
//! `over alone`, `over bare`, and the number of decimals (`.2`) or `%`. `{place}` is card, driver and date.

use std::fmt::Write as _;
use std::path::Path;

use gpushare_launch::experiment::document::Document;
use gpushare_launch::experiment::plan::Plan;
use gpushare_sample::keys;
use gpushare_testbed::{Testbed, artifact};
use serde_json::Value;

use crate::{Page, page, pages, workspace};

const BEGIN: &str = "<!-- results ";
const END: &str = "<!-- end of results -->";
const ROWS: &str = "rows: ";

fn document(name: &str) -> Value {
    let path = workspace()
        .join("assets/results")
        .join(name)
        .with_extension("json");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the conditions of a document that gave a figure, in the order of its first figures.
fn conditions(document: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    for row in list(&document["figures"])
        .iter()
        .flat_map(|figure| list(&figure["conditions"]))
        .filter(|row| {
            row.as_object()
                .is_some_and(|row| row.values().any(Value::is_number))
        })
    {
        let name = row["condition"].as_str().expect("a name");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the name of a condition, as code if it is a policy.
fn label(document: &Value, condition: &str) -> String {
    let rows = list(&document["figures"])
        .iter()
        .flat_map(|figure| list(&figure["conditions"]));
    let is_policy = rows
        .into_iter()
        .any(|row| row["condition"] == condition && row["kind"] == "gpushare");
    if !is_policy {
        return condition.to_owned();
    }
    let end = condition.find([',', '(']).unwrap_or(condition.len());
    let (policy, remark) = condition.split_at(end);
    let blank = if policy.ends_with(' ') { " " } else { "" };
    format!("`{}`{blank}{remark}", policy.trim_end())
}

/// Returns the card, the driver and the date of a document.
fn place(document: &Value) -> String {
    let machine = &document["machine"];
    let devices = list(&machine["devices"]);
    let count = if devices.len() > 1 {
        format!("{} × ", devices.len())
    } else {
        String::new()
    };
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let copies = document["copies"].as_u64().unwrap_or(1);
    let of_each = match copies {
        1 => String::new(),
        count => format!(", {count} copies of each"),
    };
    let turns = document["switch"].as_f64();
    let turns = turns.map_or_else(String::new, |every| {
        format!(" in turns of {every} s{of_each}")
    });
    let repeats = document["repeats"].as_u64();
    let repeats = repeats.map(|repeats| repeats * copies);
    let rounds = match (repeats, document["seconds"].as_f64()) {
        (Some(1), Some(seconds)) => format!(", one round of {seconds} s{turns}"),
        (Some(repeats), Some(seconds)) => {
            format!(", median of {repeats} rounds of {seconds} s{turns}")
        }
        _ => String::new(),
    };
    format!(
        "{count}{}, driver {}, {}{rounds}",
        text(&devices[0]),
        text(&machine["driver"]),
        text(&document["date"])
            .split('T')
            .next()
            .unwrap_or_default()
    )
}

/// Returns the text of a placeholder. `None` stands for no figure of that name.
fn value(document: &Value, asked: &str, condition: &str) -> Option<String> {
    let (asked, form) = match asked.rsplit_once(' ') {
        Some((rest, form)) if form == "%" || form.starts_with('.') => (rest, form),
        _ => (asked, ""),
    };
    let (asked, key) = match asked.rsplit_once(" over ") {
        Some((rest, "alone")) => (rest, "of_alone"),
        Some((rest, "bare")) => (rest, "of_bare"),
        _ => (asked, "median"),
    };
    let (asked, condition) = asked.split_once(" at ").unwrap_or((asked, condition));
    let figures = asked
        .split(" & ")
        .map(|name| figure(document, name))
        .collect::<Option<Vec<_>>>()?;
    let unit = match figures[0]["unit"].as_str() {
        _ if form == "%" => " %".to_owned(),
        Some(unit @ ("ms" | "us" | "ns")) if key == "median" => format!(" {unit}"),
        _ => String::new(),
    };
    let text = |number: f64| match form.strip_prefix('.') {
        Some(digits) => format!("{number:.*}", digits.parse().expect("a number of digits")),
        None if form == "%" => format!("{:.0}", number * 100.0),
        None => number.to_string(),
    };
    let rows = figures.iter().map(|figure| {
        let rows = list(&figure["conditions"]);
        rows.iter().find(|row| row["condition"] == condition)
    });
    let rows = rows.collect::<Option<Vec<_>>>().unwrap_or_default();
    let sum = |key: &str| {
        let numbers = rows.iter().map(|row| row[key].as_f64());
        numbers.sum::<Option<f64>>().filter(|_| !rows.is_empty())
    };
    let range = || match (sum("min"), sum("max")?) {
        (Some(min), max) => Some(format!("{}–{}", text(min), text(max))),
        (None, max) => Some(format!("up to {}", text(max))),
    };
    let made = sum(key).map(text).or_else(range);
    Some(made.map_or_else(|| "–".to_owned(), |made| made + &unit))
}

/// Returns a document's figure by the name of its program and its own.
fn figure<'d>(document: &'d Value, name: &str) -> Option<&'d Value> {
    list(&document["figures"]).iter().find(|figure| {
        let text = |key: &str| figure[key].as_str().expect("a name");
        name == format!("{} {}", text("program"), text("figure"))
    })
}

/// Replaces the placeholders in a line.
fn fill(line: &str, documents: &[&Value], condition: &str) -> String {
    let mut pieces = line.split('{');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (asked, rest) = piece
            .split_once('}')
            .unwrap_or_else(|| panic!("no }} in {line}"));
        let text = match asked {
            "condition" => label(documents[0], condition),
            "place" => documents
                .iter()
                .map(|document| place(document))
                .collect::<Vec<_>>()
                .join("; "),
            asked => documents
                .iter()
                .find_map(|document| value(document, asked, condition))
                .unwrap_or_else(|| panic!("no figure {asked}")),
        };
        let _ = write!(filled, "{text}{rest}");
    }
    filled
}

/// Returns the conditions that a template shows.
fn rows<'t>(template: &'t str, document: &'t Value) -> Vec<&'t str> {
    let chosen = template.lines().find_map(|line| line.strip_prefix(ROWS));
    let all = || conditions(document);
    chosen.map_or_else(all, |chosen| chosen.split("; ").collect())
}

fn rendered(documents: &[Value], template: &str) -> String {
    let mut text = String::new();
    for line in template.lines().filter(|line| !line.starts_with(ROWS)) {
        if !line.contains("{condition}") {
            text += &format!(
                "{}\n",
                fill(line, &documents.iter().collect::<Vec<_>>(), "")
            );
            continue;
        }
        for document in documents {
            for condition in rows(template, document) {
                text += &format!("{}\n", fill(line, &[document], condition));
            }
        }
    }
    text
}

/// Returns a block's file names, its template, and what follows the template.
fn block(piece: &str) -> (&str, &str, &str) {
    let (template, rest) = piece.split_once("\n-->\n").expect("the template ends");
    let (names, lines) = template.split_once('\n').expect("a line with names");
    (names, lines, rest)
}

/// Returns the text of a page with its results made anew, and their number.
fn made(page: &Page) -> (String, usize) {
    let mut pieces = page.text.split(BEGIN);
    let mut text = pieces.next().unwrap_or_default().to_owned();
    let mut count = 0;
    for piece in pieces {
        let (names, template, rest) = block(piece);
        let (_, rest) = rest.split_once(END).expect("the results end");
        let documents: Vec<Value> = names.split(' ').map(document).collect();
        let table = rendered(&documents, template);
        let _ = write!(
            text,
            "{BEGIN}{names}\n{template}\n-->\n\n{table}\n{END}{rest}"
        );
        count += 1;
    }
    (text, count)
}

#[test]
fn the_measured_figures_on_the_pages_are_those_of_the_results() {
    let mut count = 0;
    for page in pages() {
        let (text, more) = made(&page);
        count += more;
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&page.path, &text).expect("written");
        }
        let now = std::fs::read_to_string(&page.path).expect("the page");
        assert!(
            now == text,
            "{} is stale: BLESS=1 cargo test -p gpushare --test guide",
            page.path.display()
        );
    }
    assert!(count > 10, "{count}");
}

/// Collects the paths of the keys of a value.
fn paths(value: &Value, path: &str, all: &mut Vec<String>) {
    let inner = if path.is_empty() {
        String::new()
    } else {
        format!("{path}.")
    };
    for (name, value) in value.as_object().into_iter().flatten() {
        all.push(format!("{inner}{name}"));
        let list = if value.is_array() { "[]" } else { "" };
        let path = format!("{inner}{name}{list}");
        paths(value, &path, all);
        self::list(value)
            .iter()
            .for_each(|one| paths(one, &path, all));
    }
}

/// Checks that a document has the keys of an experiment's document, and no others.
fn check_form(name: &str, document: &Value) {
    let form: Vec<String> = keys::of::<Document<'_>>()
        .into_iter()
        .map(|key| key.path)
        .collect();
    let mut has = Vec::new();
    paths(document, "", &mut has);
    for path in &has {
        assert!(
            form.contains(path),
            "{name}: an experiment writes no {path}"
        );
    }
    for path in form
        .iter()
        .filter(|path| !path.contains('[') || path.starts_with("figures[]."))
    {
        assert!(has.contains(path), "{name}: no {path}");
    }
}

#[test]
fn every_result_is_an_experiments_document_as_written_and_is_on_a_page() {
    let pages = pages();
    let results = std::fs::read_dir(workspace().join("assets/results")).expect("the results");
    for file in results.flatten() {
        let path = file.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a name");
        let document = document(name);
        check_form(name, &document);
        assert!(!list(&document["runs"]).is_empty(), "{name} has no runs");
        let is_used = pages.iter().any(|page| !templates(page, name).is_empty());
        assert!(is_used, "no page shows {name}");
    }
}

/// Returns a page's templates that show a result.
fn templates<'p>(page: &'p Page, name: &str) -> Vec<&'p str> {
    let blocks = page.text.split(BEGIN).skip(1).map(block);
    let used = blocks.filter(|(names, ..)| names.split(' ').any(|used| used == name));
    used.map(|(_, template, _)| template).collect()
}

/// A later run replaces the file of an earlier one, and nothing is written by hand.
#[test]
fn what_an_experiment_writes_becomes_a_table_as_it_is() {
    let bed = Testbed::new();
    artifact("gpushare-workload");
    let mut experiment = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    let words =
        "experiment priority --sim --seconds 0.4 --repeats 1 --only order=priority --json -";
    let output = experiment
        .args(words.split(' '))
        .env("GPUSHARE_LIB", artifact("libgpushare.so"))
        // The plan's scenario sets the simulated devices.
        .env_remove("GPUSHARE_SIM")
        .output()
        .expect("it is built");
    assert!(output.status.success(), "{output:?}");
    let mut raw: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_form("priority", &raw);
    // The simulator has no driver.
    raw["machine"]["driver"] = "580".into();
    let page = page(workspace().join("assets/guide/measured.md"));
    let [template] = templates(&page, "priority")[..] else {
        panic!("one table shows it");
    };
    let table = rendered(&[raw], template);
    for words in ["| `overlap order=priority` | ", " ms | ", "driver 580, 20"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let longest = table
        .split(['|', ' '])
        .filter(|word| word.parse::<f64>().is_ok());
    let longest = longest.map(str::len).max();
    assert!(longest.is_some_and(|longest| longest < 8), "{table}");
}

/// Reads an installed plan as on a machine that has its programs.
fn plan(path: &Path) -> Plan {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let copy = folder.path().join(path.file_name().expect("a file"));
    let text = std::fs::read_to_string(path).expect("a plan");
    let text = text.replace("\"torchrun\"", "\"sh\"");
    std::fs::write(&copy, text.replace("\"python3\"", "\"sh\"")).expect("written");
    Plan::read(&copy).expect("a plan")
}

#[test]
fn every_installed_plan_can_be_read_and_its_programs_are_there() {
    let folder = workspace().join("assets/experiments");
    let files = std::fs::read_dir(&folder).expect("the plans").flatten();
    let files = files.map(|file| file.path());
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "toml")) {
        for program in plan(&file).programs {
            let words = program.command.get_ref().iter();
            for script in words.filter(|word| word.starts_with("programs/")) {
                assert!(
                    folder.join(script).is_file(),
                    "{}: {script}",
                    file.display()
                );
            }
        }
    }
}

/// Returns the plans of a table's documents. Some documents are a plan's with other words.
fn plans_of(names: &str) -> Vec<Plan> {
    let path = |name: &str| {
        let name = name.strip_suffix("-in-turns").unwrap_or(name);
        let name = name.strip_suffix("-mps").unwrap_or(name);
        workspace().join(format!("assets/experiments/{name}.toml"))
    };
    let paths = names.split(' ').map(path);
    paths
        .filter(|path| path.exists())
        .map(|path| plan(&path))
        .collect()
}

/// Checks that one of a table's plans measures what the table shows.
fn check_asked(names: &str, plans: &[Plan], template: &str) -> usize {
    let programs = || plans.iter().flat_map(|plan| &plan.programs);
    let figures: Vec<String> = programs()
        .flat_map(|program| {
            let figures = program.figures.iter();
            figures.map(|figure| format!("{} {}", program.name, figure.name))
        })
        .collect();
    let asked = template.split('{').skip(1);
    let asked = asked.filter_map(|piece| piece.split('}').next());
    let asked: Vec<&str> = asked
        .filter(|asked| !["place", "condition"].contains(asked))
        .collect();
    for asked in asked.iter().flat_map(|asked| asked.split(" & ")) {
        let is_measured = figures.iter().any(|figure| asked.starts_with(figure));
        assert!(is_measured, "{names} measure no {asked}");
    }
    let chosen = template.lines().filter_map(|line| line.strip_prefix(ROWS));
    for row in chosen.flat_map(|chosen| chosen.split("; ")) {
        let mut conditions = plans.iter().flat_map(|plan| &plan.conditions);
        let has = conditions.any(|condition| condition.name == row);
        assert!(has, "{names} have no condition {row}");
    }
    asked.len()
}

/// Otherwise the next run of the plan could not fill the table.
#[test]
fn every_table_that_has_a_plan_asks_only_for_what_the_plan_measures() {
    let mut count = 0;
    for page in pages() {
        for (names, template, _) in page.text.split(BEGIN).skip(1).map(block) {
            let plans = plans_of(names);
            if !plans.is_empty() {
                count += check_asked(names, &plans, template);
            }
        }
    }
    assert!(count > 10, "{count}");
}
