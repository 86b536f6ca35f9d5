//! Groups as they are typed: `memory=16GiB weight=200 cap=30%`.

use shm_layout::{Change, GroupEdit, MAX_GROUPS};

use super::share;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::names::check_group;
use gpushare_sample::Sample;

/// Returns the edit that defines or changes a group. With `until_ns` its settings expire.
pub fn change(name: &str, values: &[String], until_ns: Option<u64>) -> Result<Change, Failure> {
    check_group("group", name)?;
    let mut settings = GroupEdit::default();
    for value in values {
        share::read(&mut settings, value)?;
    }
    Ok(Change::Group {
        name: name.into(),
        settings: until_ns.map_or(settings, |ns| settings.timed(ns)),
        remove: false,
    })
}

/// Checks that there is room for these groups beside those that are defined, before the first of them is made.
pub fn check_room<'n>(
    names: impl Iterator<Item = &'n String>,
    sample: &Sample,
) -> Result<(), Failure> {
    let defined = sample.groups.iter().filter(|group| group.defined);
    let defined: Vec<&String> = defined.map(|group| &group.name).collect();
    let new = names.filter(|name| !defined.contains(name)).count();
    match defined.len() + new {
        all if new > 0 && all > MAX_GROUPS => Err(Failure::usage(format!(
            "there would be {all} groups, {new} of them new; at most {MAX_GROUPS} can be defined; remove others with gpushare group \
             remove"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_base::text::exit::Exit;

    #[test]
    fn a_group_is_checked_before_it_is_made() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(
            change(
                "team",
                &words(&["memory=8GiB", "weight=200", "cap=30%"]),
                None
            )
            .is_ok()
        );
        for wrong in [
            &["memory=8Q"][..],
            &["weight=0"],
            &["cap=0"],
            &["speed=1"],
            &["memory=1G", "memory=2G"],
            &["x"],
        ] {
            assert_eq!(
                change("team", &words(wrong), None).expect_err("wrong").exit,
                Exit::Usage,
                "{wrong:?}"
            );
        }
        assert!(change("", &[], None).is_err());
        assert!(change(&"g".repeat(32), &[], None).is_err());
    }
}
