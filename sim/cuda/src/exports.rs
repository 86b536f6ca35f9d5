//! All exports, and looking one up as `cuGetProcAddress` does.

use gpushare_abi::types::{
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
};

use crate::driver;
use crate::faces::Face;

/// What each file exports.
pub const ALL: &[&[Face]] = &[
    crate::array::calls::FACES,
    crate::capture::calls::FACES,
    crate::context::FACES,
    crate::copy::FACES,
    crate::device::FACES,
    crate::event::FACES,
    crate::external::FACES,
    crate::graph::add::FACES,
    crate::graph::edit::FACES,
    crate::graph::exec_calls::FACES,
    crate::graph::exec_params::FACES,
    crate::graph::memory::FACES,
    crate::graph::params::FACES,
    crate::graph::user_object::FACES,
    crate::host::FACES,
    crate::init::FACES,
    crate::ipc::FACES,
    crate::launch::FACES,
    crate::link::FACES,
    crate::managed::FACES,
    crate::memory::FACES,
    crate::module::FACES,
    crate::pointer::FACES,
    crate::pool::calls::FACES,
    crate::pool::share::FACES,
    crate::queue::FACES,
    crate::stubs::FACES,
    crate::texture::FACES,
    crate::vmm::calls::FACES,
    crate::vmm::multicast::FACES,
];

/// What a look-up comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The function is here.
    At(*const ()),
    /// It is not; the status tells why.
    Not(u32),
}

/// The form of a function that CUDA version `version` had, or the nearest older one; the form for the
/// per-thread default stream if wanted and there is one.
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
