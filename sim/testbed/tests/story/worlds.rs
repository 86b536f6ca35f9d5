//! The world of a segment directory: it exists while a process has it open, and the last one removes it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gpushare_testbed::{Testbed, Watched, artifact, cc, eventually};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the command of a scripted workload in the world of the testbed's directory.
fn command(bed: &Testbed) -> Command {
    let mut command = bed.sim_only(artifact("gpushare-workload"));
    command.arg("--script").env_remove("GPUSHARE_SIM_WORLD");
    command
}

fn start(bed: &Testbed) -> Watched {
    let mut puppet = Watched::spawn(&mut command(bed));
    assert_eq!(
        puppet.line(),
        format!("ready {}", puppet.pid()),
        "{}",
        puppet.stderr()
    );
    puppet
}

fn end(puppet: Watched) {
    let output = puppet.wait_output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mapped {
    /// The path in `/proc`: the kernel appends `(deleted)` to a removed file.
    path: PathBuf,
    inode: u64,
}

/// Returns the world's memory and its lock file, as mapped by a process.
fn world_of(puppet: &Watched) -> BTreeSet<Mapped> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", puppet.pid())).expect("it lives");
    maps.lines()
        .filter_map(|line| {
            let path = &line[line.find("/dev/shm/gpushare-sim-")?..];
            let inode = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
            Some(Mapped {
                path: path.into(),
                inode,
            })
        })
        .collect()
}

/// Panics unless the mapped files are the ones that the names lead to.
fn check_is_named(world: &BTreeSet<Mapped>, when: &str) {
    assert_eq!(world.len(), 2, "memory and lock, {when}: {world:?}");
    for file in world {
        let named = fs::metadata(&file.path).map(|found| found.ino());
        let inode = named.unwrap_or_else(|error| panic!("lost {when}: {world:?}: {error}"));
        assert_eq!(inode, file.inode, "another took the name {when}: {world:?}");
    }
}

fn is_gone(world: &BTreeSet<Mapped>) -> bool {
    world.iter().all(|file| !file.path.exists())
}

#[test]
fn the_last_one_out_removes_the_world() {
    let bed = Testbed::new();
    let (one, other) = (start(&bed), start(&bed));
    let world = world_of(&one);
    assert_eq!(world, world_of(&other), "they share it");
    end(one);
    check_is_named(&world, "while the other is there");
    end(other);
    assert!(is_gone(&world), "{world:?}");
}

#[test]
fn a_process_removes_its_world_whichever_library_it_opened_last() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/story/both_libraries.c");
    let program = cc(&source, "both_libraries", &["-w", "-ldl"]);
    for order in [["cuda", "nvml"].as_slice(), &["nvml", "cuda"], &["nvml"]] {
        let bed = Testbed::new();
        let mut command = bed.sim_only(&program);
        command.args(order).env_remove("GPUSHARE_SIM_WORLD");
        let mut program = Watched::spawn(&mut command);
        assert_eq!(program.line(), "ready 0", "{order:?}");
        let world = world_of(&program);
        check_is_named(&world, "while the process is there");
        end(program);
        assert!(is_gone(&world), "{order:?}: {world:?}");
    }
}

#[test]
fn what_a_killed_process_leaves_is_removed_by_the_next_start_anywhere() {
    let (bed, elsewhere) = (Testbed::new(), Testbed::new());
    let puppet = start(&bed);
    let world = world_of(&puppet);
    check_is_named(&world, "before it is killed");
    puppet.signal(Signal::KILL);
    eventually("it is dead", PATIENCE, || puppet.ended());
    let next = start(&elsewhere);
    let new = world_of(&next);
    assert!(is_gone(&world), "{world:?}");
    check_is_named(&new, "beside one that was removed");
    end(next);
    assert!(is_gone(&new), "{new:?}");
}

#[test]
fn a_killed_process_leaves_a_world_that_the_next_one_of_its_directory_takes_and_ends() {
    let bed = Testbed::new();
    let puppet = start(&bed);
    let left = world_of(&puppet);
    puppet.signal(Signal::KILL);
    eventually("it is dead", PATIENCE, || puppet.ended());
    let next = start(&bed);
    let world = world_of(&next);
    check_is_named(&world, "after the death of its maker");
    end(next);
    assert!(is_gone(&world) && is_gone(&left), "{world:?} {left:?}");
}

#[test]
fn a_start_that_races_with_the_last_exit_never_loses_its_world() {
    const AT_ONCE: usize = 3;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/story/comes_and_goes.c");
    let program = cc(&source, "comes_and_goes", &["-w", "-ldl"]);
    let bed = Testbed::new();
    let start = || {
        let mut command = bed.sim_only(&program);
        command.arg("500").env_remove("GPUSHARE_SIM_WORLD");
        Watched::spawn_for(&mut command, PATIENCE * 4)
    };
    let racers: Vec<_> = (0..AT_ONCE).map(|_| start()).collect();
    for racer in racers {
        let output = racer.wait_output();
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        let worlds = said.trim().strip_prefix("lost 0 worlds ");
        let worlds: Option<u32> = worlds.and_then(|worlds| worlds.parse().ok());
        assert!(
            worlds.is_some_and(|worlds| worlds > 1),
            "{said}{complained}: no world is lost, and some exits are the last"
        );
    }
}
