//! The page that Prometheus reads: the figures of this machine as text.
//!
//! The page is the document of `gpushare-top --once --format json`, measured by [`gpushare_sample::meter`]; nothing is
//! counted here.

use crate::data::Data;
use crate::document::Document;
use crate::findings;
use crate::rows;
use gpushare_sample::columns::Row;
use gpushare_sample::keys::Keys as _;
use gpushare_sample::meter::Meter;
use gpushare_sample::{ProcessState, Sample};

pub use gpushare_sample::meter::Format;

/// The figures of a machine, updated by each sample.
#[derive(Default)]
pub struct Figures {
    data: Data,
}

impl Figures {
    /// Adds a sample, without the dead processes, which hold nothing any more.
    pub fn take(&mut self, mut sample: Sample) {
        sample
            .processes
            .retain(|process| process.state != ProcessState::Gone);
        self.data.update(sample);
        if self.data.is_measured() {
            findings::update(&mut self.data);
        }
    }

    /// Writes the page in a format.
    pub fn page(&self, format: Format) -> String {
        let mut meter = Meter::new();
        let mut document = self.document();
        document.only_used();
        document.measure(&mut meter);
        meter.page(format)
    }

    /// Returns the document that the dashboard prints.
    pub fn document(&self) -> Document<'_> {
        let rows = rows::every(&self.data);
        let processes = self.data.sample.processes.iter();
        let listed = processes.filter(|process| {
            let is_row = |row: &Row<'_>| std::ptr::eq(row.process, *process);
            process.devices.is_empty() || rows.iter().any(is_row)
        });
        Document::of(&self.data, None, listed.collect(), &self.data.sample)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use gpushare_sample::{DeviceSample, Holding, ProcessState, SlotId};

    /// Returns a node with eight GPUs and twenty processes on each, each of which waited for three others.
    fn node() -> Sample {
        let mut sample = Sample {
            host: "node0001".into(),
            ..Sample::default()
        };
        let slot = |index: u16| SlotId { index, epoch: 1 };
        for gpu in 0..8_usize {
            let mut device = DeviceSample {
                uuid: format!("GPU-00000000-0000-0000-0000-00000000000{gpu}"),
                used_bytes: Some(90 << 30),
                ..DeviceSample::default()
            };
            device.view.name = "NVIDIA H200".into();
            device.view.total_bytes = 141 << 30;
            device.nvml.util_percent = Some(97);
            device.nvml.power_mw = Some(612_345);
            sample.devices.push(device);
        }
        for index in 0..160_u16 {
            let mut process = gpushare_sample::ProcessSample {
                pid: Some(1_000_000 + u32::from(index)),
                user: "alice".into(),
                state: ProcessState::Wait,
                ..Default::default()
            };
            process.view.slot = slot(index);
            process.view.identity.label = format!("train-{index}");
            process.view.identity.cgroup =
                format!("/slurm/job_{}/step_0", 4_711_000 + u32::from(index));
            let mut holding = Holding {
                gpu: usize::from(index / 20),
                ..Holding::default()
            };
            holding.view.used = u64::from(index + 1) << 25;
            holding.view.peak = holding.view.used;
            holding.view.quota.bytes = Some(8 << 30);
            holding.view.counters.launches = 12_345_678;
            holding.view.lock.held_ns = 123_456_789_012;
            holding.view.lock.waited_ns = 987_654_321_098;
            holding.view.lock.acquisitions = 54_321;
            holding.view.lock.waits.counts = [308; shm_layout::HISTOGRAM];
            holding.view.lock.releases[0] = 54_321;
            let others =
                (1..4).map(|by| (slot(index / 20 * 20 + (index + by) % 20), 1_234_567_890));
            holding.view.lock.waited_for = others.collect();
            process.devices.push(holding);
            sample.processes.push(process);
        }
        sample
    }

    #[test]
    fn what_many_machines_cost_is_as_the_documentation_says() {
        let mut figures = Figures::default();
        figures.take(node());
        let page = figures.page(Format::Text);
        let of = |word: &str| {
            let lines = page.lines().filter(|line| !line.starts_with('#'));
            lines.filter(|line| line.contains(word)).count()
        };
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(page.as_bytes()).expect("memory");
        let packed = packed.finish().expect("memory").len();
        let measured = [
            of(""),
            page.len() / 1000,
            packed / 1000,
            of("_bucket{"),
            of("waited_for_"),
        ];
        let text = include_str!("../../../assets/prometheus/README.md");
        let row = text.lines().find(|line| line.starts_with("| one node"));
        let cells = row
            .expect("the row")
            .split('|')
            .skip(2)
            .filter(|cell| !cell.trim().is_empty());
        let told: Vec<usize> = cells
            .map(|cell| {
                cell.chars()
                    .filter(char::is_ascii_digit)
                    .collect::<String>()
            })
            .map(|digits| digits.parse().expect("a number"))
            .collect();
        assert_eq!(told.len(), measured.len(), "{measured:?}");
        let near = |(told, measured): (&usize, &usize)| told.abs_diff(*measured) * 20 <= *measured;
        let all = told.iter().zip(&measured).all(near);
        assert!(all, "told {told:?}, measured {measured:?}");
    }
}
