//! The dashboard, from samples to what is on the screen.

mod actions;
mod frames;
mod gallery;
mod state;
mod support;
mod torture;
