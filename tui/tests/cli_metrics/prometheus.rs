//! Prometheus and its tools, on our output. A test whose tool is not installed reports that and ends.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gpushare_testbed::{Need, Testbed, Watched, artifact, eventually, needs, target_dir};
use serde_json::Value;

use crate::cli_support::{World, gpushare};
use crate::server;

const PATIENCE: Duration = Duration::from_secs(110);
const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../assets");

/// Returns the path of a Prometheus program: installed, or unpacked in the target directory.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = target_dir().join("prometheus/usr/bin");
    let found = std::env::split_paths(&path)
        .chain([unpacked])
        .map(|dir| dir.join(name))
        .find(|path| path.is_file());
    needs(Need::Works("prometheus", found.is_some()));
    found
}

fn good(output: &Output) -> String {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn the_tool_that_checks_metrics_finds_nothing_wrong() {
    let Some(promtool) = tool("promtool") else {
        return;
    };
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 4096));
    let file = world.dir().join("page.prom");
    let path = file.display().to_string();
    world.gpushare(&["metrics", "--textfile", &path]).done();
    let bed = Testbed::new();
    let whole = bed.dir().join("page.prom");
    std::fs::write(&whole, page_of_a_machine(&bed)).expect("ours");
    for file in [file, whole] {
        let page = std::fs::File::open(&file).expect("just written");
        let checked = Command::new(&promtool)
            .args(["check", "metrics"])
            .stdin(page)
            .output()
            .expect("it starts");
        assert_eq!(good(&checked), "", "{}", file.display());
    }
}

/// Checks a rule of Prometheus' own tool, for machines without it.
#[test]
fn no_metric_has_an_abbreviated_unit_in_its_name() {
    const ABBREVIATED: [&str; 22] = [
        "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d", "c", "hz",
        "khz", "mhz", "ghz", "w", "mw", "v",
    ];
    let page = page_of_a_machine(&Testbed::new());
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).expect("a name");
        let mut words = name.split('_');
        let found = words.find(|word| ABBREVIATED.contains(word));
        assert_eq!(found, None, "{name}");
    }
    assert!(
        page.contains("gpushare_device_pcie_sent_bytes_per_second{"),
        "{page}"
    );
}

/// Returns the page of a machine with a process and all figures of NVML.
fn page_of_a_machine(bed: &Testbed) -> String {
    let mut workload = Watched::spawn(&mut bed.workload(&["--script"]));
    assert!(workload.line().starts_with("ready"));
    assert_eq!(workload.ask("alloc 1M"), "ok");
    gpushare(bed, &["metrics"]).done().out
}

#[test]
fn the_example_configuration_is_valid_and_each_alert_fires_on_what_it_is_about() {
    let Some(promtool) = tool("promtool") else {
        return;
    };
    let dir = Path::new(ASSETS).join("prometheus");
    for words in [
        &["check", "config", "prometheus.yml"][..],
        // The token and the lists of machines in this configuration do not exist here.
        &["check", "config", "--syntax-only", "prometheus.many.yml"],
        &["check", "rules", "gpushare.rules.yml"],
        &["test", "rules", "gpushare.test.yml"],
    ] {
        let output = Command::new(&promtool)
            .args(words)
            .current_dir(&dir)
            .output()
            .expect("it starts");
        good(&output);
    }
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).expect("it is there");
    // Debian's Prometheus is built without Kubernetes; it can check the rest of the file.
    let nodes = text("prometheus.kubernetes.yml");
    let (before, after) = nodes.split_once("    kubernetes_sd_configs:").expect("it");
    let (_, after) = after.split_once("    relabel_configs:").expect("behind it");
    let rest = tempfile::NamedTempFile::new().expect("a temporary file");
    let lines = format!("{before}    static_configs: []\n    relabel_configs:{after}");
    std::fs::write(rest.path(), lines).expect("ours");
    let mut check = Command::new(&promtool);
    check.args(["check", "config", "--syntax-only"]);
    good(&check.arg(rest.path()).output().expect("it starts"));
    let alerts = |text: &str, word: &str| -> BTreeSet<String> {
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(word));
        lines.map(|name| name.trim().to_owned()).collect()
    };
    let rules = alerts(&text("gpushare.rules.yml"), "- alert:");
    assert_eq!(
        rules,
        alerts(&text("gpushare.test.yml"), "alertname:"),
        "each alert has a test"
    );
}

/// Returns the expressions of the board, with Grafana's variables replaced.
fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(ASSETS).join("grafana/gpushare.json"))
        .expect("it is there");
    let board: Value = serde_json::from_str(&text).expect("JSON");
    let panels = board["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let edits = &board["annotations"]["list"][0]["expr"];
    let all = targets.map(|target| &target["expr"]).chain([edits]);
    let filled = |text: &str| {
        let text = text
            .replace("$__rate_interval", "10s")
            .replace("$__interval", "30s")
            .replace("$__range", "1m");
        let text = text.replace("$instance", ".*").replace("$gpu", ".*");
        assert!(!text.contains('$'), "{text}");
        text
    };
    all.map(|text| filled(text.as_str().expect("text")))
        .collect()
}

/// Returns the number of results of an expression now; 0 if Prometheus does not reply.
fn results(port: u16, expression: &str) -> usize {
    let mut query = String::new();
    for byte in expression.bytes() {
        // Never fails in memory.
        let _ = write!(query, "%{byte:02x}");
    }
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return 0;
    };
    let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n");
    let mut answer = String::new();
    let read = stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.read_to_string(&mut answer));
    let Some((_, body)) = read.ok().and_then(|_| answer.split_once("\r\n\r\n")) else {
        return 0;
    };
    assert!(!body.contains("bad_data"), "{expression}: {body}");
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    body["data"]["result"].as_array().map_or(0, Vec::len)
}

/// Starts a long demo on the simulated GPU.
fn demo(bed: &Testbed) -> Watched {
    let mut command = bed.sim_only(artifact("gpushare"));
    command
        .args(["demo", "--sim", "--headless", "--here", "--seconds", "110"])
        .env("GPUSHARE_LIB", artifact("libgpushare.so"));
    Watched::spawn(&mut command)
}

#[test]
fn every_expression_of_the_board_has_data_while_the_demo_runs() {
    let Some(prometheus) = tool("prometheus") else {
        return;
    };
    let bed = Testbed::new();
    let _demo = demo(&bed);
    let mut command = bed.sim_only(artifact("gpushare"));
    command.args(["metrics", "--listen", "127.0.0.1:0"]);
    let mut metrics = Watched::spawn(&mut command);
    let line = metrics.line();
    let address = line
        .strip_prefix("serving http://")
        .and_then(|line| line.strip_suffix("/metrics"))
        .expect("an address");

    // The shipped configuration, with another interval and port.
    let text = std::fs::read_to_string(Path::new(ASSETS).join("prometheus/prometheus.yml"))
        .expect("it is there");
    let text = text
        .replace("127.0.0.1:9837", address)
        .replace("scrape_interval: 15s", "scrape_interval: 1s");
    std::fs::write(bed.dir().join("prometheus.yml"), text).expect("ours");
    std::fs::copy(
        Path::new(ASSETS).join("prometheus/gpushare.rules.yml"),
        bed.dir().join("gpushare.rules.yml"),
    )
    .expect("ours");
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a port")
        .port();
    let at = |name: &str| bed.dir().join(name).display().to_string();
    let _prometheus = Watched::spawn(
        Command::new(prometheus)
            .arg(format!("--config.file={}", at("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", at("prometheus")))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null()),
    );
    let ask = |expression: &str| results(port, expression);
    eventually("Prometheus has scraped", PATIENCE, || ask("up == 1") > 0);
    let mut without = expressions();
    assert!(without.len() > 15);
    let (mut last, mut weight) = (String::new(), 100);
    let gpushare = |words: &[&str]| {
        let mut command = bed.sim_only(artifact("gpushare"));
        good(&command.args(words).output().expect("it starts"));
    };
    // The board shows moves of memory, and the waits of calls for it.
    gpushare(&["pause", "name:batch", "--evict"]);
    gpushare(&["resume", "name:batch"]);
    let all = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("every expression has data", Duration::from_secs(60), || {
            // The board shows edits.
            weight += 1;
            gpushare(&["set", "name:batch", &format!("weight={weight}")]);
            without.retain(|expression| ask(expression) == 0);
            last.clear();
            // Never fails in memory.
            let _ = write!(last, "{}", without.join("\n"));
            without.is_empty()
        });
    }));
    assert!(all.is_ok(), "without data: {last}");
    assert!(ask("scrape_samples_scraped > 100") > 0);
    // The demo's own values: a process holds the lock.
    eventually("the lock is held", PATIENCE, || {
        ask("sum(rate(gpushare_process_lock_held_seconds_total[10s])) > 0.1") > 0
    });
}

#[test]
fn a_server_answers_while_processes_come_and_go() {
    let world = World::new();
    let (_server, address) = server::serve(&world, &["127.0.0.1:0"]);
    for round in 0..20 {
        let actor = world.actor(&format!("actor-{round}"));
        let gpu = actor.enter(0);
        assert!(actor.takes(gpu, 4096));
        let page = server::page(address);
        assert!(page.contains(&format!("name=\"actor-{round}\"")), "{page}");
    }
}
