//! The table's rows by name, made by the compiler: one look for a name that is there, mostly one for one that is not.
//!
//! A CUDA runtime looks hundreds of names up when it starts; most of them are not in the table.

use crate::driver::{COUNT, HOOKED, INFO, Symbol};

/// Twice the rows or more, so that one place in two is empty.
const PLACES: usize = (2 * COUNT).next_power_of_two();
const EMPTY: u16 = u16::MAX;

/// Numbers of rows, each at its name's hash or behind it, before the next empty place.
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

/// FNV-1a, folded so that its better half decides.
const fn hash(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 15) as usize
}

/// The hooked symbols whose place is that of `name`, and some others.
fn candidates(index: &'static Index, name: &[u8]) -> impl Iterator<Item = Symbol> {
    let first = hash(name);
    (first..first + PLACES)
        .map(|place| index[place % PLACES])
        .take_while(|row| *row != EMPTY)
        .filter_map(|row| HOOKED.get(usize::from(row)).copied())
}

/// The hooked symbol of this exported name.
pub fn by_name(name: &[u8]) -> Option<Symbol> {
    candidates(&BY_NAME, name).find(|symbol| symbol.info().name.as_bytes() == name)
}

/// The hooked symbols that `cuGetProcAddress` calls by this name, in the order of the table.
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
