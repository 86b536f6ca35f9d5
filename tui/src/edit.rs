//! Edits of the segments: what may be changed, how it is written and recorded, and how it is taken back.
//!
//! The control program and the dashboard edit in the same way: an [`Editor`] checks the change, makes
//! it by compare-and-swap, writes the [`audit`] log and waits for the acknowledgement. [`targets`]
//! resolves what a user typed to processes and devices; [`manifest`] reads the file of `gpushare apply`.

pub mod audit;
mod editor;
pub mod manifest;
mod stored;
pub mod targets;
mod words;

pub use editor::{ACKNOWLEDGEMENT, Applied, EditFailure, EditRequest, Editor};
pub use stored::StoredChange;
pub use words::quota_word;
