//! What a module's image says of itself: the entry points and variables of PTX text, the entry points of
//! an ELF image. Images that are only known by their first bytes (fatbinaries) have any name asked for.

#![allow(unsafe_code)]

use crate::c;

/// A kernel's entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The sizes of its parameters; `None` if the image does not tell.
    pub parameters: Option<Vec<usize>>,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// All its entry points and variables (name and bytes) are known.
    Known {
        /// Entry points.
        entries: Vec<Entry>,
        /// Variables.
        variables: Vec<(String, usize)>,
    },
    /// It has whatever name is asked for.
    Opaque,
}

const ELF: &[u8] = b"\x7fELF";
/// The first bytes of a fatbinary.
pub const FATBIN: u32 = 0xba55_ed50;
const FATBIN_WRAPPER: u32 = 0x4662_43b1;

impl Image {
    /// Reads the image at an address; `None` if it is none that a driver takes.
    pub fn at(address: u64) -> Option<Self> {
        if address == 0 {
            return None;
        }
        let magic: [u8; 4] = c::read_bytes(address, 4).try_into().ok()?;
        if magic == *ELF {
            return Some(Self::elf(address).unwrap_or(Self::Opaque));
        }
        if matches!(u32::from_le_bytes(magic), FATBIN | FATBIN_WRAPPER) {
            return Some(Self::Opaque);
        }
        Self::ptx(&c::Text(address as *const _).get().ok()?)
    }

    /// Reads PTX text. Text without a `.version` is no PTX.
    pub fn ptx(text: &str) -> Option<Self> {
        let text = without_comments(text);
        text.contains(".version").then_some(())?;
        Some(Self::Known {
            entries: entries(&text),
            variables: variables(&text),
        })
    }

    /// Reads the section names of a 64-bit ELF image: `.text.NAME` is an entry point.
    fn elf(address: u64) -> Option<Self> {
        let word = |offset: u64, bytes: usize| {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&c::read_bytes(address + offset, bytes));
            u64::from_le_bytes(word)
        };
        let (table, size, count) = (word(0x28, 8), word(0x3a, 2), word(0x3c, 2));
        if word(4, 1) != 2 || size < 0x40 || table == 0 {
            return None;
        }
        let names = word(table + word(0x3e, 2) * size + 0x18, 8);
        let sections = (0..count).filter_map(|index| {
            let name = names + word(table + index * size, 4);
            c::Text((address + name) as *const _).get().ok()
        });
        let entries = sections.filter_map(|name| {
            let name = name.strip_prefix(".text.")?.to_owned();
            Some(Entry {
                name,
                parameters: None,
            })
        });
        Some(Self::Known {
            entries: entries.collect(),
            variables: Vec::new(),
        })
    }
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut clean = String::with_capacity(text.len());
    while let Some(start) = rest.find('/') {
        clean.push_str(&rest[..start]);
        let end = match rest.as_bytes().get(start + 1) {
            Some(b'/') => rest[start..].find('\n').map(|end| start + end),
            Some(b'*') => rest[start + 2..].find("*/").map(|end| start + 2 + end + 2),
            _ => {
                clean.push('/');
                Some(start + 1)
            }
        };
        rest = end.map_or("", |end| &rest[end..]);
    }
    clean.push_str(rest);
    clean
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%".contains(c)
}

fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (at, _) in text.match_indices(".entry") {
        let rest = text[at + ".entry".len()..].trim_start();
        let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
        let after = rest[name.len()..].trim_start();
        let list = after
            .strip_prefix('(')
            .and_then(|list| list.split_once(')'));
        let parameters = list.map_or(Vec::new(), |(list, _)| {
            list.split(',').filter_map(size).collect()
        });
        if !name.is_empty() && entries.iter().all(|entry| entry.name != name) {
            entries.push(Entry {
                name,
                parameters: Some(parameters),
            });
        }
    }
    entries
}

/// The bytes of a declaration such as `.param .align 8 .b8 name[24]`.
fn size(declaration: &str) -> Option<usize> {
    let kind = declaration
        .split_whitespace()
        .filter_map(type_size)
        .next_back()?;
    let count = declaration
        .split_once('[')
        .and_then(|(_, rest)| rest.split(']').next());
    Some(
        kind * count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(1),
    )
}

fn type_size(word: &str) -> Option<usize> {
    let kind = word.strip_prefix('.')?;
    let bits = kind.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    matches!(kind.as_bytes().first(), Some(b'b' | b'u' | b's' | b'f')).then_some(())?;
    bits.parse::<usize>().ok().map(|bits| bits / 8)
}

/// `.global .align 4 .u32 counter;` and `.visible .const .b8 table[64] = { … };` at the top level.
fn variables(text: &str) -> Vec<(String, usize)> {
    let statements = text.split([';', '{', '}']);
    let found = statements.filter_map(|statement| {
        let start = statement
            .find(".global ")
            .or_else(|| statement.find(".const "))?;
        let declaration = statement[start..].split('=').next()?;
        let bytes = size(declaration)?;
        let name = declaration
            .split('[')
            .next()?
            .split_whitespace()
            .next_back()?;
        // Instructions such as `ld.global .u32 r, [x]` have no bare name at the end.
        let plain = name.chars().all(is_name) && !declaration.contains(',');
        plain.then(|| (name.to_owned(), bytes.max(1)))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
        // a comment with .entry not_this(
        .version 7.0
        .target sm_52
        .address_size 64
        .visible .global .align 4 .u32 counter;
        .const .align 1 .b8 table[64] = {1, 2};
        .visible .entry gpushare_spin(.param .u64 nanoseconds, .param .align 8 .b8 block[24])
        { /* body */ ld.param.u64 %rd1, [nanoseconds]; ld.global.u32 %r1, [%rd2]; ret; }
        .entry plain
        { ret; }";

    #[test]
    fn ptx_names_its_entries_and_variables() {
        let Some(Image::Known { entries, variables }) = Image::ptx(PTX) else {
            panic!("this is PTX")
        };
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].name, "gpushare_spin");
        assert_eq!(entries[0].parameters, Some(vec![8, 24]));
        assert_eq!(
            entries[1],
            Entry {
                name: "plain".into(),
                parameters: Some(vec![])
            }
        );
        assert_eq!(variables, [("counter".into(), 4), ("table".into(), 64)]);
    }

    #[test]
    fn what_is_no_image_is_none() {
        assert_eq!(Image::ptx("hello"), None);
        assert_eq!(Image::at(0), None);
        let garbage = c"\x01\x02";
        assert_eq!(Image::at(garbage.as_ptr() as u64), None);
    }
}
