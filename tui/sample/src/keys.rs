//! The keys of JSON documents: each is written once, with its meaning and its value, and the manual is made from them.
//!
//! The suffix of a key is the unit of its number.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::meter::{Meter, Role, UNITS};

/// A key as the manual shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The path of the key: `devices[].lock.held_ns`.
    pub path: String,
    /// The meaning of the value.
    pub meaning: &'static str,
}

impl Key {
    /// Returns the unit of the number; `None` if it counts the things that the key names.
    pub fn unit(&self) -> Option<&'static str> {
        let named = UNITS.iter().find(|unit| self.path.ends_with(unit.end));
        named.map(|unit| unit.name)
    }
}

/// A value that a document may contain.
pub trait Keys {
    /// Adds the keys inside a value at `path`.
    fn list(_path: &str, _keys: &mut Vec<Key>) {}

    /// Adds the key of such a value in an object at `path`, and the keys inside.
    fn add(path: &str, name: &str, meaning: &'static str, keys: &mut Vec<Key>) {
        let dot = if path.is_empty() { "" } else { "." };
        // A key that is a Rust keyword is written r#key here; serde writes it without the prefix.
        let name = name.trim_start_matches("r#");
        let path = format!("{path}{dot}{name}");
        keys.push(Key {
            path: path.clone(),
            meaning,
        });
        Self::list(&path, keys);
    }

    /// Adds the numbers of the value to a meter.
    fn measure(&self, _meter: &mut Meter) {}

    /// Returns the value as a label; `None` if it is absent or cannot be a label.
    fn word(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Adds the labels of an object; returns false if a required one is missing.
    fn labels(&self, _meter: &mut Meter) -> bool {
        true
    }

    /// Passes every object of a list to `one`.
    fn each(&self, _one: &mut dyn FnMut(&dyn Labelled)) {}

    /// Set for a plain value.
    const PLAIN: bool = false;
}

/// A value that has labels.
pub trait Labelled {
    /// Adds the labels; returns false if a required one is missing.
    fn labels(&self, meter: &mut Meter) -> bool;
}

impl<T: Keys> Labelled for T {
    fn labels(&self, meter: &mut Meter) -> bool {
        Keys::labels(self, meter)
    }
}

/// Measures the value of a key in an object.
pub fn measure<T: Keys + ?Sized>(
    meter: &mut Meter,
    name: &str,
    help: &'static str,
    role: Role,
    value: &T,
) {
    let Some(place) = meter.enter(name, help, role) else {
        return;
    };
    match role {
        Role::State => {
            if let Some(word) = value.word() {
                meter.label("state", &word);
                meter.number(&1_u8);
            }
        }
        Role::Present(_) => {
            let mark = meter.mark();
            value.each(&mut |object| {
                if object.labels(meter) {
                    meter.present();
                }
                meter.back(mark);
            });
        }
        _ => value.measure(meter),
    }
    meter.leave(place);
}

/// Adds a key's value to the labels if its role says so; returns false if it is null and must not be.
pub fn label<T: Keys + ?Sized>(meter: &mut Meter, role: Role, value: &T) -> bool {
    if let Role::Label(name) | Role::Of(name) = role {
        match value.word() {
            Some(word) => meter.label(name, &word),
            None => return !matches!(role, Role::Of(_)),
        }
    }
    true
}

/// Adds a key's value to the info metric of an object.
pub fn tell<T: Keys + ?Sized>(meter: &mut Meter, name: &str, role: Role, value: &T) {
    if let (Role::Info, Some(word)) = (role, value.word()) {
        meter.label(name, &word);
    }
}

/// Returns every key of a document, in the order in which they are written.
pub fn of<T: Keys>() -> Vec<Key> {
    let mut keys = Vec::new();
    T::list("", &mut keys);
    keys
}

macro_rules! numbers {
    ($($type:ty),*) => { $(impl Keys for $type {
        const PLAIN: bool = true;

        fn measure(&self, meter: &mut Meter) {
            meter.number(self);
        }

        fn word(&self) -> Option<Cow<'_, str>> {
            Some(self.to_string().into())
        }
    })* };
}

macro_rules! words {
    ($($type:ty),*) => { $(impl Keys for $type {
        const PLAIN: bool = true;

        fn word(&self) -> Option<Cow<'_, str>> {
            Some(Cow::Borrowed(self))
        }
    })* };
}

numbers!(u8, u16, u32, u64, usize, i32, i64, f64);
words!(String, str);

impl Keys for shm_layout::Change {}

impl Keys for bool {
    const PLAIN: bool = true;

    fn measure(&self, meter: &mut Meter) {
        meter.number(&u8::from(*self));
    }

    fn word(&self) -> Option<Cow<'_, str>> {
        Some(if *self { "true" } else { "false" }.into())
    }
}

impl<K: AsRef<str>, V: Keys> Keys for BTreeMap<K, V> {
    fn measure(&self, meter: &mut Meter) {
        let mark = meter.mark();
        for (reason, value) in self {
            meter.label("reason", reason.as_ref());
            value.measure(meter);
            meter.back(mark);
        }
    }
}

impl<T: Keys> Keys for Option<T> {
    const PLAIN: bool = T::PLAIN;

    fn list(path: &str, keys: &mut Vec<Key>) {
        T::list(path, keys);
    }

    fn measure(&self, meter: &mut Meter) {
        if let Some(value) = self {
            value.measure(meter);
        }
    }

    fn word(&self) -> Option<Cow<'_, str>> {
        self.as_ref().and_then(Keys::word)
    }
}

impl<T: Keys + ?Sized> Keys for &T {
    const PLAIN: bool = T::PLAIN;

    fn list(path: &str, keys: &mut Vec<Key>) {
        T::list(path, keys);
    }

    fn measure(&self, meter: &mut Meter) {
        T::measure(self, meter);
    }

    fn word(&self) -> Option<Cow<'_, str>> {
        T::word(self)
    }

    fn labels(&self, meter: &mut Meter) -> bool {
        T::labels(self, meter)
    }

    fn each(&self, one: &mut dyn FnMut(&dyn Labelled)) {
        T::each(self, one);
    }
}

impl<T: Keys> Keys for [T] {
    fn list(path: &str, keys: &mut Vec<Key>) {
        T::list(&format!("{path}[]"), keys);
    }

    /// A list of plain values has one for each device.
    fn measure(&self, meter: &mut Meter) {
        let mark = meter.mark();
        for (gpu, value) in self.iter().enumerate() {
            if T::PLAIN {
                meter.label("gpu", &gpu.to_string());
            }
            value.measure(meter);
            meter.back(mark);
        }
    }

    fn each(&self, one: &mut dyn FnMut(&dyn Labelled)) {
        self.iter().for_each(|object| one(object));
    }
}

impl<T: Keys> Keys for Vec<T> {
    fn list(path: &str, keys: &mut Vec<Key>) {
        <[T]>::list(path, keys);
    }

    fn measure(&self, meter: &mut Meter) {
        self.as_slice().measure(meter);
    }

    fn each(&self, one: &mut dyn FnMut(&dyn Labelled)) {
        self.as_slice().each(one);
    }
}

/// Defines an object of a document. Each key has a type, a value and a meaning, and after `=>` its [`Role`] among the
/// metrics if it is not a gauge. A value after `..` adds its own keys to the object. Without values the macro defines
/// plain data that is serialised as it is; further traits are derived beside it.
#[macro_export]
macro_rules! object {
    (
        $(#[$about:meta])*
        $vis:vis $name:ident $(<$life:lifetime>)? ($($arg:ident: $from:ty),*) {
            $($key:ident: $type:ty = $value:expr, $meaning:literal $(=> $role:expr)?;)*
            $(..$flat:ident: $flat_type:ty = $flat_value:expr;
            $($more:ident: $more_type:ty = $more_value:expr, $more_meaning:literal $(=> $more_role:expr)?;)*)?
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
            /// Makes the object from its sources.
            $vis fn of($($arg: $from),*) -> Self {
                Self { $($key: $value,)* $($flat: $flat_value, $($more: $more_value,)*)? }
            }
        }

        $crate::keys::keys! {
            [$($life)?] $name
            { $($key: $type, $meaning [$($role)?];)* }
            { $($flat: $flat_type)? }
            { $($($more: $more_type, $more_meaning [$($more_role)?];)*)? }
        }
    };
    (
        $(#[$about:meta])*
        $vis:vis $name:ident { $($(#[$how:meta])* $key:ident: $type:ty, $meaning:literal $(=> $role:expr)?;)* }
    ) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        $(#[$about])*
        $vis struct $name {
            $(#[doc = $meaning] $(#[$how])* $vis $key: $type,)*
        }

        $crate::keys::keys! { [] $name { $($key: $type, $meaning [$($role)?];)* } {} {} }
    };
}

/// Expands to the keys of [`object!`]: those before the value whose keys lie in the object itself, that value, and
/// those after it.
#[doc(hidden)]
#[macro_export]
macro_rules! keys {
    (
        [$($life:lifetime)?] $name:ident
        { $($key:ident: $type:ty, $meaning:literal [$($role:expr)?];)* }
        { $($flat:ident: $flat_type:ty)? }
        { $($more:ident: $more_type:ty, $more_meaning:literal [$($more_role:expr)?];)* }
    ) => {
        impl $(<$life>)? $crate::keys::Keys for $name $(<$life>)? {
            fn list(path: &str, keys: &mut Vec<$crate::keys::Key>) {
                use $crate::keys::Keys;
                $(<$type as Keys>::add(path, stringify!($key), $meaning, keys);)*
                $(<$flat_type as Keys>::list(path, keys);)?
                $(<$more_type as Keys>::add(path, stringify!($more), $more_meaning, keys);)*
            }

            fn measure(&self, meter: &mut $crate::meter::Meter) {
                use $crate::keys::{Keys, measure, role, tell};
                let mark = meter.mark();
                if Keys::labels(self, meter) {
                    let words = meter.mark();
                    $(tell(meter, stringify!($key), role!($($role)?), &self.$key);)*
                    $(tell(meter, stringify!($more), role!($($more_role)?), &self.$more);)*
                    meter.words(words);
                    $(measure(meter, stringify!($key), $meaning, role!($($role)?), &self.$key);)*
                    $(Keys::measure(&self.$flat, meter);)?
                    $(measure(meter, stringify!($more), $more_meaning, role!($($more_role)?), &self.$more);)*
                }
                meter.back(mark);
            }

            fn labels(&self, meter: &mut $crate::meter::Meter) -> bool {
                use $crate::keys::{label, role};
                $(label(meter, role!($($role)?), &self.$key) &&)*
                $(label(meter, role!($($more_role)?), &self.$more) &&)* true
            }
        }
    };
}

/// Expands to the role of a key.
#[doc(hidden)]
#[macro_export]
macro_rules! role {
    () => {
        $crate::meter::Role::Gauge
    };
    ($role:expr) => {{
        #[allow(unused_imports, reason = "a role may be written in full")]
        use $crate::meter::Role::*;
        $role
    }};
}

#[doc(hidden)]
pub use {keys, role};

pub use object;

#[cfg(test)]
mod tests {
    use super::*;

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
