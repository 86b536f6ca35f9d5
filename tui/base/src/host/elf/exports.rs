//! The names a shared library exports, from its dynamic symbol table.

use std::path::Path;

use object::elf::{SHN_UNDEF, SHT_DYNSYM};
use object::read::elf::Sym;

use super::file::{Elf, open};

/// Returns the defined dynamic symbols of a 64-bit library, unsorted, or none if it cannot be read.
pub fn exports(library: &Path) -> Vec<String> {
    read(library).unwrap_or_default()
}

fn read(library: &Path) -> Option<Vec<String>> {
    let data = open(library)?;
    let elf = Elf::read(&data)?;
    let symbols = elf
        .sections
        .symbols(elf.endian, elf.data, SHT_DYNSYM)
        .ok()?;
    let defined = symbols
        .iter()
        .filter(|symbol| symbol.st_shndx(elf.endian) != SHN_UNDEF);
    let name = |symbol: &object::elf::Sym64<_>| {
        let name = symbol.name(elf.endian, symbols.strings()).ok()?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    Some(defined.filter_map(name).collect())
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
