//! Other tools in a managed process: a leak checker, and a library that changes the clock.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gpushare_testbed::{Need, Testbed, Watched, artifact, cc, needs};

#[test]
fn a_leak_checker_finds_no_leak_of_the_simulator_or_of_the_library() {
    let output = Command::new("cc")
        .arg("-print-file-name=libasan.so")
        .output()
        .expect("the C compiler");
    let sanitizer = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !needs(Need::Works("libasan", sanitizer.is_absolute())) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/story/leaks.c");
    let program = cc(&source, "leaks", &["-w", "-fsanitize=address"]);
    let bed = Testbed::new();
    for mut command in [bed.sim_only(&program), bed.preloaded(&program)] {
        // The sanitizer must be loaded first, but the preload library is loaded before it.
        command.env("ASAN_OPTIONS", "verify_asan_link_order=0");
        let (printed, said) = Watched::spawn(&mut command).succeed();
        assert_eq!(printed, "answer 0 0\n", "{command:?}: {said}");
    }
}

/// Starts a scripted workload whose libc returns another time.
fn elsewhen(bed: &Testbed, preload: &str, time: &str) -> Watched {
    let mut command = bed.workload(&["--script"]);
    command
        .env("LD_PRELOAD", preload)
        .env("GPUSHARE_POLICY", "timeslice=5ms")
        .env("FAKETIME", time);
    ready(command)
}

fn ready(mut command: Command) -> Watched {
    let mut puppet = Watched::spawn(&mut command);
    assert_eq!(puppet.line(), format!("ready {}", puppet.pid()));
    puppet
}

#[test]
fn a_process_whose_libc_tells_another_time_stops_nobody() {
    const ROUNDS: u32 = 8;
    let places = ["x86_64", "aarch64"]
        .map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1"));
    let faketime = places.iter().find(|place| Path::new(place).exists());
    needs(Need::Works("faketime", faketime.is_some()));
    let Some(faketime) = faketime else { return };
    let ours = artifact("libgpushare.so");
    let ours = ours.display();
    let orders = [format!("{ours}:{faketime}"), format!("{faketime}:{ours}")];
    // A clock that stands still, one that is late and slow, and one that is far ahead.
    for (order, time) in [
        (&orders[0], "2020-01-01 00:00:00"),
        (&orders[1], "2020-01-01 00:00:00"),
        (&orders[0], "-10d x0.01"),
        (&orders[1], "+400d"),
    ] {
        let bed = Testbed::with_scenario("one-gpu");
        let mut other = elsewhen(&bed, order, time);
        let mut command = bed.workload(&["--script"]);
        let mut plain = ready({
            command.env("GPUSHARE_POLICY", "timeslice=5ms");
            command
        });
        let began = Instant::now();
        for _ in 0..ROUNDS {
            for puppet in [&mut other, &mut plain] {
                for command in ["launch 2000", "sync"] {
                    let answer = puppet.ask(command);
                    assert!(answer.starts_with("ok"), "{order} {time}: {answer}");
                }
            }
        }
        // Each round is two kernels of 2 ms and two hand-offs. A hand-off that is late by a second fails this check.
        let took = began.elapsed();
        assert!(
            took < Duration::from_millis(900) * ROUNDS,
            "{order} {time}: {took:?}"
        );
    }
}

#[test]
fn a_program_under_valgrind_ends_when_its_work_is_done() {
    if !needs(Need::Tool("valgrind")) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/story/works_a_little.c");
    let program = cc(&source, "works_a_little", &["-w", "-ldl"]);
    let bed = Testbed::new();
    let mut command = bed.sim_only("valgrind");
    // At its end the sanitizer looks for leaks in all memory that the program can read.
    let output = Watched::spawn(command.arg(&program)).wait_output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(output.stdout, b"3\n");
    assert!(said.contains("LEAK SUMMARY"), "{said}");
}
