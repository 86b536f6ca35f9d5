//! Which glibc a library needs, and which one is here.
//!
//! A symbol version that is missing keeps *every* program from starting under the preload, so it is
//! worth a look before one does.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use shm_layout::procfs;

use super::number;
use super::sections::{Names, Sections};

const SHT_VERNEED: u64 = 0x6fff_fffe;
const SHT_VERDEF: u64 = 0x6fff_fffd;
/// Longer chains than this are a lie.
const MOST: usize = 4096;

/// A version of glibc.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(Vec<u32>);

impl Glibc {
    /// `GLIBC_2.2.5`; other libraries' versions and private ones are none.
    fn of_symbol(version: &str) -> Option<Self> {
        let numbers = version.strip_prefix("GLIBC_")?.split('.');
        numbers
            .map(|number| number.parse().ok())
            .collect::<Option<Vec<u32>>>()
            .map(Self)
    }
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// The newest glibc this library asks for; `None` when it asks for none or cannot be read.
pub fn needs(library: &Path) -> Option<Glibc> {
    let (table, names) = Sections::open(library)?.of_type(SHT_VERNEED)?;
    newest(&table, &names, 8, |from| {
        Some((number(&table, from + 8, 4)?, number(&table, from + 12, 4)?))
    })
}

/// The newest glibc this library is; `None` when it is none or cannot be read.
pub fn provides(library: &Path) -> Option<Glibc> {
    let (table, names) = Sections::open(library)?.of_type(SHT_VERDEF)?;
    newest(&table, &names, 0, |from| {
        Some((number(&table, from + 12, 4)?, number(&table, from + 16, 4)?))
    })
}

/// Walks a chain of entries, each with a chain of names. `links` tells how far from an entry its first
/// name and the next entry are; a name's own number is `name` bytes into its place.
fn newest(
    table: &[u8],
    names: &Names,
    name: usize,
    links: impl Fn(usize) -> Option<(u64, u64)>,
) -> Option<Glibc> {
    let mut newest = None;
    let mut entry = Some(0);
    for _ in 0..MOST {
        let Some((at, (first, next))) = entry.and_then(|at: usize| Some((at, links(at)?))) else {
            break;
        };
        let mut place = step(at, first);
        for _ in 0..MOST {
            let Some(from) = place else { break };
            let version = number(table, from + name, 4).and_then(|at| names.at(at));
            newest = newest.max(version.as_deref().and_then(Glibc::of_symbol));
            place = number(table, from + name + 4, 4).and_then(|next| step(from, next));
        }
        entry = step(at, next);
    }
    newest
}

/// Zero ends a chain.
fn step(from: usize, by: u64) -> Option<usize> {
    let by = usize::try_from(by).ok().filter(|by| *by != 0)?;
    from.checked_add(by).filter(|to| *to < usize::MAX / 2)
}

/// The C library that programs here load.
pub fn libc() -> Option<PathBuf> {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let mapped = procfs::mapped_files(&maps)
        .find(|path| path.ends_with("libc.so.6"))
        .map(PathBuf::from);
    let usual = [
        "/lib64/libc.so.6",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/aarch64-linux-gnu/libc.so.6",
        "/usr/lib/libc.so.6",
    ];
    let usual = usual.into_iter().map(PathBuf::from);
    mapped.or_else(|| usual.into_iter().find(|path| path.exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_no_newer_glibc_than_it_runs_on() {
        let Some(libc) = libc() else { return };
        let own = std::env::current_exe().expect("a test knows its own path");
        let (needed, here) = (needs(&own), provides(&libc).expect("it is one"));
        assert!(needed.is_some_and(|needed| needed <= here), "{here}");
        assert_eq!(provides(&own), None);
        assert_eq!(needs(Path::new("/proc/self/maps")), None);
    }

    #[test]
    fn versions_are_numbers_and_not_text() {
        let version = |text| Glibc::of_symbol(text).expect("well formed");
        assert!(version("GLIBC_2.34") > version("GLIBC_2.4"));
        assert!(version("GLIBC_2.2.5") < version("GLIBC_2.17"));
        assert_eq!(version("GLIBC_2.17").to_string(), "2.17");
        assert_eq!(Glibc::of_symbol("GLIBC_PRIVATE"), None);
        assert_eq!(Glibc::of_symbol("GCC_3.0"), None);
    }

    #[test]
    fn a_chain_that_leads_nowhere_ends() {
        let table = vec![0xff; 64];
        let names = Sections::open(&std::env::current_exe().expect("known"))
            .and_then(|sections| sections.of_type(SHT_VERNEED))
            .map(|(_, names)| names);
        let Some(names) = names else { return };
        assert_eq!(newest(&table, &names, 8, |_| Some((16, 16))), None);
    }
}
