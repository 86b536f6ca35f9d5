//! The names a shared library exports, from its dynamic symbol table.

use std::path::Path;

use super::number;
use super::sections::Sections;

const SHT_DYNSYM: u64 = 11;
const SYMBOL: usize = 24;

/// The defined dynamic symbols of a 64-bit library, unsorted; empty when it cannot be read.
pub fn exports(library: &Path) -> Vec<String> {
    read(library).unwrap_or_default()
}

fn read(library: &Path) -> Option<Vec<String>> {
    let (symbols, names) = Sections::open(library)?.of_type(SHT_DYNSYM)?;
    let defined = symbols
        .chunks_exact(SYMBOL)
        .filter(|symbol| number(symbol, 6, 2) != Some(0));
    Some(
        defined
            .filter_map(|symbol| names.at(number(symbol, 0, 4)?))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_tells_what_it_exports() {
        let Some(libc) = crate::host::elf::libc() else {
            return;
        };
        let names = exports(&libc);
        assert!(
            names.iter().any(|name| name == "malloc"),
            "{} names",
            names.len()
        );
        assert!(exports(Path::new("/proc/self/maps")).is_empty());
        assert!(exports(Path::new("/nonexistent")).is_empty());
    }
}
