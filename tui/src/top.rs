//! `gpushare-top`: who holds a GPU, who waits for it, how long and since when.
//!
//! Data flows one way: a [`crate::source::Source`] makes samples, [`state`] takes them in, [`view`] draws the state.
//! Keys change the state and send edits to [`operator`], a thread that writes and waits for the acknowledgement while
//! the screen goes on. What has columns, keys, fields or rules is a table: [`columns`], [`keys`], [`state::alerts`].

pub mod columns;
pub mod dialog;
pub mod keys;
pub mod palette;
pub mod state;
