//! The driver's own functions: what the table says of them, where they are, and typed calls of them.
//!
//! Every function of the table, by number: its name, what `cuGetProcAddress` calls it, and our export.
//!
//! Where the driver's own functions are.
//!
//! An address is learned once, from the first that finds it: the application's `dlsym`, its
//! `cuGetProcAddress`, or our own look-up in the library the first one came from. After that it never
//! changes: the library is pinned, so `dlclose` leaves no address dangling. A second, different
//! definition of a name is not ours to hook (a loader-style libcuda looks up the inner one): it passes through.

pub mod call;
#[cfg(debug_assertions)]
pub mod checked;
mod index;
pub mod library;

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use crate::sys::caller_state::Errno;

/// What the table says of one exported symbol.
pub struct Info {
    /// The exported symbol.
    pub name: &'static str,
    /// What `cuGetProcAddress` calls it; empty for a function we only use.
    pub base: &'static str,
    /// The first CUDA version whose `cuGetProcAddress` answer it is.
    pub since: i32,
    /// Whether it is the per-thread default stream form.
    pub per_thread: bool,
}

macro_rules! symbols {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $(fn $used:ident $used_args:tt;)* }
    ) => {
        /// A driver function we hook or use. The numbers are those of traces; events have [`Symbol::code`].
        #[allow(non_camel_case_types, missing_docs, reason = "these are the driver's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Symbol {
            $($name, $($twin,)?)*
            $($used,)*
        }

        /// What the table says of each, in the order of [`Symbol`].
        pub static INFO: &[Info] = &[
            $(
                Info { name: stringify!($name), base: $base, since: $since, per_thread: false },
                $(Info { name: stringify!($twin), base: $base, since: $since, per_thread: true },)?
            )*
            $(Info { name: stringify!($used), base: "", since: 0, per_thread: false },)*
        ];

        /// Every hooked symbol, in the order of [`Symbol`].
        pub static HOOKED: &[Symbol] = &[$(Symbol::$name, $(Symbol::$twin,)?)*];

        /// How many symbols there are.
        pub const COUNT: usize = INFO_COUNT;
        const INFO_COUNT: usize = [$(Symbol::$name, $(Symbol::$twin,)?)* $(Symbol::$used,)*].len();
    };
}

gpushare_abi::driver_table!(symbols);

impl Symbol {
    /// The number of events.
    pub fn code(self) -> u16 {
        gpushare_abi::call_code(self.info().name)
    }

    /// The table's row.
    pub fn info(self) -> &'static Info {
        &INFO[self as usize]
    }

    /// Whether this is a per-thread default stream form.
    pub const fn per_thread(self) -> bool {
        PER_THREAD[self as usize]
    }

    /// Whether a call needs what is on the device, and so waits while the process is evicted.
    #[inline(always)]
    pub const fn needs_the_device(self) -> bool {
        NEEDS_THE_DEVICE[self as usize]
    }

    /// The same for a call of our own: the hooked ones that do not need it are passed on at any time.
    #[cfg(debug_assertions)]
    pub fn waits_while_suspended(self) -> bool {
        self.needs_the_device() || self.info().since == 0
    }

    /// The hooked symbol of this exported name.
    pub fn by_name(name: &[u8]) -> Option<Symbol> {
        index::by_name(name)
    }

    /// The hooked symbols that `cuGetProcAddress` calls by this name, in the order of the table.
    pub fn by_base(base: &[u8]) -> impl Iterator<Item = Symbol> {
        index::by_base(base)
    }

    /// Whether it belongs to NVML rather than to the driver.
    pub fn is_nvml(self) -> bool {
        self.info().name.starts_with("nvml")
    }
}

const PER_THREAD: [bool; COUNT] = {
    let mut flags = [false; COUNT];
    let mut i = 0;
    while i < COUNT {
        flags[i] = INFO[i].per_thread;
        i += 1;
    }
    flags
};

/// All but what is not the driver's, and what finds functions or starts it.
const NEEDS_THE_DEVICE: [bool; COUNT] = {
    let mut flags = [false; COUNT];
    let mut i = 0;
    while i < COUNT {
        let asks = INFO[i].since == 0 || i == Symbol::cuInit as usize;
        let looks_up =
            i == Symbol::cuGetProcAddress as usize || i == Symbol::cuGetProcAddress_v2 as usize;
        flags[i] = !asks && !looks_up;
        i += 1;
    }
    flags
};

/// Where each function is, by [`Symbol`]; the assembly of `face::fast` reads it too.
pub static ADDRESSES: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

/// The address of a driver function, looked up at need; NULL when the driver has no such function.
#[inline(always)]
pub fn address(symbol: Symbol) -> *mut c_void {
    let known = known(symbol);
    if known.is_null() { find(symbol) } else { known }
}

/// The address as far as it is known already.
#[inline(always)]
pub fn known(symbol: Symbol) -> *mut c_void {
    ADDRESSES[symbol as usize].load(Relaxed)
}

/// The first definition of a name becomes the one we wrap. Returns whether `real` is it.
pub fn adopt(symbol: Symbol, real: *mut c_void) -> bool {
    let slot = &ADDRESSES[symbol as usize];
    match slot.compare_exchange(null_mut(), real, Relaxed, Relaxed) {
        Ok(_) => {
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
}
