//! The variables that PTX text declares at its top level, and their initial values.
//!
//! `.global .align 4 .u32 counter = 7;`, `.const .b8 table[2][4] = {{1, 2}, {3}};`, `.global .u64 where = generic(table)+4;`.
//! A part without an initialiser is zero. An initialiser that is not understood, such as an expression, also counts
//! as zero.

use crate::code::image::{Address, Variable, is_name, type_size};

/// The initial value of an element.
enum Element {
    Bits(u64),
    Address(String, i64),
}

/// The type of an element.
#[derive(Clone, Copy)]
struct Type {
    size: usize,
    is_float: bool,
}

/// Returns all variables of the text, from which comments were removed.
pub fn variables(text: &str) -> Vec<Variable> {
    statements(text)
        .filter_map(|statement| {
            let places = [".global", ".const"];
            let start = places.iter().find_map(|place| {
                let at = statement.find(place)?;
                let rest = &statement[at + place.len()..];
                rest.starts_with(char::is_whitespace).then_some(rest)
            })?;
            variable(start)
        })
        .collect()
}

/// Returns the statements that end in a semicolon outside of all bodies. A body is in braces that initialise nothing.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    let (mut start, mut depth, mut is_body) = (0, 0_usize, false);
    text.char_indices().filter_map(move |(at, c)| {
        match c {
            '{' => {
                if depth == 0 {
                    is_body = !text[start..at].contains('=');
                }
                depth += 1;
            }
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && is_body {
                    start = at + 1;
                }
            }
            ';' if depth == 0 => {
                let statement = &text[start..at];
                start = at + 1;
                return Some(statement);
            }
            _ => {}
        }
        None
    })
}

/// Returns the variable of a declaration after its state space.
fn variable(declaration: &str) -> Option<Variable> {
    let (declared, initialiser) = match declaration.split_once('=') {
        Some((declared, initialiser)) => (declared, Some(initialiser.trim())),
        None => (declaration, None),
    };
    let words = || declared.split_whitespace();
    let (word, size) = words().find_map(|word| Some((word, type_size(word)?)))?;
    let of = Type {
        size,
        is_float: word.starts_with(".f"),
    };
    let lanes: Option<usize> = words().find_map(|word| word.strip_prefix(".v")?.parse().ok());
    let (name, dimensions) = declared.split_once('[').unwrap_or((declared, ""));
    let name = name.split_whitespace().next_back()?;
    if !name.chars().all(is_name) || declared.contains(',') {
        return None;
    }
    // The first one may be left to the initialiser.
    let mut dimensions: Vec<usize> = dimensions
        .split('[')
        .filter_map(|one| one.split(']').next())
        .filter(|_| declared.contains('['))
        .map(|one| one.trim().parse().unwrap_or(0))
        .collect();
    dimensions.extend(lanes);
    let mut elements = Vec::new();
    if let Some(initialiser) = initialiser {
        fill(initialiser, &dimensions, of, &mut elements);
    }
    let count = dimensions.iter().product::<usize>().max(elements.len());
    let mut variable = Variable {
        name: name.to_owned(),
        size: (count.max(1) * size).max(1),
        initial: Vec::with_capacity(elements.len() * size),
        addresses: Vec::new(),
    };
    for element in elements {
        let bits = match element {
            Element::Bits(bits) => bits,
            Element::Address(name, addend) => {
                let offset = variable.initial.len();
                let bytes = size.min(8);
                variable.addresses.push(Address {
                    offset,
                    bytes,
                    name,
                    addend,
                });
                0
            }
        };
        let bytes = bits.to_le_bytes();
        variable
            .initial
            .extend((0..size).map(|at| bytes.get(at).copied().unwrap_or(0)));
    }
    Some(variable)
}

/// Adds the elements of an initialiser in their order; a list shorter than its dimension is filled up.
fn fill(initialiser: &str, dimensions: &[usize], of: Type, elements: &mut Vec<Element>) {
    let inner = initialiser
        .strip_prefix('{')
        .and_then(|list| list.strip_suffix('}'));
    let Some(inner) = inner else {
        elements.push(element(initialiser, of));
        return;
    };
    let (first, below) = dimensions.split_first().unwrap_or((&0, &[]));
    let end = elements.len() + first * below.iter().product::<usize>();
    for one in parts(inner) {
        let one = one.trim();
        if !one.is_empty() {
            fill(one, below, of, elements);
        }
    }
    while elements.len() < end {
        elements.push(Element::Bits(0));
    }
}

/// Returns the parts of a list between commas outside of braces.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    list.split(move |c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn element(text: &str, of: Type) -> Element {
    if let Some(bits) = number(text, of) {
        return Element::Bits(bits);
    }
    let text = text.strip_prefix("generic(").unwrap_or(text);
    let name: String = text.chars().take_while(|c| is_name(*c)).collect();
    let rest: String = text[name.len()..]
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ')')
        .collect();
    let addend = match rest.as_str() {
        "" => Some(0),
        rest => rest.parse().ok(),
    };
    match addend {
        Some(addend) if !name.is_empty() => Element::Address(name, addend),
        _ => Element::Bits(0),
    }
}

/// Returns a constant as the bits of an element.
fn number(text: &str, of: Type) -> Option<u64> {
    let float = |value: f64| match of.size {
        4 => u64::from((value as f32).to_bits()),
        _ => value.to_bits(),
    };
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    if let Some(bits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
        let bits = hex(bits).and_then(|bits| u32::try_from(bits).ok())?;
        return Some(float(f32::from_bits(bits).into()));
    }
    if let Some(bits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
        return hex(bits).map(|bits| float(f64::from_bits(bits)));
    }
    if of.is_float {
        return text.parse().ok().map(float);
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits.trim_start()),
        None => (1, text),
    };
    let digits = digits.trim_end_matches('U');
    let lower = digits.to_ascii_lowercase();
    let value = if let Some(digits) = lower.strip_prefix("0x") {
        hex(digits)?
    } else if let Some(digits) = lower.strip_prefix("0b") {
        u64::from_str_radix(digits, 2).ok()?
    } else if lower.len() > 1 && lower.starts_with('0') {
        u64::from_str_radix(&lower, 8).ok()?
    } else {
        lower.parse().ok()?
    };
    Some(if sign < 0 {
        value.wrapping_neg()
    } else {
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Variable {
        let mut found = variables(text);
        assert_eq!(found.len(), 1, "{text}");
        found.remove(0)
    }

    #[test]
    fn numbers_of_all_kinds_are_what_a_variable_starts_with() {
        for (text, size, initial) in [
            (".global .align 4 .u32 a = 7;", 4, vec![7, 0, 0, 0]),
            (".global .s16 a = -2;", 2, vec![0xfe, 0xff]),
            (
                ".const .b8 a[4] = {1, 0x2, 010, 0b11};",
                4,
                vec![1, 2, 8, 3],
            ),
            (".global .f32 a = 0f3FC00000;", 4, vec![0, 0, 0xc0, 0x3f]),
            (
                ".global .f32 a[2] = {1.5};",
                8,
                vec![0, 0, 0xc0, 0x3f, 0, 0, 0, 0],
            ),
            (".global .b8 a[] = {1, 2, 3};", 3, vec![1, 2, 3]),
            (".global .b8 a[2][2] = {{1}, {2, 3}};", 4, vec![1, 0, 2, 3]),
            (".global .v2 .u8 a = {1, 2};", 2, vec![1, 2]),
            (".global .u32 a;", 4, vec![]),
            (".visible .global .align 8 .b8 a[64];", 64, vec![]),
        ] {
            let found = only(text);
            assert_eq!((found.size, found.initial), (size, initial), "{text}");
        }
    }

    #[test]
    fn an_address_is_that_of_another_variable() {
        for (text, addend) in [
            (".global .u64 p = other;", 0),
            (".global .u64 p = generic(other);", 0),
            (".global .u64 p[2] = {0, generic(other)+8};", 8),
        ] {
            let found = only(text);
            let address = &found.addresses[0];
            assert_eq!((address.name.as_str(), address.addend), ("other", addend));
            assert_eq!(address.offset, found.initial.len() - 8, "{text}");
        }
    }

    #[test]
    fn a_body_declares_nothing_and_ends_without_a_semicolon() {
        let text = ".version 7.0 .global .u32 a = 1; .entry k { .reg .u32 r; st.global.u32 [a], r; } .global .u32 b;";
        let names: Vec<_> = variables(text).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
