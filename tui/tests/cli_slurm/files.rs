//! `gpushare slurm install` and `check`: `check` accepts the files that `install` writes.

use std::fs;

use crate::cli_support::{Run as _, World};

#[test]
fn what_install_writes_check_accepts_and_says_what_else_is_missing() {
    let world = World::new();
    let conf = tempfile::tempdir().expect("a temporary directory");
    let at = conf.path().to_str().expect("plain");
    let gpushare = |words: &[&str]| {
        let mut command = world.command(words);
        command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        command.said()
    };
    gpushare_testbed::artifact("libgpushare_spank.so");
    let said = gpushare(&["slurm", "check", "--conf", at]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("slurm.conf cannot be read"), "{said:?}");

    fs::write(conf.path().join("slurm.conf"), "GresTypes=gpu,shard\n").expect("ours");
    let said = gpushare(&["slurm", "check", "--conf", at]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("so jobs have no limits"), "{said:?}");

    let said = gpushare(&["slurm", "install", "--shards", "4", "--write", at]).done();
    assert!(
        said.out.contains("Name=shard Count=4 File=/dev/nvidia0"),
        "{said:?}"
    );
    fs::write(
        conf.path().join("plugstack.conf"),
        "include plugstack.conf.d/*\n",
    )
    .expect("ours");
    let said = gpushare(&["slurm", "check", "--conf", at]).done();
    assert!(said.out.contains("ok   hook"), "{said:?}");
    let absolute = format!("  include {at}/plugstack.conf.d/gpu*re.conf");
    for (line, code) in [
        ("Include\tplugstack.conf.d/*.conf  # all", 0),
        (absolute.as_str(), 0),
        ("include plugstack.conf.d/gpushare.conf", 0),
        ("include plugstack.conf.d/*.off", 1),
        ("include plugstack.conf.d/gpushare.conf*.conf", 1),
    ] {
        fs::write(conf.path().join("plugstack.conf"), format!("{line}\n")).expect("ours");
        let said = gpushare(&["slurm", "check", "--conf", at]);
        assert_eq!(said.code, code, "{line}: {said:?}");
    }

    let prolog = format!("TaskProlog={at}/gpushare-task-prolog\nEpilog={at}/gpushare-epilog\n");
    fs::write(conf.path().join("plugstack.conf"), "").expect("ours");
    fs::write(conf.path().join("slurm.conf"), prolog).expect("ours");
    let said = gpushare(&["slurm", "check", "--conf", at]).done();
    assert!(said.out.contains("ok   hook"), "{said:?}");
    assert!(said.out.contains("GresTypes has no shard"), "{said:?}");
    let said = gpushare(&["slurm", "install", "--shard", "25%"]);
    said.refused(2, &["--shard: \"25%\" is no part of a GPU"]);
}
