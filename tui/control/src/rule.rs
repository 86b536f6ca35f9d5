//! Rules as they are written in a file, and the edits that replace the rules of the segments by those of the file.

use shm_layout::{Change, MAX_RULES, Rule, SettingValues, Settings, ShareEdit};

use super::manifest::{RuleEntry, Value, Words};
use super::quota::MEMORY;
use super::share;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::users::Users;

/// Makes a rule from an entry. `place`, from 1, is part of the name if the entry has none.
pub fn read(entry: &RuleEntry, place: usize) -> Result<Rule, Failure> {
    let name = entry.name.clone().unwrap_or_else(|| unnamed(place));
    let named = |failure: Failure| Failure {
        sentence: format!("[[rule]] {name:?}: {}", failure.sentence),
        ..failure
    };
    let uid = entry
        .user
        .as_ref()
        .map(|user| {
            let uid = Users::of_this_machine().uid(&user.text());
            uid.ok_or_else(|| {
                Failure::usage(format!(
                    "there is no user {}; give a name from /etc/passwd or a number",
                    user.text()
                ))
            })
        })
        .transpose()
        .map_err(named)?;
    let (memory, share) = entry.settings.read().map_err(named)?;
    let limits = SettingValues {
        memory,
        ..SettingValues::of(&share)
    };
    if limits == SettingValues::default() {
        let known: Vec<&str> = share::words::<ShareEdit>().collect();
        let why = format!("it sets nothing; give {MEMORY}, {}", known.join(", "));
        return Err(named(Failure::usage(why)));
    }
    let rule = Rule {
        name: name.clone(),
        uid,
        group: entry.group.clone(),
        executable: entry.executable.clone(),
        container: entry.container.clone(),
        label: entry.label.clone(),
        limits,
    };
    match (is_for_all(&rule), entry.all == Some(true)) {
        (true, false) => Err(named(Failure::usage(
            "it has no condition; give user, group, executable, container or label, or all = true for every process",
        ))),
        (false, true) => Err(named(Failure::usage(
            "all = true means every process, and it has a condition; leave one of them out",
        ))),
        _ => Ok(rule),
    }
}

/// Returns true if the rule has no conditions, so that it matches every process.
fn is_for_all(rule: &Rule) -> bool {
    let texts = [&rule.group, &rule.executable, &rule.container, &rule.label];
    rule.uid.is_none() && texts.iter().all(|text| text.is_none())
}

/// Returns the entry from which this rule is read.
pub fn entry(rule: &Rule) -> RuleEntry {
    let users = Users::of_this_machine();
    RuleEntry {
        name: Some(rule.name.clone()),
        user: rule.uid.map(|uid| Value::Text(users.name(uid).to_string())),
        group: rule.group.clone(),
        executable: rule.executable.clone(),
        container: rule.container.clone(),
        label: rule.label.clone(),
        all: is_for_all(rule).then_some(true),
        settings: words(rule),
    }
}

/// Returns what the rule sets, by the words of the settings.
fn words(rule: &Rule) -> Words {
    let words = rule.limits.words().into_iter();
    words.map(|(about, value)| (about.word, value)).collect()
}

/// Returns the edits that replace the rules in force by `wanted`, in this order, each with its name for the log.
pub fn changes(wanted: &[Rule], present: &Settings) -> Result<Vec<(Change, String)>, Failure> {
    if wanted.len() > MAX_RULES {
        return Err(Failure::usage(format!(
            "there are {} rules; at most {MAX_RULES} can be in force",
            wanted.len()
        )));
    }
    let places = (0..MAX_RULES).filter_map(|at| {
        let index = u8::try_from(at).ok()?;
        let wanted = wanted.get(at);
        let found = present.rules.iter().find(|(place, _)| *place == index);
        let found = found.map(|(_, rule)| rule);
        let name = &wanted.or(found)?.name;
        (wanted != found).then(|| {
            let change = Change::Rule {
                index,
                rule: wanted.cloned(),
            };
            (change, title(at, name))
        })
    });
    Ok(places.collect())
}

/// Returns the name of the rule at an index for the log; the rule may have no name of its own.
fn title(at: usize, name: &str) -> String {
    let place = unnamed(at + 1);
    match name == place {
        true => place,
        false => format!("{place} {name}"),
    }
}

/// Returns the name of a rule without one; `place` counts from 1.
fn unnamed(place: usize) -> String {
    format!("rule {place}")
}

/// Returns the conditions and settings of a rule in few words.
pub fn summary(rule: &Rule) -> String {
    let users = Users::of_this_machine();
    let who = [
        rule.uid.map(|uid| format!("user={}", users.name(uid))),
        rule.group.as_ref().map(|group| format!("group={group}")),
        rule.executable
            .as_ref()
            .map(|file| format!("executable={file}")),
        rule.container
            .as_ref()
            .map(|name| format!("container={name}")),
        rule.label.as_ref().map(|label| format!("label={label}")),
    ];
    let join = |words: Vec<String>| words.join(" ");
    let mut who = join(who.into_iter().flatten().collect());
    if who.is_empty() {
        who = "all".into();
    }
    format!("{who}: {}", join(words(rule).typed()))
}
