//! Attacks by another user of the machine: objects that this user puts into our path are refused, and no process waits for that
//! user.

mod common;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

use common::*;
use shm_layout::{ShareEdit, trace, *};

const STRANGER: u32 = 61_234;

/// Opens the directory in every possible way.
fn openings(dir: &Path) -> [Option<OpenError>; 3] {
    [
        Segments::open_workload(dir).err(),
        Segments::open_viewer(dir).err(),
        shm_layout::Operator::open(dir).err(),
    ]
}

fn all_refuse(dir: &Path, what: &str, is_it: impl Fn(&OpenError) -> bool) {
    for error in openings(dir) {
        let error = error.unwrap_or_else(|| panic!("{what}: it was opened"));
        assert!(is_it(&error), "{what}: {error}");
    }
}

fn is_unsafe(error: &OpenError) -> bool {
    matches!(error, OpenError::Unsafe { .. })
}

/// Returns the result of `act`, which must not wait for another process.
fn without_waiting<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, done) = mpsc::channel();
    std::thread::spawn(move || send.send(act()));
    done.recv_timeout(Duration::from_secs(30))
        .expect("it waits for a process that may never come")
}

fn make_pipe(path: &Path) {
    let bits = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, bits, 0)
        .expect("a pipe");
}

#[test]
fn root_refuses_a_directory_that_somebody_else_made_first() {
    if !may_be_others() {
        return;
    }
    for bits in [0o700, 0o755, 0o777] {
        let dir = Dir::new();
        chown(dir.path(), Some(STRANGER), Some(STRANGER)).expect("given away");
        fs::set_permissions(dir.path(), Permissions::from_mode(bits)).expect("set");
        all_refuse(dir.path(), "a stranger's directory", |error| {
            matches!(
                error,
                OpenError::WrongOwner {
                    owner: STRANGER,
                    want: 0,
                    ..
                }
            )
        });
        let left = fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(left, 0, "nothing was made in it");
        chown(dir.path(), Some(0), Some(0)).expect("taken back");
    }
}

#[test]
fn a_link_in_the_place_of_the_directory_is_not_followed() {
    let (dir, around) = (Dir::new(), Dir::new());
    drop(dir.open());
    let link = around.path().join("link");
    symlink(dir.path(), &link).expect("linked");
    let ways = [link.clone(), link.join(""), link.join("."), link.join("./")];
    for way in &ways {
        all_refuse(way, "our own link", is_unsafe);
    }
    // A link before the last component is the caller's own choice.
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).expect("made");
    assert!(openings(&link.join("inner")).iter().all(Option::is_none));
    if may_be_others() {
        std::os::unix::fs::lchown(&link, Some(STRANGER), None).expect("given away");
        for way in &ways {
            all_refuse(way, "a stranger's link", |error| {
                matches!(
                    error,
                    OpenError::WrongOwner {
                        owner: STRANGER,
                        ..
                    }
                )
            });
        }
    }
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    for bits in [0o770, 0o707, 0o1777, 0o702] {
        let dir = Dir::new();
        fs::set_permissions(dir.path(), Permissions::from_mode(bits)).expect("set");
        all_refuse(dir.path(), &format!("{bits:o}"), is_unsafe);
    }
}

#[test]
fn what_is_no_file_of_ours_is_refused_in_the_place_of_either_segment() {
    for name in ["state", "control"] {
        let (dir, other) = (Dir::new(), Dir::new());
        drop((dir.open(), other.open()));
        let (here, there) = (dir.path().join(name), other.path().join(name));
        let inode = fs::metadata(&there).expect("there").ino();
        let again = |what: &str| {
            let path = dir.path().to_path_buf();
            without_waiting(move || {
                all_refuse(&path, "in its place", |error| {
                    is_unsafe(error)
                        || matches!(error, OpenError::Io { .. } | OpenError::WrongOwner { .. })
                })
            });
            if fs::remove_file(&here).is_err() {
                fs::remove_dir(&here).expect(what);
            }
        };
        fs::remove_file(&here).expect("ours");
        symlink(&there, &here).expect("linked");
        again("a link");
        fs::hard_link(&there, &here).expect("linked");
        again("a second name");
        make_pipe(&here);
        again("a pipe");
        fs::create_dir(&here).expect("made");
        again("a directory");
        std::os::unix::net::UnixListener::bind(&here).expect("bound");
        again("a socket");
        if may_be_others() {
            fs::copy(&there, &here).expect("copied");
            chown(&here, Some(STRANGER), None).expect("given away");
            again("a stranger's file");
        }
        assert_eq!(fs::metadata(&there).expect("untouched").ino(), inode);
    }
}

#[test]
fn a_pipe_put_in_the_place_of_a_segment_in_use_holds_up_neither_tools_nor_workloads() {
    let dir = Dir::new();
    let segments = dir.open();
    let (held, _) = process(&segments, "held");
    let operator = dir.operator();
    for name in ["state", "control"] {
        fs::rename(dir.path().join(name), dir.path().join("moved")).expect("ours");
        make_pipe(&dir.path().join(name));
    }
    let slot = held.slot();
    without_waiting(move || {
        assert_eq!(look(&segments).processes.len(), 1);
        reap(&segments, clock::now());
        assert!(register(&segments, &Identity::default(), &LaunchLimits::default()).is_err());
        let pause = Change::ProcessShare {
            slot,
            share: ShareEdit {
                paused: Set::To(true),
                ..ShareEdit::default()
            },
        };
        assert!(operator.edit(None, &pause, clock::now()).is_err());
    });
}

#[test]
fn a_planted_trace_is_neither_written_nor_waited_for() {
    let (dir, other) = (Dir::new(), Dir::new());
    let segments = dir.open();
    let (process, _) = process(&segments, "");
    let path = trace::path(dir.path(), process.slot());
    let guest = trace::Guest {
        calls: &[],
        devices: &[],
    };
    let victim = other.path().join("victim");
    fs::write(&victim, vec![0; trace::size(1000) as usize]).expect("ours");
    let refused = || {
        let (path, slot) = (dir.path().to_path_buf(), process.slot());
        without_waiting(move || trace::Buffer::adopt(&path, slot, guest).map(drop)).is_err()
    };
    symlink(&victim, &path).expect("linked");
    assert!(refused());
    fs::remove_file(&path).expect("ours");
    fs::hard_link(&victim, &path).expect("linked");
    assert!(refused());
    fs::remove_file(&path).expect("ours");
    make_pipe(&path);
    assert!(refused());
    assert!(
        fs::read(&victim)
            .expect("there")
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn the_files_of_a_log_are_ours_wherever_they_are() {
    let (dir, other) = (Dir::new(), Dir::new());
    let (log, victim) = (
        dir.path().join("timeline.log"),
        other.path().join("profile"),
    );
    fs::write(&victim, "precious").expect("ours");
    symlink(&victim, &log).expect("linked");
    assert!(trace::claim::append(&log).is_err());
    assert!(trace::claim::write(&log).is_err());
    assert!(trace::claim::Claim::of(&log).is_err());
    fs::remove_file(&log).expect("ours");
    fs::hard_link(&victim, &log).expect("linked");
    assert!(trace::claim::append(&log).is_err());
    fs::remove_file(&log).expect("ours");
    make_pipe(&log);
    assert!(without_waiting(move || trace::claim::append(&log).is_err()));
    assert_eq!(fs::read_to_string(&victim).expect("there"), "precious");
}

/// Returns the settings files that were set aside, by name.
fn aside(dir: &Dir) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.path()).expect("a directory").flatten();
    let paths = files.map(|file| file.path());
    paths
        .filter(|path| path.display().to_string().contains("control.set-aside-"))
        .collect()
}

fn pause_and_limit(dir: &Dir, slot: SlotId) {
    let operator = dir.operator();
    let pause = Change::ProcessShare {
        slot,
        share: ShareEdit {
            paused: Set::To(true),
            ..ShareEdit::default()
        },
    };
    let limit = Change::ProcessQuota {
        slot,
        device: None,
        value: QuotaValue::Bytes(MIB),
        until: None,
    };
    for change in [pause, limit] {
        operator.edit(None, &change, clock::now()).expect("edited");
    }
}

#[test]
fn old_edits_do_not_hit_a_process_in_new_segments() {
    let dir = Dir::new();
    let first = dir.open();
    let (old, entry) = process(&first, "old");
    assert!(first.set_aside().is_none());
    pause_and_limit(&dir, old.slot());
    fs::remove_file(dir.path().join("state")).expect("ours");

    let second = dir.open();
    let (new, new_entry) = process(&second, "new");
    assert_eq!(
        new.slot(),
        old.slot(),
        "the same slot and epoch, or this tests nothing"
    );
    assert_eq!(new.ledger(new_entry).quota().bytes, None);
    assert!(!look(&second).processes[0].share.paused);
    assert_eq!(aside(&dir), [second.set_aside().expect("it says so")]);
    assert!(dir.open().set_aside().is_none(), "once");
    // A process with the earlier pair of files continues with it and its settings.
    assert_eq!(old.ledger(entry).quota().bytes, Some(MIB));
    assert_eq!(look(&first).processes.len(), 1);
}

#[test]
fn of_the_settings_set_aside_the_last_few_are_kept() {
    let dir = Dir::new();
    fs::write(dir.path().join("control.set-aside-mine"), "not our name").expect("ours");
    let last: Vec<_> = (0..6)
        .filter_map(|_| {
            let found = dir.open().set_aside().map(Path::to_path_buf);
            fs::remove_file(dir.path().join("state")).expect("ours");
            found
        })
        .collect();
    assert_eq!(last.len(), 5);
    let kept = aside(&dir);
    assert_eq!(kept.len(), 4, "three of ours: {kept:?}");
    assert!(kept.contains(&last[4]), "the last one");
}

#[test]
fn a_viewer_of_a_pair_that_does_not_match_changes_nothing() {
    let (dir, other) = (Dir::new(), Dir::new());
    drop((dir.open(), other.open()));
    fs::copy(other.path().join("control"), dir.path().join("control")).expect("copied");
    let refused = Segments::open_viewer(dir.path()).err().expect("refused");
    assert!(
        matches!(refused, OpenError::OtherInstance { .. }),
        "{refused}"
    );
    assert!(aside(&dir).is_empty());
    assert!(dir.operator().segments().set_aside().is_some());
}

#[test]
fn racing_openers_of_segments_without_a_state_meet_in_one_pair() {
    for _ in 0..10 {
        let dir = Dir::new();
        drop(dir.open());
        fs::remove_file(dir.path().join("state")).expect("ours");
        let path = dir.path().to_path_buf();
        let all: Vec<Segments> = std::thread::scope(|scope| {
            let openers: Vec<_> = (0..6)
                .map(|_| scope.spawn(|| Segments::open_workload(&path).expect("segments")))
                .collect();
            openers
                .into_iter()
                .map(|one| one.join().expect("no panic"))
                .collect()
        });
        assert_eq!(aside(&dir).len(), 1);
        let held: Vec<Registration> = all
            .iter()
            .map(|one| {
                register(one, &Identity::default(), &LaunchLimits::default()).expect("a slot")
            })
            .collect();
        assert_eq!(look(&dir.viewer()).processes.len(), held.len());
        for one in &held {
            pause_and_limit(&dir, one.slot());
        }
        let paused = |one: &Segments| {
            look(one)
                .processes
                .iter()
                .all(|process| process.share.paused)
        };
        assert!(all.iter().all(paused), "all have the same control");
    }
}

#[test]
fn who_holds_the_directory_locked_keeps_nobody_from_starting() {
    let dir = Dir::new();
    let lock = fs::File::open(dir.path()).expect("ours");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockShared).expect("free");
    drop(without_waiting({
        let path = dir.path().to_path_buf();
        move || Segments::open_workload(&path).expect("segments")
    }));
}
