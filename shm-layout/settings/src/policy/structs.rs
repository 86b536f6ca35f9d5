//! The structs that have a field for each setting of a lock policy, and the functions that go through all settings.

use super::{HostMemory, Order};
use crate::grammar::MIB_BITS;

/// A value of a setting as a number, in which it is read, checked and recorded.
pub(super) trait Number: Sized {
    /// The value as a number.
    fn number(self) -> u64;

    /// The value of a number; `None` if no value has it.
    fn of(number: u64) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty: $value:ident, $to:expr, $of:expr;)*) => { $(impl Number for $type {
        fn number(self) -> u64 {
            let $value = self;
            $to
        }

        fn of($value: u64) -> Option<Self> {
            $of
        }
    })* };
}

numbers! {
    u64: number, number, Some(number);
    u32: number, number.into(), number.try_into().ok();
    bool: number, number.into(), Some(number != 0);
    // A word such as `auto` or `never` is 0.
    Option<u64>: number, number.unwrap_or(0), Some((number != 0).then_some(number));
    // `auto` is 0, and a size is its MiB plus one.
    Option<HostMemory>: size, size.map_or(0, |size| (size.0 >> MIB_BITS) + 1), Some(size.checked_sub(1).map(|mib| HostMemory(mib << MIB_BITS)));
    Order: number, number.code(), Self::of_code(number);
}

/// Declares the policy, the edit of a policy, and the table of rows, for lines of a field, its type, its default and its row.
macro_rules! policy {
    ($($(#[$about:meta])* $name:ident: $type:ty = $default:expr, $row:expr;)*) => {
        /// The settings of a lock policy besides its kind, in the order of the list.
        pub const POLICY_ROWS: &[PolicyRow] = &[$(PolicyRow { key: stringify!($name), ..$row },)*];

        /// A device's lock policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct LockPolicy {
            /// The condition under which the holder yields.
            #[cfg_attr(feature = "serde", serde(rename = "rule"))]
            pub kind: PolicyKind,
            $($(#[$about])* pub $name: $type,)*
        }

        /// The parts of a policy that a text sets; the rest stays as it was.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PolicyEdit {
            /// The condition under which the holder must yield.
            pub kind: Option<PolicyKind>,
            $(#[doc = concat!("See [`LockPolicy::", stringify!($name), "`].")] pub $name: Option<$type>,)*
        }

        impl Default for LockPolicy {
            fn default() -> Self {
                Self { kind: PolicyKind::Off, $($name: $default,)* }
            }
        }

        impl LockPolicy {
            fn numbers(&self) -> [u64; POLICY_ROWS.len()] {
                [$(self.$name.number(),)*]
            }

            fn of_numbers(kind: PolicyKind, numbers: [u64; POLICY_ROWS.len()]) -> Option<Self> {
                let [$($name,)*] = numbers;
                Some(Self { kind, $($name: Number::of($name)?,)* })
            }
        }

        impl PolicyEdit {
            /// Returns the policy `base` with the settings of this edit.
            fn over(&self, base: LockPolicy) -> LockPolicy {
                LockPolicy {
                    kind: self.kind.unwrap_or(base.kind),
                    $($name: self.$name.unwrap_or(base.$name),)*
                }
            }

            /// Sets the value of a row. Returns false if the edit had one already.
            fn set(&mut self, row: &PolicyRow, number: u64) -> bool {
                $(
                    if row.key == stringify!($name) {
                        let before = std::mem::replace(&mut self.$name, Number::of(number));
                        return before.is_none();
                    }
                )*
                false
            }
        }
    };
}

pub(super) use policy;
