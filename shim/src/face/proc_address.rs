//! The hook of `cuGetProcAddress`, which replaces the driver's functions in its results by the shim's exports.
//!
//! A result is recognised by its address, which is the one that `dlsym` returns for a symbol of the table. If a
//! driver returns addresses that `dlsym` does not know, (name, version, flags) identify the row, unless the result is
//! another export of the same name (an older or newer form without a hook).
#![allow(unsafe_code, reason = "reads the caller's name")]

use std::{
    ffi::{CStr, c_char, c_void},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use gpushare_abi::{
    Out, errors::CUresult, types::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM as PER_THREAD,
};

use crate::{
    driver::{self, HOOKED, Symbol, library},
    face::passthrough,
    hooks::Real,
    trace::early::LookUp,
};

/// Answers `cuGetProcAddress`. `export` returns the address of the shim's functions.
pub fn answer(
    real: Real<'_, impl FnOnce() -> CUresult>,
    name: *const c_char,
    pfn: Out<*mut c_void>,
    version: i32,
    flags: u64,
    export: impl FnOnce(Symbol) -> *mut c_void,
) -> CUresult {
    let _early = LookUp::begins(real.symbol());
    real.call()?;
    let Some(theirs) = pfn.get().filter(|address| !address.is_null()) else {
        return Ok(());
    };
    if name.is_null() {
        return Ok(());
    }
    // SAFETY: the driver has just read the same C string.
    let name = unsafe { CStr::from_ptr(name) };
    match recognise(name, theirs, version, flags) {
        Some(symbol) => pfn.set(export(symbol)),
        None if passthrough::is_drivers(name) => pfn.set(passthrough::stub_of(name, theirs)),
        None => {}
    }
    Ok(())
}

/// Returns the hooked symbol of the function that the driver returned.
fn recognise(name: &CStr, theirs: *mut c_void, version: i32, flags: u64) -> Option<Symbol> {
    let mut rows = Symbol::by_base(name.to_bytes()).peekable();
    rows.peek()?;
    learn_all();
    let rows = rows.collect::<Rows>();
    if let Some(symbol) = rows.iter().find(|&symbol| driver::known(symbol) == theirs) {
        return Some(symbol);
    }
    let meant = meant(&rows, version, flags & PER_THREAD != 0)?;
    if is_another_form(name.to_str().ok()?, theirs) {
        return None;
    }
    // The first definition, or another entry to the same driver: both are wrapped.
    driver::adopt(meant, theirs);
    Some(meant)
}

/// Returns the row for a version and form: the newest that is not too new, in the requested form if it has two.
fn meant(rows: &Rows, version: i32, per_thread: bool) -> Option<Symbol> {
    let since = rows
        .iter()
        .map(|symbol| symbol.info().since)
        .filter(|&since| since <= version)
        .max()?;
    let mut newest = rows.iter().filter(|symbol| symbol.info().since == since);
    let first = newest.next()?;
    Some(
        newest
            .find(|symbol| symbol.per_thread() == per_thread && per_thread)
            .unwrap_or(first),
    )
}

/// Returns true if the driver exports the same name at this address in a form without a hook.
fn is_another_form(name: &str, theirs: *mut c_void) -> bool {
    const FORMS: [&str; 10] = [
        "", "_v2", "_v3", "_v4", "_ptsz", "_ptds", "_v2_ptsz", "_v2_ptds", "_v3_ptsz", "_v3_ptds",
    ];
    FORMS.iter().any(|form| {
        let full = format!("{name}{form}\0");
        let Ok(full) = CStr::from_bytes_with_nul(full.as_bytes()) else {
            return false;
        };
        library::find_by_name(full) == theirs
    })
}

/// Looks up every hooked symbol's address, so that results are recognised by address. A second time does no harm. It
/// takes no lock, which a child forked at that time would find locked for good.
fn learn_all() {
    static LEARNED: AtomicBool = AtomicBool::new(false);
    if LEARNED.load(Relaxed) {
        return;
    }
    for &symbol in HOOKED {
        if !symbol.is_nvml() {
            driver::address(symbol);
        }
    }
    LEARNED.store(true, Relaxed);
}

/// The rows of one name, at most 8.
#[derive(Default)]
struct Rows {
    symbols: [Option<Symbol>; 8],
}

impl Rows {
    fn iter(&self) -> impl Iterator<Item = Symbol> {
        self.symbols.iter().copied().flatten()
    }
}

impl FromIterator<Symbol> for Rows {
    fn from_iter<I: IntoIterator<Item = Symbol>>(symbols: I) -> Self {
        let mut rows = Self::default();
        for (place, symbol) in rows.symbols.iter_mut().zip(symbols) {
            *place = Some(symbol);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(name: &str) -> Rows {
        HOOKED
            .iter()
            .copied()
            .filter(|symbol| symbol.info().base == name)
            .collect()
    }

    #[test]
    fn a_version_means_the_newest_row_that_is_not_too_new() {
        let create = rows("cuCtxCreate");
        assert_eq!(meant(&create, 1000, false), None);
        assert_eq!(meant(&create, 3000, false), Some(Symbol::cuCtxCreate));
        assert_eq!(meant(&create, 4000, false), Some(Symbol::cuCtxCreate_v2));
        assert_eq!(meant(&create, 12000, false), Some(Symbol::cuCtxCreate_v3));
        assert_eq!(meant(&create, 13000, false), Some(Symbol::cuCtxCreate_v4));
    }

    #[test]
    fn the_flags_choose_the_per_thread_form_where_there_is_one() {
        assert_eq!(
            meant(&rows("cuLaunchKernel"), 7000, true),
            Some(Symbol::cuLaunchKernel_ptsz)
        );
        assert_eq!(
            meant(&rows("cuLaunchKernel"), 7000, false),
            Some(Symbol::cuLaunchKernel)
        );
        assert_eq!(
            meant(&rows("cuMemAlloc"), 7000, true),
            Some(Symbol::cuMemAlloc_v2)
        );
    }
}
