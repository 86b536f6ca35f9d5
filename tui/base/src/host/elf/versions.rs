//! The version of glibc that a library needs, and the version that is installed.
//!
//! If a symbol version is missing, *no* program starts under the preload. So it is checked before a program is started.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::file::{Elf, open};
use crate::host::procfs;

/// A version of glibc.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(Vec<u32>);

impl Glibc {
    /// Parses `GLIBC_2.2.5`. Returns `None` for versions of other libraries and for private ones.
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

/// Returns the newest glibc version that this library needs, or `None` if it needs none or cannot be read.
pub fn needs(library: &Path) -> Option<Glibc> {
    let data = open(library)?;
    let elf = Elf::read(&data)?;
    let (mut libraries, link) = elf.sections.gnu_verneed(elf.endian, elf.data).ok()??;
    let names = elf.sections.strings(elf.endian, elf.data, link).ok()?;
    let mut newest = None;
    while let Ok(Some((_, mut versions))) = libraries.next() {
        while let Ok(Some(version)) = versions.next() {
            newest = newest.max(of_name(version.name(elf.endian, names)));
        }
    }
    newest
}

/// Returns the newest glibc version that this library provides, or `None` if it is not glibc or cannot be read.
pub fn provides(library: &Path) -> Option<Glibc> {
    let data = open(library)?;
    let elf = Elf::read(&data)?;
    let (mut definitions, link) = elf.sections.gnu_verdef(elf.endian, elf.data).ok()??;
    let names = elf.sections.strings(elf.endian, elf.data, link).ok()?;
    let mut newest = None;
    while let Ok(Some((_, mut versions))) = definitions.next() {
        while let Ok(Some(version)) = versions.next() {
            newest = newest.max(of_name(version.name(elf.endian, names)));
        }
    }
    newest
}

fn of_name(name: object::Result<&[u8]>) -> Option<Glibc> {
    Glibc::of_symbol(std::str::from_utf8(name.ok()?).ok()?)
}

/// Returns the path of the C library that programs load here.
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
}
