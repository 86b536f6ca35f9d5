//! The index of the table's rows by name, built at compile time: one probe for a name in the table, mostly one for
//! any other.
//!
//! A CUDA runtime looks up hundreds of names when it starts; most of them are not in the table.

use crate::driver::{COUNT, HOOKED, INFO, Symbol};

/// At least twice the number of rows, so that at least half of the entries are empty.
const PLACES: usize = (2 * COUNT).next_power_of_two();
const EMPTY: u16 = u16::MAX;

/// Numbers of rows, each at its name's hash or behind it, before the next empty entry.
type Index = [u16; PLACES];

static BY_NAME: Index = index(false);
static BY_BASE: Index = index(true);

const fn index(by_base: bool) -> Index {
    let mut index = [EMPTY; PLACES];
    let mut row = 0;
    while row < HOOKED.len() {
        let info = &INFO[HOOKED[row] as usize];
        let mut place = hash(if by_base { info.base } else { info.name }.as_bytes());
        while index[place % PLACES] != EMPTY {
            place += 1;
        }
        index[place % PLACES] = row as u16;
        row += 1;
    }
    index
}

/// Returns the FNV-1a hash, with the upper half folded into the lower one, which is better distributed.
const fn hash(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 15) as usize
}

/// Returns the hooked symbols that may have this name.
fn candidates(index: &'static Index, name: &[u8]) -> impl Iterator<Item = Symbol> {
    let first = hash(name);
    (first..first + PLACES)
        .map(|place| index[place % PLACES])
        .take_while(|row| *row != EMPTY)
        .filter_map(|row| HOOKED.get(usize::from(row)).copied())
}

/// Returns the hooked symbol with this exported name.
pub fn by_name(name: &[u8]) -> Option<Symbol> {
    candidates(&BY_NAME, name).find(|symbol| symbol.info().name.as_bytes() == name)
}

/// Returns the hooked symbols with this name for `cuGetProcAddress`, in the order of the table.
pub fn by_base(base: &[u8]) -> impl Iterator<Item = Symbol> {
    candidates(&BY_BASE, base).filter(move |symbol| symbol.info().base.as_bytes() == base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hooked_symbol_is_found_by_either_name_and_no_other_is() {
        for &symbol in HOOKED {
            let info = symbol.info();
            assert_eq!(by_name(info.name.as_bytes()), Some(symbol));
            let scanned: Vec<_> = HOOKED
                .iter()
                .copied()
                .filter(|other| other.info().base == info.base)
                .collect();
            let found: Vec<_> = by_base(info.base.as_bytes()).collect();
            assert_eq!(found, scanned, "in the order of the table");
            let longer = format!("{}_", info.name);
            assert_eq!(by_name(longer.as_bytes()), None);
        }
        assert_eq!(by_name(b""), None);
        assert_eq!(by_base(b"cuNothing").count(), 0);
    }
}
