//! Cubins: 64-bit ELF images as the driver loads them.
//!
//! A kernel `NAME` is a section `.text.NAME`; its parameters are records of `.nv.info.NAME`, the shared memory that
//! it declares is the size of `.nv.shared.NAME`. Variables are the objects of the symbol table that are in
//! `.nv.global`, `.nv.global.init` and `.nv.constant…`.

use crate::{
    c,
    code::image::{Entry, Image, Parameter, Variable},
};

/// No section has content in the file.
const NO_BITS: u32 = 8;
const SYMBOLS: u32 = 2;
/// The kind of a symbol that is a variable.
const OBJECT: u8 = 1;
const SYMBOL_BYTES: usize = 24;
/// A record of `.nv.info.NAME` that describes a parameter.
const KPARAM_INFO: u8 = 0x17;
/// A record's form that is followed by as many bytes as it says.
const SIZED: u8 = 4;

/// A section's place in the file.
struct Section {
    name: String,
    kind: u32,
    start: u64,
    size: usize,
    link: usize,
}

impl Section {
    fn bytes(&self) -> Vec<u8> {
        if self.kind == NO_BITS {
            return Vec::new();
        }
        c::read_bytes(self.start, self.size)
    }
}

/// Reads the image at an address; `None` if its form is not known.
pub fn read(address: u64) -> Option<Image> {
    let sections = sections(address)?;
    let entries = sections.iter().filter_map(|section| {
        let name = section.name.strip_prefix(".text.")?;
        let of = |kind: &str| {
            let wanted = format!("{kind}{name}");
            sections.iter().find(|section| section.name == wanted)
        };
        Some(Entry {
            name: name.to_owned(),
            parameters: of(".nv.info.").map(|info| parameters(&info.bytes())),
            shared: of(".nv.shared.").map_or(0, |shared| shared.size as u32),
        })
    });
    Some(Image::Known {
        entries: entries.collect(),
        variables: variables(&sections),
    })
}

fn sections(address: u64) -> Option<Vec<Section>> {
    let header = c::read_bytes(address, 0x40);
    let table = number(&header, 0x28, 8)?;
    let (size, count) = (number(&header, 0x3a, 2)?, number(&header, 0x3c, 2)?);
    if header[4] != 2 || size < 0x40 || table == 0 {
        return None;
    }
    let described = |index: u64| c::read_bytes(address + table + index * size, 0x40);
    let names = number(&described(number(&header, 0x3e, 2)?), 0x18, 8)?;
    let section = |index| {
        let one = described(index);
        let name = address + names + number(&one, 0, 4)?;
        Some(Section {
            name: c::Text(name as *const _).get().ok()?,
            kind: number(&one, 4, 4)? as u32,
            start: address + number(&one, 0x18, 8)?,
            size: number(&one, 0x20, 8)? as usize,
            link: number(&one, 0x28, 4)? as usize,
        })
    };
    (0..count).map(section).collect()
}

/// Reads a little-endian number.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..width].copy_from_slice(bytes.get(at..at + width)?);
    Some(u64::from_le_bytes(word))
}

/// Returns the parameters that the records of a kernel describe, by their ordinal.
fn parameters(info: &[u8]) -> Vec<Parameter> {
    let mut found = Vec::new();
    let mut rest = info;
    while let [form, what, low, high, after @ ..] = rest {
        let size = if *form == SIZED {
            usize::from(u16::from_le_bytes([*low, *high]))
        } else {
            0
        };
        let Some((record, next)) = after.split_at_checked(size) else {
            break;
        };
        rest = next;
        if (*form, *what) == (SIZED, KPARAM_INFO)
            && let (Some(ordinal), Some(offset), Some(flags)) = (
                number(record, 4, 2),
                number(record, 6, 2),
                number(record, 8, 4),
            )
        {
            let offset = offset as usize;
            let size = (flags >> 18) as usize;
            found.push((ordinal, Parameter { offset, size }));
        }
    }
    found.sort_by_key(|(ordinal, _)| *ordinal);
    found.into_iter().map(|(_, parameter)| parameter).collect()
}

fn variables(sections: &[Section]) -> Vec<Variable> {
    let tables = sections.iter().filter(|section| section.kind == SYMBOLS);
    tables.flat_map(|table| in_table(sections, table)).collect()
}

fn in_table(sections: &[Section], table: &Section) -> Vec<Variable> {
    let names = sections.get(table.link).map(Section::bytes);
    let names = names.unwrap_or_default();
    let symbols = table.bytes();
    let variable = |symbol: &[u8]| {
        let home = sections.get(number(symbol, 6, 2)? as usize)?;
        let is_variable = [".nv.global", ".nv.constant"]
            .iter()
            .any(|kind| home.name.starts_with(kind));
        if symbol[4] & 0xf != OBJECT || !is_variable {
            return None;
        }
        let name = names.get(number(symbol, 0, 4)? as usize..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let (start, size) = (number(symbol, 8, 8)?, number(symbol, 16, 8)?);
        let (start, size) = (start as usize, size as usize);
        let initial = home.bytes();
        let initial = initial.get(start..start.checked_add(size)?);
        Some(Variable {
            name: String::from_utf8_lossy(name).into_owned(),
            size: size.max(1),
            initial: initial.unwrap_or_default().to_vec(),
            addresses: Vec::new(),
        })
    };
    symbols
        .chunks_exact(SYMBOL_BYTES)
        .filter_map(variable)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_kinds_are_stepped_over() {
        let mut info = vec![3, 0x19, 16, 0];
        for (ordinal, offset, size) in [(1_u16, 8_u16, 4_u32), (0, 0, 8)] {
            info.extend([SIZED, KPARAM_INFO, 12, 0, 0, 0, 0, 0]);
            info.extend(ordinal.to_le_bytes());
            info.extend(offset.to_le_bytes());
            info.extend((size << 18 | 0x1f000).to_le_bytes());
        }
        info.extend([SIZED, 0x0a, 2, 0, 7, 7]);
        let found = parameters(&info);
        assert_eq!(found[0], Parameter { offset: 0, size: 8 });
        assert_eq!(found[1], Parameter { offset: 8, size: 4 });
        assert_eq!(found.len(), 2);
        // A section that is cut off gives the complete entries.
        assert_eq!(parameters(&info[..info.len() - 1]).len(), 2);
    }
}
