//! One row an exported function: the name `cuGetProcAddress` knows it by, the CUDA version that introduced
//! this form of it, its symbol, its arguments and its body.
//!
//! ```text
//! faces! {
//!     "cuMemAlloc" 3020 cuMemAlloc_v2 (dptr: Out<CUdeviceptr>, bytes: usize) { … }
//!     "cuStreamQuery" 2000 cuStreamQuery (stream: CUstream) / cuStreamQuery_ptsz 7000 |default| { … }
//! }
//! ```
//!
//! A second symbol is the form for the per-thread default stream: the same body, told so by `default`.
//! A body is plain safe Rust: the arguments' types ([`crate::c`]) check pointers where they are used.
//! Nothing unwinds into the caller.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpushare_abi::errors::{CUDA_ERROR_UNKNOWN, CUresult};

/// An exported function.
#[derive(Debug)]
pub struct Face {
    /// The name without version and stream suffixes.
    pub base: &'static str,
    /// The CUDA version that introduced this form: 12030 is 12.3.
    pub since: i32,
    /// The exported symbol.
    pub symbol: &'static str,
    /// True for the per-thread default stream form.
    pub per_thread: bool,
    /// The function's address.
    pub address: Address,
}

/// The stream that NULL means, which depends on the form of the called function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The context's legacy default stream.
    Legacy,
    /// The calling thread's default stream.
    PerThread,
}

/// The address of a function.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub *const ());

// SAFETY: a function's address is not data.
#[allow(unsafe_code)]
unsafe impl Sync for Address {}

/// The progress of a thread's call.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// No call: the thread belongs to the simulator.
    None,
    /// The call of this function has not used the driver yet.
    Begun(&'static str),
    /// The call uses the driver; the function is called when it ends.
    Inside(fn()),
}

thread_local! {
    static CALL: Cell<Call> = const { Cell::new(Call::None) };
}

/// Calls `enter` with the function's name before the thread's call uses the driver; it may wait. `leave` is called at the end of
/// the call.
pub fn enter(enter: impl FnOnce(&str), leave: fn()) {
    if let Call::Begun(name) = CALL.get() {
        enter(name);
        CALL.set(Call::Inside(leave));
    }
}

/// Runs the body of a function; a panic becomes an error code.
pub fn guarded(name: &'static str, body: impl FnOnce() -> CUresult) -> CUresult {
    struct End(Call);
    impl Drop for End {
        fn drop(&mut self) {
            if let Call::Inside(leave) = CALL.replace(self.0) {
                leave();
            }
        }
    }
    let before = CALL.get();
    // A call made within a call, by a destructor of the application's, is a part of it.
    let _end = (!matches!(before, Call::Inside(_))).then(|| {
        CALL.set(Call::Begun(name));
        End(before)
    });
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(CUDA_ERROR_UNKNOWN))
}

macro_rules! faces {
    ($($base:literal $since:literal $symbol:ident $args:tt $(/ $twin:ident $twin_since:literal)? $(|$default:ident|)? $body:block)*) => {
        $(
            faces!(@body $symbol $args [$($default)?] $body);
            faces!(@export $symbol $symbol Legacy $args [$($default)?]);
            $(faces!(@export $twin $symbol PerThread $args [default]);)?
        )*

        /// The exports of this file.
        pub const FACES: &[$crate::faces::Face] = &[$(
            $crate::faces::Face {
                base: $base,
                since: $since,
                symbol: stringify!($symbol),
                per_thread: false,
                address: $crate::faces::Address($symbol as *const ()),
            },
            $($crate::faces::Face {
                base: $base,
                since: $twin_since,
                symbol: stringify!($twin),
                per_thread: true,
                address: $crate::faces::Address($twin as *const ()),
            },)?
        )*];
    };
    (@body $symbol:ident ($($arg:ident: $type:ty),* $(,)?) [$($default:ident)?] $body:block) => {
        #[allow(non_snake_case, reason = "the driver's own name")]
        mod $symbol {
            #[allow(unused_imports, reason = "not each body needs all")]
            use super::*;
            #[allow(clippy::too_many_arguments, reason = "as many as the driver's function has")]
            pub(super) fn body($($default: $crate::faces::DefaultStream,)? $($arg: $type),*) -> CUresult $body
        }
    };
    (@export $name:ident $symbol:ident $which:ident ($($arg:ident: $type:ty),* $(,)?) []) => {
        faces!(@function $name ($($arg: $type),*) { $symbol::body($($arg),*) });
    };
    (@export $name:ident $symbol:ident $which:ident ($($arg:ident: $type:ty),* $(,)?) [$default:ident]) => {
        faces!(@function $name ($($arg: $type),*) {
            $symbol::body($crate::faces::DefaultStream::$which, $($arg),*)
        });
    };
    (@function $name:ident ($($arg:ident: $type:ty),*) $call:block) => {
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        #[allow(unsafe_code, non_snake_case, clippy::too_many_arguments, reason = "an export of the driver's own name")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> CUresult {
            $crate::faces::guarded(stringify!($name), || $call)
        }
    };
}
pub(crate) use faces;
