//! The driver's functions: their table rows, their addresses, and typed calls of them.
//!
//! The table has a row for each function: its name, its name for `cuGetProcAddress`, and the shim's export.
//!
//! An address is learned once, from the first source that finds it: the application's `dlsym`, its
//! `cuGetProcAddress`, or the shim's own look-up in the library that the first address came from. It never changes
//! after that. The library is pinned, so that `dlclose` leaves no address dangling. A second, different definition of
//! a name is not hooked and passes through (a libcuda that is a loader looks up the inner one).

pub mod library;

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed},
};

use crate::sys::caller_state::Errno;

/// The table row of an exported symbol.
pub struct Info {
    /// The exported symbol.
    pub name: &'static str,
    /// The name for `cuGetProcAddress`; empty for a function that is only used.
    pub base: &'static str,
    /// The first CUDA version for which `cuGetProcAddress` returns it.
    pub since: i32,
    /// True for a per-thread default stream form.
    pub per_thread: bool,
    /// True for a query with a hook: it reads state and asks for no work.
    pub is_query: bool,
}

macro_rules! symbols {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $(fn $used:ident $used_args:tt;)* }
    ) => {
        /// A driver function that is hooked or used. The numbers are those of traces; events use [`Symbol::code`].
        #[allow(non_camel_case_types, missing_docs, reason = "these are the driver's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Symbol {
            $($name, $($twin,)?)*
            $($used,)*
        }

        /// The table rows, in the order of [`Symbol`].
        pub static INFO: &[Info] = &[
            $(
                Info { name: stringify!($name), base: $base, since: $since, per_thread: false, is_query: is_query(stringify!($kind)) },
                $(Info { name: stringify!($twin), base: $base, since: $since, per_thread: true, is_query: is_query(stringify!($kind)) },)?
            )*
            $(Info { name: stringify!($used), base: "", since: 0, per_thread: false, is_query: false },)*
        ];

        /// Every hooked symbol, in the order of [`Symbol`].
        pub static HOOKED: &[Symbol] = &[$(Symbol::$name, $(Symbol::$twin,)?)*];

        /// The number of symbols.
        pub const COUNT: usize = INFO_COUNT;
        const INFO_COUNT: usize = [$(Symbol::$name, $(Symbol::$twin,)?)* $(Symbol::$used,)*].len();
    };
}

/// Returns true if rows of this kind are queries.
const fn is_query(kind: &str) -> bool {
    matches!(kind.as_bytes(), b"query")
}

gpushare_abi::driver_table!(symbols);

impl Symbol {
    /// Returns the number that events use.
    pub fn code(self) -> u16 {
        gpushare_abi::call_code(self.info().name)
    }

    /// Returns the table row.
    pub fn info(self) -> &'static Info {
        &INFO[self as usize]
    }

    /// Returns true for a per-thread default stream form.
    pub const fn per_thread(self) -> bool {
        PER_THREAD[self as usize]
    }

    /// Returns true if a call needs the device's state, and so waits while the process is evicted.
    #[inline(always)]
    pub const fn needs_the_device(self) -> bool {
        NEEDS_THE_DEVICE[self as usize]
    }

    /// Returns true if the call reads state and asks for no work, so that it counts neither as use of the device nor as
    /// a wish for evicted memory.
    #[inline(always)]
    pub const fn is_query(self) -> bool {
        IS_QUERY[self as usize]
    }

    /// Returns true if the thread may be cancelled in the driver's call, as without the shim. Such a hook leaves nothing
    /// undone, and its slow parts put a cancellation off themselves, because that takes longer than the rest of the hook.
    #[inline(always)]
    pub const fn may_be_cancelled(self) -> bool {
        use Symbol::*;
        matches!(
            self,
            cuMemAlloc
                | cuMemAlloc_v2
                | cuMemFree
                | cuMemFree_v2
                | cuMemAllocAsync
                | cuMemAllocAsync_ptsz
                | cuMemAllocFromPoolAsync
                | cuMemAllocFromPoolAsync_ptsz
                | cuMemFreeAsync
                | cuMemFreeAsync_ptsz
                | cuMemGetInfo
                | cuMemGetInfo_v2
                | cuCtxSetCurrent
                | cuCtxPushCurrent
                | cuCtxPushCurrent_v2
                | cuCtxPopCurrent
                | cuCtxPopCurrent_v2
        )
    }

    /// Returns true if a call by the shim waits while the process is evicted. Hooked functions that do not need the
    /// device never wait.
    #[cfg(debug_assertions)]
    pub fn waits_while_suspended(self) -> bool {
        self.needs_the_device() || self.info().since == 0
    }

    /// Returns the hooked symbol with this exported name.
    pub fn by_name(name: &[u8]) -> Option<Symbol> {
        candidates(&BY_NAME, name).find(|symbol| symbol.info().name.as_bytes() == name)
    }

    /// Returns the hooked symbols with this name for `cuGetProcAddress`, in the order of the table.
    pub fn by_base(base: &[u8]) -> impl Iterator<Item = Symbol> {
        candidates(&BY_BASE, base).filter(move |symbol| symbol.info().base.as_bytes() == base)
    }

    /// Returns true for a function of NVML.
    pub fn is_nvml(self) -> bool {
        self.info().name.starts_with("nvml")
    }
}

/// Makes a flag for each symbol, by an expression of its number.
macro_rules! flags {
    ($number:ident => $flag:expr) => {{
        let mut flags = [false; COUNT];
        let mut $number = 0;
        while $number < COUNT {
            flags[$number] = $flag;
            $number += 1;
        }
        flags
    }};
}

const PER_THREAD: [bool; COUNT] = flags!(number => INFO[number].per_thread);

const IS_QUERY: [bool; COUNT] = flags!(number => INFO[number].is_query);

/// All symbols except NVML's, `cuInit`, and those that look up functions.
const NEEDS_THE_DEVICE: [bool; COUNT] = flags!(number => {
    let asks = INFO[number].since == 0 || number == Symbol::cuInit as usize;
    let looks_up = number == Symbol::cuGetProcAddress as usize
        || number == Symbol::cuGetProcAddress_v2 as usize;
    !asks && !looks_up
});

/// The address of each function, by [`Symbol`]; the assembly of `face::fast` reads it too.
pub static ADDRESSES: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

/// The forms of `cuLaunchKernel` whose addresses are known, and [`NEVER`].
static IN_PLACE: AtomicU32 = AtomicU32::new(0);
const LEGACY: u32 = 1;
const PER_THREAD_FORM: u32 = 2;
/// No launch is called in place, because it may have to be repeated.
const NEVER: u32 = 4;

/// Returns for the legacy and the per-thread form of `cuLaunchKernel` whether `face::fast` may call it in place. Its
/// arguments are lost in such a call.
#[inline(always)]
pub fn may_launch_in_place() -> [bool; 2] {
    let forms = IN_PLACE.load(Relaxed);
    [LEGACY, PER_THREAD_FORM].map(|form| forms & (NEVER | form) == form)
}

/// Sets whether launches may have to be repeated.
pub fn set_repeats_launches(repeats: bool) {
    if repeats {
        IN_PLACE.fetch_or(NEVER, Relaxed);
    } else {
        IN_PLACE.fetch_and(!NEVER, Relaxed);
    }
}

/// Returns the address of a driver function, looked up if necessary; NULL if the driver has no such function.
#[inline(always)]
pub fn address(symbol: Symbol) -> *mut c_void {
    let known = known(symbol);
    if known.is_null() { find(symbol) } else { known }
}

/// Returns the address if it is already known, else NULL.
#[inline(always)]
pub fn known(symbol: Symbol) -> *mut c_void {
    ADDRESSES[symbol as usize].load(Relaxed)
}

/// Stores the first definition of a name as the one to wrap. Returns true if `real` is that definition.
pub fn adopt(symbol: Symbol, real: *mut c_void) -> bool {
    let slot = &ADDRESSES[symbol as usize];
    match slot.compare_exchange(null_mut(), real, Relaxed, Relaxed) {
        Ok(_) => {
            match symbol {
                Symbol::cuLaunchKernel => _ = IN_PLACE.fetch_or(LEGACY, Relaxed),
                Symbol::cuLaunchKernel_ptsz => _ = IN_PLACE.fetch_or(PER_THREAD_FORM, Relaxed),
                _ => {}
            }
            library::pin(symbol, real);
            true
        }
        Err(first) => first == real,
    }
}

#[cold]
fn find(symbol: Symbol) -> *mut c_void {
    let _errno = Errno::keep();
    let real = library::find(symbol);
    if !real.is_null() {
        adopt(symbol, real);
    }
    known(symbol)
}

/// Typed calls of the driver's own functions, which bypass all hooks.
///
/// While a process is evicted, the driver blocks a call until the restore, or crashes on it (`cuEventQuery`,
/// 580.159.04). So the shim calls the driver inside a call of the application, in the evictor, or in a thread that
/// holds [`asking`](crate::eviction::state::EvictionState::asking). A call made elsewhere nearly always returns, and
/// no test would notice it; a debug build checks each call and ends the process. The rule needs items of higher
/// layers, which pass it down as a function.
#[allow(unsafe_code, reason = "calls through the driver's addresses")]
#[allow(
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    non_snake_case,
    missing_docs,
    reason = "the driver's own names and signatures: its documentation tells"
)]
#[allow(dead_code, reason = "the table gives every function a call")]
pub mod call {
    use std::{
        ffi::{c_char, c_void},
        panic::Location,
        sync::OnceLock,
    };

    use gpushare_abi::{
        In, Out,
        errors::{CUDA_ERROR_NOT_FOUND, CUresult},
        types::*,
    };

    use crate::driver::{Symbol, address};

    static IS_ANSWERED: OnceLock<fn(Symbol) -> bool> = OnceLock::new();

    /// Sets the function that decides whether the driver returns to the calling thread.
    pub fn check_by(is_answered: fn(Symbol) -> bool) {
        let _ = IS_ANSWERED.set(is_answered);
    }

    /// Checks a call of the driver that the calling thread is about to make.
    #[track_caller]
    fn check(symbol: Symbol) {
        if IS_ANSWERED
            .get()
            .is_some_and(|is_answered| !is_answered(symbol))
        {
            fail(symbol, Location::caller());
        }
    }

    /// Ends the process. A panic would only be a counted fault, which no test notices.
    #[cold]
    fn fail(symbol: Symbol, place: &Location<'_>) -> ! {
        eprintln!(
            "gpushare: {} is called at {place} from where the driver may not answer; see driver.rs",
            symbol.info().name
        );
        std::process::abort();
    }

    /// Returns the error for a function that the driver does not have.
    #[cold]
    fn missing() -> CUresult {
        Err(CUDA_ERROR_NOT_FOUND)
    }

    macro_rules! function {
        (fn $name:ident ($($arg:ident: $type:ty),* $(,)?)) => {
            #[inline(always)]
            #[cfg_attr(debug_assertions, track_caller)]
            pub unsafe fn $name($($arg: $type),*) -> CUresult {
                let real = address(Symbol::$name);
                if real.is_null() {
                    return missing();
                }
                #[cfg(debug_assertions)]
                check(Symbol::$name);
                // SAFETY: the address is the driver's function of this name, and a test compares the table's signature
                // with the driver's header.
                let real = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> CUresult>(real)
                };
                // SAFETY: the caller passes what the driver's documentation requires.
                unsafe { real($($arg),*) }
            }
        };
    }

    macro_rules! functions {
        (
            hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
            used { $(fn $used:ident $used_args:tt;)* }
        ) => {
            $(
                function!(fn $name $args);
                $(function!(fn $twin $args);)?
            )*
            $(function!(fn $used $used_args);)*
        };
    }

    gpushare_abi::driver_table!(functions);
}

/// The size of an index of the rows by name, which is built at compile time: one probe for a name in the table, mostly one for
/// any other. A CUDA runtime looks up hundreds of names when it starts; most of them are not in the table. The size is at least
/// twice the number of rows, so that at least half of the entries are empty.
const PLACES: usize = (2 * COUNT).next_power_of_two();
const EMPTY: u16 = u16::MAX;

/// Numbers of rows, each at its name's hash or behind it, before the next empty entry.
type Index = [u16; PLACES];

static BY_NAME: Index = index(false);
static BY_BASE: Index = index(true);

const fn index(by_base: bool) -> Index {
    let mut index = [EMPTY; PLACES];
    let mut row = 0;
    while row < HOOKED.len() {
        let info = &INFO[HOOKED[row] as usize];
        let mut place = hash(if by_base { info.base } else { info.name }.as_bytes());
        while index[place % PLACES] != EMPTY {
            place += 1;
        }
        index[place % PLACES] = row as u16;
        row += 1;
    }
    index
}

/// Returns the FNV-1a hash, with the upper half folded into the lower one, which is better distributed.
const fn hash(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 15) as usize
}

/// Returns the hooked symbols that may have this name.
fn candidates(index: &'static Index, name: &[u8]) -> impl Iterator<Item = Symbol> {
    let first = hash(name);
    (first..first + PLACES)
        .map(|place| index[place % PLACES])
        .take_while(|row| *row != EMPTY)
        .filter_map(|row| HOOKED.get(usize::from(row)).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_symbol_is_named_once() {
        let mut names: Vec<_> = INFO.iter().map(|info| info.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(all, names.len(), "a symbol has two rows");
        assert_eq!(all, COUNT);
    }

    #[test]
    fn a_hooked_symbol_is_found_by_its_name_and_a_used_one_is_not() {
        assert_eq!(
            Symbol::by_name(b"cuLaunchKernel_ptsz"),
            Some(Symbol::cuLaunchKernel_ptsz)
        );
        assert_eq!(Symbol::by_name(b"cuStreamQuery"), None);
        assert!(Symbol::cuLaunchKernel_ptsz.per_thread());
        assert!(!Symbol::cuLaunchKernel.per_thread());
    }

    #[test]
    fn every_hooked_symbol_is_found_by_either_name_and_no_other_is() {
        for &symbol in HOOKED {
            let info = symbol.info();
            assert_eq!(Symbol::by_name(info.name.as_bytes()), Some(symbol));
            let scanned: Vec<_> = HOOKED
                .iter()
                .copied()
                .filter(|other| other.info().base == info.base)
                .collect();
            let found: Vec<_> = Symbol::by_base(info.base.as_bytes()).collect();
            assert_eq!(found, scanned, "in the order of the table");
            let longer = format!("{}_", info.name);
            assert_eq!(Symbol::by_name(longer.as_bytes()), None);
        }
        assert_eq!(Symbol::by_name(b""), None);
        assert_eq!(Symbol::by_base(b"cuNothing").count(), 0);
    }
}
