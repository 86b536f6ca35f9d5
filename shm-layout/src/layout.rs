//! The layout macro: every offset and size is stated, and the build fails when one moves.
//!
//! [`map`](mod@crate::layout::map) prints the whole.

pub(crate) mod codec;
pub(crate) mod control;
pub(crate) mod counters;
pub(crate) mod map;
pub(crate) mod private_account;
pub(crate) mod registry;
pub(crate) mod state;

use crate::protocol::primitive::{AtomicU8, AtomicU32, AtomicU64};

/// A type that may lie in a segment: all its mutable bytes are inside atomics, it has no padding that matters, and
/// all-zero bytes are a valid value. Only [`shared!`] implements it for structs.
pub(crate) trait Shared {}
impl Shared for AtomicU8 {}
impl Shared for AtomicU32 {}
impl Shared for AtomicU64 {}
impl<T: Shared, const N: usize> Shared for [T; N] {}

/// Fails to compile for a type that may not lie in a segment.
pub(crate) const fn assert_shared<T: Shared>() {}

/// A field of a shared structure, as the layout map lists it.
pub(crate) struct Field {
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
}

/// Declares a shared struct: its size and alignment, then offset, name and type of each field.
macro_rules! shared {
    ($(#[$doc:meta])* $vis:vis struct $name:ident: $size:literal align $align:literal {
        $($(#[$field_doc:meta])* $offset:literal $field:ident: $kind:ty,)*
    }) => {
        $(#[$doc])*
        #[repr(C, align($align))]
        $vis struct $name {
            $($(#[$field_doc])* pub(crate) $field: $kind,)*
        }

        impl $crate::layout::Shared for $name {}

        const _: () = {
            assert!(size_of::<$name>() == $size, concat!(stringify!($name), " changed its size: bump ABI_VERSION"));
            $($crate::layout::assert_shared::<$kind>();
            assert!(
                core::mem::offset_of!($name, $field) == $offset,
                concat!(stringify!($name), "::", stringify!($field), " moved: bump ABI_VERSION")
            );)*
        };

        #[allow(dead_code, reason = "only the structs named in the map are printed")]
        impl $name {
            /// The structure's fields, for the layout map.
            pub(crate) const FIELDS: &'static [$crate::layout::Field] = &[
                $($crate::layout::Field {
                    offset: $offset,
                    size: size_of::<$kind>(),
                    name: stringify!($field),
                    kind: stringify!($kind),
                },)*
            ];
        }
    };
}
pub(crate) use shared;
