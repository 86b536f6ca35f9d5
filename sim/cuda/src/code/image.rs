//! The contents of a module's image: the entry points and variables of PTX text and of an ELF image (a cubin). An
//! image that is only known by its first bytes (a fatbinary, LTO-IR) has every name.

mod elf;
mod variables;

use crate::c;

/// A kernel's entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kernel's name.
    pub name: String,
    /// The parameters; `None` if the image does not contain them.
    pub parameters: Option<Vec<Parameter>>,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Offset in the packed parameters, in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The variable's name.
    pub name: String,
    /// Size in bytes.
    pub size: usize,
    /// The initial bytes; the rest of the variable is zero.
    pub initial: Vec<u8>,
    /// The places in the initial bytes that hold addresses of other variables.
    pub addresses: Vec<Address>,
}

/// A place in a variable that the address of another one is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Offset of the place, in bytes.
    pub offset: usize,
    /// Size of the place, in bytes.
    pub bytes: usize,
    /// The other variable.
    pub name: String,
    /// Number added to the other variable's address.
    pub addend: i64,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// All its entry points and variables are known.
    Known {
        /// Entry points.
        entries: Vec<Entry>,
        /// Variables.
        variables: Vec<Variable>,
    },
    /// The image has every name that is looked up.
    Opaque,
}

const ELF: &[u8] = b"\x7fELF";
/// The first bytes of a fatbinary.
pub const FATBIN: u32 = 0xba55_ed50;
const FATBIN_WRAPPER: u32 = 0x4662_43b1;
/// The first bytes of what NVRTC makes for linking (LTO-IR).
const LTO_IR: u32 = 0x7f4e_43ed;

impl Image {
    /// Reads the image at an address; `None` if a driver would not accept it.
    pub fn at(address: u64) -> Option<Self> {
        if address == 0 {
            return None;
        }
        let magic: [u8; 4] = c::read_bytes(address, 4).try_into().ok()?;
        if magic == *ELF {
            return Some(elf::read(address).unwrap_or(Self::Opaque));
        }
        if matches!(u32::from_le_bytes(magic), FATBIN | FATBIN_WRAPPER | LTO_IR) {
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
            variables: variables::variables(&text),
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
        let parameters = list.map_or(Vec::new(), |(list, _)| placed(list));
        if !name.is_empty() && entries.iter().all(|entry| entry.name != name) {
            entries.push(Entry {
                name,
                parameters: Some(parameters),
                shared: 0,
            });
        }
    }
    entries
}

/// Returns the parameters of a list of declarations, each at the offset that its alignment requires.
fn placed(list: &str) -> Vec<Parameter> {
    let mut end = 0_usize;
    let parameter = |declaration| {
        let (size, align) = (size(declaration)?, align(declaration)?);
        let offset = end.next_multiple_of(align);
        end = offset.checked_add(size)?;
        Some(Parameter { offset, size })
    };
    list.split(',').filter_map(parameter).collect()
}

/// Returns the alignment of a declaration: the stated one, or else that of its type.
fn align(declaration: &str) -> Option<usize> {
    let mut words = declaration.split_whitespace();
    let said = words.by_ref().find(|word| *word == ".align");
    let said = said.and_then(|_| words.next()?.parse().ok());
    let own = || {
        declaration
            .split_whitespace()
            .filter_map(type_size)
            .next_back()
    };
    said.or_else(own)
        .filter(|align: &usize| align.is_power_of_two())
}

/// Returns the bytes of a declaration such as `.param .align 8 .b8 name[24]`.
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
        let at = |offset, size| Parameter { offset, size };
        assert_eq!(entries[0].parameters, Some(vec![at(0, 8), at(8, 24)]));
        assert_eq!(entries[1].name, "plain");
        assert_eq!(entries[1].parameters, Some(vec![]));
        let found: Vec<_> = variables
            .iter()
            .map(|v| (v.name.as_str(), v.size))
            .collect();
        assert_eq!(found, [("counter", 4), ("table", 64)]);
        assert_eq!(variables[1].initial[..3], [1, 2, 0]);
    }

    #[test]
    fn lto_ir_has_every_name() {
        let image = [LTO_IR, 0x0210_4101];
        assert_eq!(Image::at(image.as_ptr() as u64), Some(Image::Opaque));
        let other = [LTO_IR ^ 1, 0];
        assert_eq!(Image::at(other.as_ptr() as u64), None);
    }

    #[test]
    fn a_parameter_is_where_its_alignment_puts_it() {
        let list =
            ".param .u32 a, .param .align 1 .b8 b[3], .param .align 16 .b8 c[4], .param .f64 d";
        let offsets: Vec<_> = placed(list).iter().map(|one| one.offset).collect();
        assert_eq!(offsets, [0, 4, 16, 24]);
    }

    #[test]
    fn what_is_no_image_is_none() {
        assert_eq!(Image::ptx("hello"), None);
        assert_eq!(Image::at(0), None);
        let garbage = c"\x01\x02";
        assert_eq!(Image::at(garbage.as_ptr() as u64), None);
    }
}
