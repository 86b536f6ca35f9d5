//! The two segment files: made once, checked at every opening, never trusted.

mod common;

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
};

use common::*;
use gpushare_testbed::{Need, needs};
use shm_layout::*;

fn refuse(dir: &Dir) -> OpenError {
    match Segments::open_workload(dir.path()) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

fn patch(dir: &Dir, file: &str, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new()
        .write(true)
        .open(dir.path().join(file))
        .expect("the file");
    file.write_all_at(bytes, at).expect("written");
}

#[test]
fn a_workload_makes_both_files_and_only_their_owner_may_look() {
    let dir = Dir::new();
    let _segments = dir.open();
    for file in ["state", "control"] {
        let meta = fs::metadata(dir.path().join(file)).expect("the file");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert!(
            meta.blocks() * 512 >= meta.len(),
            "every page is allocated: {file}"
        );
    }
    assert_eq!(
        fs::read_dir(dir.path()).expect("a directory").count(),
        2,
        "no scratch file is left"
    );
}

#[test]
fn a_viewer_creates_nothing() {
    let dir = Dir::new();
    assert!(matches!(
        Segments::open_viewer(dir.path()),
        Err(OpenError::Missing { .. })
    ));
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0);
}

#[test]
fn a_fresh_segment_changes_nothing() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "");
    assert_eq!(
        process.policy(entry),
        (LockPolicy::default(), Source::Default)
    );
    assert_eq!(process.policy(entry).0.kind, PolicyKind::Off);
    assert_eq!(
        process.ledger(entry).quota(),
        Quota {
            bytes: None,
            source: Source::Default
        }
    );
    assert_eq!(process.ledger(entry).room(), None);
    assert_eq!(
        process
            .ledger(entry)
            .reserve(u64::MAX / 2)
            .expect("unlimited")
            .commit(),
        u64::MAX / 2
    );
}

#[test]
fn racing_creators_end_up_with_one_segment() {
    for _ in 0..20 {
        let dir = Dir::new();
        let path = dir.path().to_path_buf();
        let slots: Vec<SlotId> = std::thread::scope(|scope| {
            let creators: Vec<_> = (0..6)
                .map(|_| scope.spawn(|| Segments::open_workload(&path).expect("segments")))
                .collect();
            let all: Vec<Segments> = creators
                .into_iter()
                .map(|one| one.join().expect("no panic"))
                .collect();
            let held: Vec<Registration> = all
                .iter()
                .map(|one| {
                    register(one, &Identity::default(), &LaunchLimits::default()).expect("a slot")
                })
                .collect();
            held.iter().map(Registration::slot).collect()
        });
        let distinct: std::collections::HashSet<_> = slots.iter().collect();
        assert_eq!(
            distinct.len(),
            slots.len(),
            "two processes got the same slot of what should be one segment"
        );
    }
}

#[test]
fn a_segment_of_another_version_is_refused_with_both_versions() {
    let dir = Dir::new();
    drop(dir.open());
    patch(&dir, "state", 8, &77u32.to_ne_bytes());
    let error = refuse(&dir);
    assert!(
        matches!(
            error,
            OpenError::WrongVersion {
                ours: ABI_VERSION,
                theirs: 77,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("version 77"), "{error}");
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    let dir = Dir::new();
    fs::write(
        dir.path().join("state"),
        "these are not the bytes you are looking for",
    )
    .expect("written");
    let error = refuse(&dir);
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(dir.path().join("state")).expect("there").len(), 43);
}

#[test]
fn a_truncated_segment_is_refused() {
    let dir = Dir::new();
    drop(dir.open());
    let file = OpenOptions::new()
        .write(true)
        .open(dir.path().join("state"))
        .expect("the file");
    for len in [0, 8, 40, 4096, 1 << 20] {
        file.set_len(len).expect("cut");
        let error = refuse(&dir);
        assert!(
            matches!(
                error,
                OpenError::Truncated { .. } | OpenError::Foreign { .. }
            ),
            "{len} bytes: {error}"
        );
    }
}

#[test]
fn an_unpublished_segment_is_not_ready() {
    let dir = Dir::new();
    drop(dir.open());
    patch(&dir, "control", 8, &0u32.to_ne_bytes());
    let error = Segments::open_viewer(dir.path()).err().expect("refused");
    assert!(matches!(error, OpenError::NotReady { .. }), "{error}");
}

#[test]
fn a_segment_of_an_earlier_boot_is_made_anew() {
    let dir = Dir::new();
    let first = dir.open();
    let (_process, _) = process(&first, "before the boot");
    patch(&dir, "state", 24, &[9; 16]);
    patch(&dir, "control", 24, &[9; 16]);
    assert!(matches!(
        Segments::open_viewer(dir.path()),
        Err(OpenError::StaleBoot { .. })
    ));
    let second = dir.open();
    assert!(look(&second).processes.is_empty());
    assert_eq!(
        fs::read_dir(dir.path()).expect("a directory").count(),
        2,
        "no scratch file is left"
    );
}

#[test]
fn a_link_to_elsewhere_is_not_followed() {
    let (dir, other) = (Dir::new(), Dir::new());
    drop(other.open());
    std::os::unix::fs::symlink(other.path().join("state"), dir.path().join("state"))
        .expect("linked");
    assert!(matches!(refuse(&dir), OpenError::Unsafe { .. }));
}

#[test]
fn a_directory_in_the_place_of_a_segment_is_refused() {
    let dir = Dir::new();
    fs::create_dir(dir.path().join("control")).expect("made");
    assert!(matches!(
        refuse(&dir),
        OpenError::Unsafe { .. } | OpenError::Io { .. }
    ));
}

#[test]
fn every_refusal_says_what_to_do() {
    let path = std::path::PathBuf::from("/dir/state");
    let all = [
        OpenError::Missing { path: path.clone() },
        OpenError::NotReady { path: path.clone() },
        OpenError::WrongVersion {
            path: path.clone(),
            ours: 1,
            theirs: 2,
        },
        OpenError::Foreign { path: path.clone() },
        OpenError::Truncated {
            path: path.clone(),
            len: 1,
            want: 2,
        },
        OpenError::WrongOwner {
            path: path.clone(),
            owner: 1,
            want: 2,
        },
        OpenError::StaleBoot { path: path.clone() },
        OpenError::OtherInstance { path: path.clone() },
        OpenError::Unsafe {
            path: path.clone(),
            why: "others may write it",
        },
        OpenError::NoSpace { path, want: 2 },
    ];
    for error in all {
        let text = error.to_string();
        assert!(
            text.contains("/dir/state") && text.contains(';') | text.contains(':'),
            "{text}"
        );
    }
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if let Some((_, dir)) = role() {
        say(&format!(
            "{}",
            Segments::open_workload(&dir).err().expect("refused")
        ));
        return;
    }
    let dir = Dir::new();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(12345), None).expect("given away");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("opened");
    }
    let Some(said) = as_user(NOBODY, "a_directory_of_another_user_is_refused", &dir) else {
        return;
    };
    assert!(
        said.contains("belongs to user 12345, not to user 65534"),
        "{said}"
    );
}

#[test]
fn a_full_file_system_is_an_error_and_not_a_signal() {
    if !needs(Need::Root) {
        return;
    }
    let dir = Dir::new();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "none"])
        .arg(dir.path())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        return;
    }
    let error = refuse(&dir);
    let _ = std::process::Command::new("umount")
        .arg(dir.path())
        .status();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
}

#[test]
fn the_layout_is_what_the_map_says() {
    let golden = include_str!("layout.txt");
    let actual = map();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layout.txt"),
            &actual,
        )
        .expect("written");
        return;
    }
    assert!(
        actual == golden,
        "the layout moved: bump ABI_VERSION and run with UPDATE_GOLDEN=1\n{actual}"
    );
}
