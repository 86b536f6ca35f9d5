//! ffmpeg from the package imageio-ffmpeg, with its CUDA filters on the simulator.

use std::path::PathBuf;
use std::process::Command;

use gpushare_testbed::{Watched, python};

use crate::each_way::each_way;

const CLIP: &str = "testsrc2=size=320x240:rate=10:duration=2";

fn ffmpeg() -> Option<PathBuf> {
    let python = python(&["imageio-ffmpeg==0.8.1"])?;
    let mut ask = Command::new(python);
    ask.args([
        "-c",
        "import imageio_ffmpeg as f; print(f.get_ffmpeg_exe())",
    ]);
    let (path, _) = Watched::spawn(&mut ask).succeed();
    Some(PathBuf::from(path.trim_end()))
}

/// Applies these filters to a generated clip and prints the frames' checksums.
fn checksums(command: &mut Command, filters: &str) {
    command
        .args(["-hide_banner", "-loglevel", "error", "-bitexact"])
        .args(["-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu"])
        .args(["-f", "lavfi", "-i", CLIP, "-vf", filters])
        .args(["-f", "framemd5", "-"]);
}

#[test]
fn frames_come_back_from_the_device_as_they_went() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let mut on_cpu = Command::new(&ffmpeg);
    on_cpu
        .args([
            "-hide_banner",
            "-loglevel",
            "error",
            "-bitexact",
            "-f",
            "lavfi",
            "-i",
            CLIP,
        ])
        .args(["-vf", "format=nv12", "-f", "framemd5", "-"]);
    let (expected, _) = Watched::spawn(&mut on_cpu).succeed();

    let run = each_way(&ffmpeg, |command| {
        checksums(command, "format=nv12,hwupload_cuda,hwdownload,format=nv12");
    });
    assert_eq!(frames(&run.printed), 20);
    assert_eq!(run.printed, expected);
}

#[test]
fn scaling_launches_kernels_for_each_frame() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let run = each_way(&ffmpeg, |command| {
        let filters = "format=nv12,hwupload_cuda,scale_cuda=160:120,hwdownload,format=nv12";
        checksums(command, filters);
    });
    assert_eq!(frames(&run.printed), 20);
    // The same number of kernels for each of 20 frames.
    assert!(run.kernels > 0 && run.kernels % 20 == 0, "{}", run.kernels);
}

fn frames(checksums: &str) -> usize {
    checksums
        .lines()
        .filter(|line| !line.starts_with('#'))
        .count()
}
