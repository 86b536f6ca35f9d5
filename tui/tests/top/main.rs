//! The dashboard, from samples to what is on the screen.

mod frames;
mod state;
mod support;
mod torture;
