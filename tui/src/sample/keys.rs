//! The keys of JSON documents: each is written once, with its meaning and its value, and the manual is made from them.
//!
//! A number's unit is the end of its key.

use std::collections::BTreeMap;

/// A key as the manual shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where it stands: `devices[].lock.held_ns`.
    pub path: String,
    /// What it means.
    pub meaning: &'static str,
}

/// The end of a key, and the unit that it names.
const UNITS: [(&str, &str); 8] = [
    ("unix_ms", "milliseconds since 1970"),
    ("_bytes", "bytes"),
    ("_ns", "nanoseconds"),
    ("_us", "microseconds"),
    ("_percent", "per cent"),
    ("_mw", "milliwatts"),
    ("_mhz", "megahertz"),
    ("_c", "degrees Celsius"),
];

impl Key {
    /// What the number counts, where that is not the things that the key names.
    pub fn unit(&self) -> Option<&'static str> {
        let named = UNITS.iter().find(|(end, _)| self.path.ends_with(end));
        named.map(|(_, unit)| *unit)
    }
}

/// What may stand in a document.
pub trait Keys {
    /// Adds the keys inside a value that stands at `path`.
    fn list(_path: &str, _keys: &mut Vec<Key>) {}

    /// Adds the key of such a value in an object at `path`, and the keys inside.
    fn add(path: &str, name: &str, meaning: &'static str, keys: &mut Vec<Key>) {
        let dot = if path.is_empty() { "" } else { "." };
        // A key that Rust reserves is written r#key here, and serde writes it without.
        let name = name.trim_start_matches("r#");
        let path = format!("{path}{dot}{name}");
        keys.push(Key {
            path: path.clone(),
            meaning,
        });
        Self::list(&path, keys);
    }
}

/// Every key of a document, in the order in which they are written.
pub fn of<T: Keys>() -> Vec<Key> {
    let mut keys = Vec::new();
    T::list("", &mut keys);
    keys
}

macro_rules! leaves {
    ($($type:ty),*) => { $(impl Keys for $type {})* };
}

leaves!(bool, u8, u32, u64, usize, i32, i64, f64, String, str);

impl<K, V> Keys for BTreeMap<K, V> {}

impl<T: Keys> Keys for Option<T> {
    fn list(path: &str, keys: &mut Vec<Key>) {
        T::list(path, keys);
    }
}

impl<T: Keys + ?Sized> Keys for &T {
    fn list(path: &str, keys: &mut Vec<Key>) {
        T::list(path, keys);
    }
}

impl<T: Keys> Keys for [T] {
    fn list(path: &str, keys: &mut Vec<Key>) {
        T::list(&format!("{path}[]"), keys);
    }
}

impl<T: Keys> Keys for Vec<T> {
    fn list(path: &str, keys: &mut Vec<Key>) {
        <[T]>::list(path, keys);
    }
}

/// Makes an object of a document: for each key its type, its value and its meaning. Behind `..` stands a value whose
/// keys lie in the object itself. Without values it makes plain data that is shown as it is, and what more that data
/// can do is derived beside it.
macro_rules! object {
    (
        $(#[$about:meta])*
        $vis:vis $name:ident $(<$life:lifetime>)? ($($arg:ident: $from:ty),*) {
            $($key:ident: $type:ty = $value:expr, $meaning:literal;)*
            $(..$flat:ident: $flat_type:ty = $flat_value:expr;
            $($more:ident: $more_type:ty = $more_value:expr, $more_meaning:literal;)*)?
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, serde::Serialize)]
        $vis struct $name $(<$life>)? {
            $(#[doc = $meaning] $key: $type,)*
            $(#[serde(flatten)] $flat: $flat_type,
            $(#[doc = $more_meaning] $more: $more_type,)*)?
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// What there is to say.
            $vis fn of($($arg: $from),*) -> Self {
                Self { $($key: $value,)* $($flat: $flat_value, $($more: $more_value,)*)? }
            }
        }

        impl $(<$life>)? $crate::sample::keys::Keys for $name $(<$life>)? {
            fn list(path: &str, keys: &mut Vec<$crate::sample::keys::Key>) {
                use $crate::sample::keys::Keys;
                $(<$type as Keys>::add(path, stringify!($key), $meaning, keys);)*
                $(<$flat_type as Keys>::list(path, keys);
                $(<$more_type as Keys>::add(path, stringify!($more), $more_meaning, keys);)*)?
            }
        }
    };
    (
        $(#[$about:meta])*
        $vis:vis $name:ident { $($(#[$how:meta])* $key:ident: $type:ty, $meaning:literal;)* }
    ) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        $(#[$about])*
        $vis struct $name {
            $(#[doc = $meaning] $(#[$how])* $vis $key: $type,)*
        }

        impl $crate::sample::keys::Keys for $name {
            fn list(path: &str, keys: &mut Vec<$crate::sample::keys::Key>) {
                use $crate::sample::keys::Keys;
                $(<$type as Keys>::add(path, stringify!($key), $meaning, keys);)*
            }
        }
    };
}

pub(crate) use object;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What has keys of its own: reasons in the first, those of the kind of edit in the others.
    const OPEN: [&str; 3] = ["ended_by", "change", "restore"];

    /// Holds the keys of a written document to the explained ones.
    pub(crate) fn explains<T: Keys + serde::Serialize>(document: &T) {
        let value = serde_json::to_value(document).expect("plain data");
        let mut written = Vec::new();
        paths(&value, "", &mut written);
        let keys = of::<T>();
        let mut explained: Vec<&str> = keys.iter().map(|key| key.path.as_str()).collect();
        written.sort();
        written.dedup();
        explained.sort_unstable();
        assert_eq!(written, explained);
        assert!(keys.iter().all(|key| key.meaning.ends_with('.')));
    }

    fn paths(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) if !OPEN.iter().any(|open| path.ends_with(open)) => {
                for (key, value) in map {
                    let dot = if path.is_empty() { "" } else { "." };
                    let path = format!("{path}{dot}{key}");
                    found.push(path.clone());
                    paths(value, &path, found);
                }
            }
            serde_json::Value::Array(list) => {
                for value in list {
                    paths(value, &format!("{path}[]"), found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn a_unit_is_the_end_of_the_key() {
        let unit = |path: &str| {
            let (path, meaning) = (path.to_owned(), "");
            Key { path, meaning }.unit()
        };
        assert_eq!(unit("devices[].lock.held_ns"), Some("nanoseconds"));
        assert_eq!(
            unit("refused_last_unix_ms"),
            Some("milliseconds since 1970")
        );
        assert_eq!(unit("devices[].denials"), None);
    }
}
