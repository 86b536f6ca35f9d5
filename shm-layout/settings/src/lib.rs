//! What can be set in gpushare: the values, their text in both directions, the edits that change them, the rules that give
//! them to every process that matches, and the environment variables that ask for them at a launch.
//!
//! Everything here is a pure function of its arguments, except [`Environment::of_self`](environment::Environment::of_self),
//! which reads the environment, and `PFLOG`, whose directory is looked up. There are no atomics, no mappings and no `unsafe`
//! code. The crate lives in other people's processes and has no dependency; with the feature `serde`, for the tools, a
//! value can be written to a file and read back in the words that a person would type.
//!
//! # Floors
//!
//! ```text
//! launch     environment     what the variables of a launch ask for
//! text       text            what people type and read back
//! values     value           what can be set
//! names      variables       the environment variables by name
//! ```

#![forbid(unsafe_code)]

pub mod environment;
pub mod text;
pub mod value;
pub mod variables;
