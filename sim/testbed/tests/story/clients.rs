//! Two real clients at once, each with a quota that changes while it runs.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gpushare_testbed::{Watched, eventually, python};

use crate::stage::Stage;

const MIB: u64 = 1 << 20;
/// Granularity of allocations on the simulated device.
const GRAIN: u64 = 512;
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the paths of the interpreter and of ffmpeg.
fn clients() -> Option<(PathBuf, PathBuf)> {
    let python = python(&["cuda-bindings==13.5.0", "imageio-ffmpeg==0.8.1"])?;
    let mut ask = Command::new(&python);
    ask.args([
        "-c",
        "import imageio_ffmpeg as f; print(f.get_ffmpeg_exe())",
    ]);
    let output = Watched::spawn(&mut ask).wait_output();
    let ffmpeg = String::from_utf8(output.stdout).unwrap();
    Some((python, PathBuf::from(ffmpeg.trim_end())))
}

/// Starts cuda-bindings under a script that allocates.
fn bindings(stage: &Stage, python: &PathBuf, memory: &str) -> Watched {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/clients/alloc_on_demand.py"
    );
    let mut command = stage.run(&["--memory", memory, "--name", "bindings"], python);
    let mut bindings = Watched::spawn(command.arg(script));
    assert_eq!(bindings.line(), "ready");
    bindings
}

/// Starts ffmpeg, which scales a generated clip without end, ten frames a second.
fn ffmpeg(stage: &Stage, ffmpeg: &PathBuf, memory: &str) -> Watched {
    let mut command = stage.run(&["--memory", memory, "--name", "ffmpeg"], ffmpeg);
    command
        .args(["-hide_banner", "-loglevel", "error"])
        .args(["-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu"])
        .args(["-re", "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=10"])
        .args([
            "-vf",
            "format=nv12,hwupload_cuda,scale_cuda=160:120,hwdownload,format=nv12",
        ])
        .args(["-flush_packets", "1", "-f", "framemd5", "-"]);
    Watched::spawn(&mut command)
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

#[test]
fn two_real_clients_share_a_gpu_under_quotas_that_change_while_they_run() {
    let Some((python, ffmpeg_path)) = clients() else {
        return;
    };
    let stage = Stage::new();
    let mut bindings = bindings(&stage, &python, "1GiB");
    let mut ffmpeg = ffmpeg(&stage, &ffmpeg_path, "2GiB");
    for _ in 0..8 {
        ffmpeg.line();
    }

    // `ps` shows the exact bytes. The device, which rounds each piece up, confirms them.
    assert_eq!(
        bindings.ask(&format!("alloc {}", 256 * MIB)),
        "CUDA_SUCCESS"
    );
    assert_eq!(bindings.ask("alloc 100001"), "CUDA_SUCCESS");
    let used = 256 * MIB + 100_001;
    let shown = stage.on_device("bindings");
    assert_eq!(
        (&shown["used_bytes"], &shown["launches"]),
        (&used.into(), &0.into())
    );
    assert_eq!(shown["quota_bytes"], 1024 * MIB);
    assert_eq!(stage.held(bindings.pid()), used.next_multiple_of(GRAIN));
    let shown = stage.on_device("ffmpeg");
    let (counted, held) = (
        shown["used_bytes"].as_u64().unwrap(),
        stage.held(ffmpeg.pid()),
    );
    assert!(
        counted > 0 && (counted..counted + 100 * GRAIN).contains(&held),
        "{counted} {held}"
    );
    assert_eq!(shown["quota_bytes"], 2048 * MIB);
    eventually("ps shows each kernel the device has done", LIMIT, || {
        let before = stage.kernels(ffmpeg.pid());
        let shown = stage.on_device("ffmpeg")["launches"].clone();
        // No allocation changes between two frames.
        before >= 16 && before == stage.kernels(ffmpeg.pid()) && shown == before
    });

    // A lower quota refuses the next allocation of this process, and of no other.
    let said = stage.gpushare(&["quota", "set", "name:bindings", "300MiB", "-v"]);
    assert!(said.contains("applied by all 2 processes"), "{said}");
    let more = format!("alloc {}", 300 * MIB - used + 1);
    assert_eq!(bindings.ask(&more), "CUDA_ERROR_OUT_OF_MEMORY");
    let info = numbers(&bindings.ask("info"));
    assert_eq!(info, [300 * MIB - used, 300 * MIB]);
    assert_eq!(stage.on_device("bindings")["denials"], 1);
    ffmpeg.line();
    assert_eq!(stage.on_device("ffmpeg")["denials"], 0);

    // A quota below the memory in use takes nothing away.
    stage.gpushare(&["quota", "set", "name:bindings", "200MiB"]);
    assert_eq!(bindings.ask("alloc 1"), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(numbers(&bindings.ask("info"))[0], 0);
    assert_eq!(stage.on_device("bindings")["used_bytes"], used);

    // A higher quota takes effect without a restart.
    stage.gpushare(&["quota", "set", "name:bindings", "2GiB"]);
    assert_eq!(bindings.ask(&more), "CUDA_SUCCESS");
    let used = 300 * MIB + 1;
    let info = numbers(&bindings.ask("info"));
    assert_eq!(info, [2048 * MIB - used, 2048 * MIB]);
    let shown = stage.on_device("bindings");
    assert_eq!(
        (&shown["used_bytes"], &shown["denials"]),
        (&used.into(), &2.into())
    );
    ffmpeg.line();
}
