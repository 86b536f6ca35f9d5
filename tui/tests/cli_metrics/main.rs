//! `gpushare metrics`: the page, the server, and the page in Prometheus and its tools.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod page;
mod prometheus;
mod server;

use std::collections::BTreeMap;

/// The samples of a page: name and labels, sorted by label, with the value.
type Samples = BTreeMap<String, f64>;

/// Parses a page in which no label has a comma or a blank.
fn samples(page: &str) -> Samples {
    let mut samples = Samples::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        let value = value.parse().unwrap_or(f64::INFINITY);
        let twice = samples.insert(in_order(name), value);
        assert!(twice.is_none(), "twice: {line}");
    }
    samples
}

fn in_order(name: &str) -> String {
    let Some((name, labels)) = name.strip_suffix('}').and_then(|name| name.split_once('{')) else {
        return name.to_owned();
    };
    let mut labels: Vec<&str> = labels.split(',').collect();
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join(","))
}
