//! The signatures of the driver table agree with `cudarc`'s bindings, which are generated from NVIDIA's header: the same number
//! of arguments, each of the same size and alignment.
//!
//! The bindings lack some rows (per-thread forms, other versions, NVML), which are not compared. A per-thread form shares its
//! row with a function that is compared.

#![allow(unsafe_code, reason = "names unsafe functions; calls none")]

use std::mem::{align_of, size_of};

type Layout = (usize, usize);

/// The arguments of a function, and whether the bindings have it.
struct Shape {
    arguments: Vec<Layout>,
    listed: bool,
}

trait Function {
    fn shape(self) -> Shape;
}

/// The return type of a function that is not in the bindings.
struct Unlisted;

trait Listed {
    const LISTED: bool;
}

impl Listed for Unlisted {
    const LISTED: bool = false;
}

impl Listed for cudarc::driver::sys::CUresult {
    const LISTED: bool = true;
}

macro_rules! arities {
    ($(($($argument:ident)*))*) => {$(
        impl<Answer: Listed, $($argument),*> Function for unsafe fn($($argument),*) -> Answer {
            fn shape(self) -> Shape {
                Shape {
                    arguments: vec![$((size_of::<$argument>(), align_of::<$argument>())),*],
                    listed: Answer::LISTED,
                }
            }
        }
    )*};
}

arities! {
    () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
}

/// A stand-in for every function, with the table's signature. A function of the bindings hides its stand-in.
#[allow(
    non_snake_case,
    unused_variables,
    clippy::too_many_arguments,
    dead_code,
    reason = "the driver's names"
)]
mod fallback {
    use std::ffi::{c_char, c_void};

    use gpushare_abi::{In, Out, types::*};

    use super::Unlisted;

    macro_rules! stand_in {
        ($name:ident ($($argument:ident: $type:ty),* $(,)?)) => {
            pub unsafe fn $name($($argument: $type),*) -> Unlisted {
                Unlisted
            }
        };
    }

    macro_rules! stand_ins {
        (
            hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
            used { $(fn $used:ident $used_args:tt;)* }
        ) => {
            $(stand_in!($name $args);)*
            $(stand_in!($used $used_args);)*
        };
    }

    gpushare_abi::driver_table!(stand_ins);
}

macro_rules! compare {
    ($compared:ident, $wrong:ident, $name:ident ($($argument:ident: $type:ty),* $(,)?)) => {{
        #[allow(unused_imports, reason = "hidden by the inner ones")]
        use fallback::*;
        let theirs = {
            #[allow(unused_imports, reason = "not every function is there")]
            use cudarc::driver::sys::*;
            $name as unsafe fn($(under!($argument)),*) -> _
        };
        let theirs = theirs.shape();
        let ours: Vec<Layout> = {
            use std::ffi::{c_char, c_void};
            use gpushare_abi::{In, Out, types::*};
            vec![$((size_of::<$type>(), align_of::<$type>())),*]
        };
        if theirs.listed {
            $compared += 1;
        }
        if theirs.arguments != ours {
            $wrong.push(format!("{}: ours {ours:?}, the header's {:?}", stringify!($name), theirs.arguments));
        }
    }};
}

macro_rules! under {
    ($argument:ident) => {
        _
    };
}

macro_rules! compare_all {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $(fn $used:ident $used_args:tt;)* }
    ) => {
        #[test]
        #[allow(unused_imports, reason = "not every signature names every type")]
        fn every_signature_is_the_headers() {
            let mut compared = 0;
            let mut wrong: Vec<String> = Vec::new();
            $(compare!(compared, wrong, $name $args);)*
            $(compare!(compared, wrong, $used $used_args);)*
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            assert!(compared >= 100, "only {compared} functions were found in the bindings");
        }
    };
}

gpushare_abi::driver_table!(compare_all);
