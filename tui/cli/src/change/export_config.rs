//! `gpushare export-config`: the settings in force, as the file that `gpushare apply` reads.

use std::io::Write;

use shm_layout::{DeviceSet, GroupSet, QuotaValue, Segments, format_uuid, settings};

use crate::{Done, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_broker::pods;
use gpushare_control::manifest::{Manifest, Value};
use gpushare_control::rule;
use gpushare_launch::slurm;

/// Write policies, limits, groups and rules in force as a file for gpushare apply
///
/// Settings of running processes, the groups of Slurm jobs and of claims of Kubernetes, and what ends by itself (--for) are left out.
#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let segments = Segments::open_viewer(&dir.path)?;
    let settings = settings(&segments);
    let mut manifest = Manifest::default();
    let mut device = |name: String, set: &DeviceSet| {
        let words = words(set);
        if !words.is_empty() {
            manifest.policy.insert(name.clone(), words);
        }
        if set.limit != QuotaValue::Inherit {
            let limit = Value::Text(set.limit.to_string());
            manifest.limit.insert(name, limit);
        }
    };
    device("all".into(), &settings.common);
    for (uuid, set) in &settings.devices {
        device(format_uuid(*uuid, false), set);
    }
    let all = settings.groups.len();
    for group in settings.groups.into_iter().filter(stays) {
        let words = group.set.words().into_iter();
        let set = words.map(|(about, value)| (about.word, value)).collect();
        manifest.group.insert(group.name, set);
    }
    if !settings.rules.is_empty() {
        let entries = settings.rules.iter().map(|(_, rule)| rule::entry(rule));
        manifest.rule = Some(entries.collect());
    }
    let text = toml::to_string_pretty(&manifest)
        .map_err(|error| Failure::failed(format!("the settings cannot be written: {error}")))?;
    let left_out = all - manifest.group.len();
    if left_out > 0 {
        writeln!(
            out,
            "# Groups of Slurm jobs and of claims of Kubernetes, left out because they end with their jobs and pods: {left_out}\n"
        )?;
    }
    out.write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// Returns false for the group of a job or a claim: made again at a boot, it would keep its memory reserved for ever.
fn stays(group: &GroupSet) -> bool {
    !slurm::is_group(&group.name) && !pods::is_group(&group.name)
}

/// Returns a policy and the device's memory settings, as `policy set` takes them.
fn words(set: &DeviceSet) -> String {
    let policy = set.policy.map(|policy| policy.to_string());
    let memory = set.memory.words().into_iter();
    let memory = memory.map(|(about, value)| format!("{}={value}", about.word));
    let words: Vec<String> = policy.into_iter().chain(memory).collect();
    words.join(" ")
}
