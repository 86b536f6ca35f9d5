//! The names a shared library exports.
//!
//! Read from its dynamic symbol table by way of the section headers, piece by piece: a driver has a
//! hundred megabytes of which two tables are wanted. A file that lies about itself yields nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::number;

/// Larger tables than this are a lie.
const MOST: u64 = 64 << 20;
const SHT_DYNSYM: u64 = 11;
const SYMBOL: usize = 24;

/// The defined dynamic symbols of a 64-bit library, unsorted; empty when it cannot be read.
pub fn exports(library: &Path) -> Vec<String> {
    File::open(library)
        .ok()
        .and_then(|file| read(&file))
        .unwrap_or_default()
}

fn read(file: &File) -> Option<Vec<String>> {
    let header = piece(file, 0, 64)?;
    if !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let size = number(&header, 58, 2)?;
    let count = number(&header, 60, 2)?;
    let sections = piece(file, number(&header, 40, 8)?, size.checked_mul(count)?)?;
    let size = usize::try_from(size).ok()?;
    let section = |at: usize| sections.get(at.checked_mul(size)?..)?.get(..size);
    let dynsym = (0..usize::try_from(count).ok()?)
        .filter_map(section)
        .find(|section| number(section, 4, 4) == Some(SHT_DYNSYM))?;
    let names = section(usize::try_from(number(dynsym, 40, 4)?).ok()?)?;
    let names = piece(file, number(names, 24, 8)?, number(names, 32, 8)?)?;
    let symbols = piece(file, number(dynsym, 24, 8)?, number(dynsym, 32, 8)?)?;
    let defined = symbols
        .chunks_exact(SYMBOL)
        .filter(|symbol| number(symbol, 6, 2) != Some(0));
    Some(
        defined
            .filter_map(|symbol| name(&names, number(symbol, 0, 4)?))
            .collect(),
    )
}

fn name(names: &[u8], at: u64) -> Option<String> {
    let text = names
        .get(usize::try_from(at).ok()?..)?
        .split(|byte| *byte == 0)
        .next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn piece(file: &File, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length.min(MOST)).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    (length <= MOST).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_tells_what_it_exports() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
        let libc = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5));
        let Some(libc) = libc.into_iter().find(|path| path.ends_with("/libc.so.6")) else {
            return;
        };
        let names = exports(Path::new(libc));
        assert!(
            names.iter().any(|name| name == "malloc"),
            "{} names",
            names.len()
        );
        assert!(exports(Path::new("/proc/self/maps")).is_empty());
        assert!(exports(Path::new("/nonexistent")).is_empty());
    }
}
