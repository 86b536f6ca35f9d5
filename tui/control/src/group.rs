//! Groups as they are typed: `memory=16GiB weight=200 cap=30%`.

use shm_layout::{Change, Set, ShareEdit};

use super::{quota, share};
use gpushare_base::text::exit::Failure;
use gpushare_base::text::names::check_group;

/// Returns the edit that defines or changes a group. With `until_ns` its settings expire.
pub fn change(name: &str, values: &[String], until_ns: Option<u64>) -> Result<Change, Failure> {
    check_group("group", name)?;
    let mut memory = Set::Keep;
    let mut share = ShareEdit::default();
    for value in values {
        match value.strip_prefix("memory=") {
            Some(_) if memory != Set::Keep => return Err(Failure::usage("memory= is given twice")),
            Some("inherit") => memory = Set::Inherit,
            Some(text) => memory = Set::To(quota::parse(text)?),
            None if value.starts_with("weight=") || value.starts_with("cap=") => {
                share::read(&mut share, value)?
            }
            None => {
                return Err(Failure::usage(format!(
                    "{value:?} is unknown; use memory=, weight= or cap="
                )));
            }
        }
    }
    if let Some(ns) = until_ns {
        (memory, share) = (memory.until(ns), share::until(share, ns)?);
    }
    Ok(Change::Group {
        name: name.into(),
        memory,
        weight: share.weight,
        cap: share.cap,
        remove: false,
    })
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
