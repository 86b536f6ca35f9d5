//! Invalid arguments, places and files: a message, an exit code, and no change.

use std::fs;
use std::path::Path;

use gpushare_testbed::{Need, Testbed, artifact, needs};

use crate::cli_support::Run as _;
use crate::support::{gpushare, start};

#[test]
fn wrong_words_and_wrong_files_change_nothing() {
    let bed = Testbed::with_scenario("one-gpu");
    let _workload = start(&bed, "w");
    let ask = |words: &[&str]| gpushare(&bed, &[&["trace"], words].concat());
    ask(&["start", "name:nobody"]).refused(5, &["nobody"]);
    ask(&["start", "everybody"]).refused(2, &["everybody", "pid"]);
    for (option, value, word) in [
        ("--records", "0", "between 1000 and 4000000"),
        ("--records", "many", "--records"),
        ("--buffer", "1K", "out of range"),
        ("--buffer", "1T", "out of range"),
        ("--buffer", "8Q", "unit"),
        ("--for", "0s", "--for"),
        ("--for", "5", "unit"),
    ] {
        ask(&["start", "all", option, value]).refused(2, &[word]);
    }
    ask(&["stop", "name:w"]).refused(5, &["being traced"]);
    ask(&["export", "name:w", "-o", "-"]).refused(5, &["no trace of", "trace start"]);
    ask(&["stats", "/nonexistent/trace"]).refused(2, &["no such file"]);
    ask(&["export", "--format", "alnair"]).refused(2, &["-o", "PFLOG"]);
    let shown = ask(&["show", "--json"]).done().json();
    assert_eq!(shown["traces"], serde_json::json!([]), "nothing was begun");
    let generation = gpushare(&bed, &["policy", "show", "--json"]).done().json();
    assert_eq!(generation["generation"], 0, "nothing was changed");

    ask(&["start", "all"]).done();
    ask(&["stop", "all"]).done();
    let path = ask(&["show", "--json"]).done().json()["traces"][0]["file"].clone();
    let whole = fs::read(path.as_str().expect("a path")).expect("ours");
    let file = bed.dir().join("copy");
    let named = file.display().to_string();
    let out = bed.dir().join("out.json").display().to_string();
    for (content, word) in [
        (
            &whole[..whole.len() / 2],
            "size is not the one in its header",
        ),
        (&whole[..100], "cut short"),
        (
            &b"not a trace\n".repeat(20_000)[..],
            "does not begin with a buffer",
        ),
    ] {
        fs::write(&file, content).expect("ours");
        ask(&["export", &named, "-o", &out]).refused(1, &["copy", word]);
        assert!(!Path::new(&out).exists());
        let said = ask(&["stats", &named]).refused(1, &["is not a trace", "trace show"]);
        assert!(!said.err.contains("remove"), "it is not ours: {said:?}");
    }
    fs::write(&file, &whole).expect("ours");
    ask(&["export", &named, "-o", &out]).done();
    let written = fs::read(&out).expect("written");
    for (place, code) in [("/proc/trace.json", 1), ("/nonexistent/trace.json", 1)] {
        let said = ask(&["export", &named, "-o", place]);
        assert!(said.code == code || said.code == 4, "{said:?}");
        assert!(said.err.contains(place), "{said:?}");
    }
    fs::write(&file, &whole[..100]).expect("ours");
    ask(&["export", &named, "-o", &out]).refused(1, &["cut short"]);
    assert_eq!(fs::read(&out).expect("as it was"), written);
}

#[test]
fn whatever_a_trace_holds_the_exports_are_well_formed() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut workload = start(&bed, "w");
    gpushare(&bed, &["trace", "start", "all", "--records", "2000"]).done();
    assert!(workload.ask("launch 10 20").starts_with("ok"));
    gpushare(&bed, &["trace", "stop", "all"]).done();
    let shown = gpushare(&bed, &["trace", "show", "--json"]).done().json();
    let path = shown["traces"][0]["file"]
        .as_str()
        .expect("a path")
        .to_owned();
    let mut bytes = fs::read(&path).expect("ours");
    // At each of three strides the words behind the first kilobyte become random. All records count as written.
    let next = 128;
    bytes[next..next + 8].copy_from_slice(&2000_u64.to_ne_bytes());
    for stride in [8, 40, 24] {
        let mut random = 0x2545_f491_4f6c_dd1d_u64 ^ stride as u64;
        for at in (1024..bytes.len() - 8).step_by(stride) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Every second record keeps its size, or hardly any would be accepted as a record.
            let word = if random & 1 == 0 {
                random
            } else {
                random >> 40
            };
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        let file = bed.dir().join("random");
        fs::write(&file, &bytes).expect("ours");
        let named = file.display().to_string();
        let said = gpushare(&bed, &["trace", "export", &named, "-o", "-"]).done();
        assert!(said.json()["traceEvents"].is_array());
        let csv = gpushare(&bed, &["trace", "export", &named, "--format", "csv"]).done();
        assert!(csv.out.starts_with("pid,name,"), "{stride}");
        gpushare(&bed, &["trace", "stats", &named, "--json"])
            .done()
            .json();
        let dir = bed.dir().join("logs").display().to_string();
        gpushare(
            &bed,
            &["trace", "export", &named, "--format", "alnair", "-o", &dir],
        )
        .done();
    }
}

/// A mount namespace whose segment directory has little space: a workload runs, a trace that is too large is asked for, and the
/// message names the available space.
const LITTLE_ROOM: &str =
    "mount -t tmpfs -o size=48m,mode=700 none \"$GPUSHARE_DIR\" 2> /dev/null || exit 99
sleep 60 | \"$GPUSHARE\" run --name w -- \"$WORKLOAD\" --script > /dev/null &
for i in $(seq 200); do \"$GPUSHARE\" ps --json | grep -q '\"w\"' && break; sleep 0.05; done
\"$GPUSHARE\" trace start all --records 4000000; code=$?
\"$GPUSHARE\" trace show --json > \"$SHOWN\"; ls -A \"$GPUSHARE_DIR\" > \"$LISTED\"
exit $code";

#[test]
fn a_buffer_that_finds_no_room_is_a_sentence_and_leaves_nothing() {
    let bed = Testbed::with_scenario("one-gpu");
    let dir = bed.dir().join("little");
    fs::create_dir(&dir).expect("ours");
    let (shown, listed) = (bed.dir().join("shown"), bed.dir().join("listed"));
    let mut command = bed.sim_only("unshare");
    command
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["sh", "-c", LITTLE_ROOM])
        .env("GPUSHARE", artifact("gpushare"))
        .env("WORKLOAD", artifact("gpushare-workload"))
        .env("GPUSHARE_LIB", artifact("libgpushare.so"))
        .env("GPUSHARE_DIR", &dir)
        .env("SHOWN", &shown)
        .env("LISTED", &listed);
    let said = command.said();
    if !needs(Need::Works("user-namespaces", listed.exists())) {
        return;
    }
    let said = said.refused(1, &["no room for", "128", "fewer records"]);
    assert_eq!(said.out, "");
    let shown = fs::read_to_string(shown).expect("written");
    assert!(shown.contains("\"traces\": []"), "{shown}");
    let listed = fs::read_to_string(listed).expect("written");
    assert!(!listed.contains("trace"), "{listed}");
}
