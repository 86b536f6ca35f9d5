//! The files of the segments: the directory they are in, how they are made, and what is checked before they are mapped.

pub(crate) mod create;
pub mod dir;
pub mod error;
pub mod locate;
pub(crate) mod probe;
