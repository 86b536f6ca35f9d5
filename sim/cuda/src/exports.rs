//! All exports, and looking one up as `cuGetProcAddress` does.

use std::ffi::c_void;

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUerror, CUresult};
use gpushare_abi::types::{
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CU_GET_PROC_ADDRESS_SUCCESS,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
};

use crate::c::{Out, Text};
use crate::driver;
use crate::faces::{Face, faces};

/// The exports of each file.
pub const ALL: &[&[Face]] = &[
    FACES,
    crate::memory::array::calls::FACES,
    crate::calls::capture::FACES,
    crate::calls::checkpoint::FACES,
    crate::calls::context::FACES,
    crate::calls::copy::FACES,
    crate::device::FACES,
    crate::calls::event::FACES,
    crate::memory::external::FACES,
    crate::calls::graph_add::FACES,
    crate::calls::graph_edit::FACES,
    crate::calls::graph_exec::FACES,
    crate::calls::graph_exec_params::FACES,
    crate::memory::graph_memory::FACES,
    crate::calls::graph_params::FACES,
    crate::calls::green::FACES,
    crate::graph::conditional::FACES,
    crate::graph::user_object::FACES,
    crate::memory::host::FACES,
    crate::init::FACES,
    crate::memory::ipc::FACES,
    crate::calls::launch::FACES,
    crate::code::link::FACES,
    crate::calls::managed::FACES,
    crate::calls::memory::FACES,
    crate::code::module::FACES,
    crate::memory::peer::FACES,
    crate::memory::pointer::FACES,
    crate::calls::ordered::FACES,
    crate::memory::pool::calls::FACES,
    crate::memory::pool::share::FACES,
    crate::calls::stream::FACES,
    crate::stubs::FACES,
    crate::memory::texture::FACES,
    crate::memory::vmm::calls::FACES,
    crate::memory::vmm::multicast::FACES,
];

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The function is here.
    At(*const ()),
    /// The function is not here; the status gives the reason.
    Not(u32),
}

/// Finds the form of a function of CUDA version `version`, or the nearest older one; with `per_thread`, the form for
/// the per-thread default stream if there is one.
pub fn find(name: &str, version: i32, per_thread: bool) -> Found {
    let world = driver::world();
    if world.is_some_and(|world| {
        world
            .scenario()
            .mishaps
            .missing
            .iter()
            .any(|other| other == name)
    }) {
        return Found::Not(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    }
    let forms = || {
        ALL.iter()
            .copied()
            .flatten()
            .filter(|face| face.base == name)
    };
    let twins = per_thread && forms().any(|face| face.per_thread);
    let best = forms().filter(|face| face.per_thread == twins && face.since <= version);
    match best.max_by_key(|face| face.since) {
        Some(face) => Found::At(face.address.0),
        None if forms().next().is_some() => Found::Not(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
        None => Found::Not(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
    }
}

/// Looks a function up; NULL and a status mean that there is none.
fn proc_address(
    name: Text,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
) -> Result<u32, CUerror> {
    out.check()?;
    let name = name.get()?;
    out.set(std::ptr::null())?;
    if flags > 2 || version > driver::VERSION {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match find(
        &name,
        version,
        flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    ) {
        Found::At(address) => {
            out.set(address.cast())?;
            Ok(CU_GET_PROC_ADDRESS_SUCCESS)
        }
        Found::Not(status) => Ok(status),
    }
}

faces! {
    "cuGetProcAddress" 11030 cuGetProcAddress (name: Text, out: Out<*const c_void>, version: i32, flags: u64) {
        match proc_address(name, out, version, flags)? {
            CU_GET_PROC_ADDRESS_SUCCESS => Ok(()),
            _ => Err(CUDA_ERROR_NOT_FOUND),
        }
    }
    "cuGetProcAddress" 12000 cuGetProcAddress_v2 (name: Text, out: Out<*const c_void>, version: i32, flags: u64, status: Out<u32>) {
        // This form says that there is none by the status alone.
        status.set_if_wanted(proc_address(name, out, version, flags)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_symbol_is_there_once_and_each_twin_has_its_plain_form() {
        let faces: Vec<_> = ALL.iter().copied().flatten().collect();
        let mut symbols: Vec<_> = faces.iter().map(|face| face.symbol).collect();
        symbols.sort_unstable();
        assert!(symbols.windows(2).all(|pair| pair[0] != pair[1]));
        for twin in faces.iter().filter(|face| face.per_thread) {
            let plain = twin
                .symbol
                .trim_end_matches("_ptsz")
                .trim_end_matches("_ptds");
            assert_ne!(plain, twin.symbol);
            assert!(
                faces
                    .iter()
                    .any(|face| face.symbol == plain && face.base == twin.base)
            );
        }
    }

    #[test]
    fn nothing_is_newer_than_the_version_that_is_advertised() {
        assert!(
            ALL.iter()
                .copied()
                .flatten()
                .all(|face| face.since <= driver::VERSION)
        );
    }
}
