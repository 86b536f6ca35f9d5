//! An event of the Trace Event Format, and the metadata that names lanes.

use std::borrow::Cow;

use serde::Serialize;

/// An event of the Trace Event Format.
#[derive(Serialize)]
pub(super) struct Event<'a> {
    pub(super) name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) cat: &'static str,
    pub(super) ph: &'static str,
    pub(super) ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dur: Option<f64>,
    pub(super) pid: u32,
    pub(super) tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) s: Option<&'static str>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    pub(super) args: Args<'a>,
}

/// Further fields of an event.
#[derive(Default, Serialize)]
pub(super) struct Args<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) labels: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) ended_by: &'static str,
}

impl Args<'_> {
    fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.labels.is_none()
            && self.bytes.is_none()
            && self.gpu.is_none()
            && self.ended_by.is_empty()
    }
}

pub(super) fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

pub(super) fn meta<'a>(what: &'static str, pid: u32, tid: u32, args: Args<'a>) -> Event<'a> {
    Event {
        name: what.into(),
        cat: "",
        ph: "M",
        ts: 0.0,
        dur: None,
        pid,
        tid,
        s: None,
        args,
    }
}

pub(super) fn named<'a>(
    what: &'static str,
    pid: u32,
    tid: u32,
    name: impl Into<Cow<'a, str>>,
) -> Event<'a> {
    let args = Args {
        name: Some(name.into()),
        ..Args::default()
    };
    meta(what, pid, tid, args)
}
