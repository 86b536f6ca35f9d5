//! The dashboard, from samples to the screen.

mod actions;
mod alerts;
mod comparison;
mod devices;
mod dialogs;
mod film;
mod frames;
mod gallery;
mod hands;
mod helps;
mod host;
mod lists;
mod models;
mod mouse;
mod page;
mod past;
mod rules;
mod state;
mod support;
mod torture;
mod traces;
