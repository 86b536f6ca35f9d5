//! Programs that join: the daemon that they find, and the options that MPS fixes at their start.

use crate::support::Mps;

#[test]
fn a_program_joins_and_its_priority_becomes_that_of_mps() {
    let mps = Mps::new();
    assert_eq!(
        mps.finds(&["--priority=5"], &[]),
        "- - -",
        "it does not run"
    );
    mps.gpushare(&["mps", "start"]).done();
    let pipe = mps.pipe().display().to_string();
    for (options, priority, percentage) in [
        (&[][..], "1", "-"),
        (&["--priority=0"][..], "1", "-"),
        (&["--priority=-5"][..], "1", "-"),
        (&["--priority=1"][..], "0", "-"),
        (&["--priority=5", "--mps-threads=30%"][..], "0", "30"),
    ] {
        let found = mps.finds(options, &[]);
        assert_eq!(
            found,
            format!("{pipe} {priority} {percentage}"),
            "{options:?}"
        );
    }
    let found = mps.finds(&[], &[("GPUSHARE_PRIORITY", "3")]);
    assert_eq!(
        found,
        format!("{pipe} 0 -"),
        "what is inherited counts as what is typed"
    );
    assert_eq!(mps.finds(&["--no-mps", "--priority=5"], &[]), "- - -");
    mps.gpushare(&["mps", "stop"]).done();
    assert_eq!(
        mps.finds(&["--priority=5"], &[]),
        "- - -",
        "it no longer runs"
    );
}

#[test]
fn what_the_user_set_for_mps_stays() {
    let mps = Mps::started();
    let pipe = mps.pipe().display().to_string();
    let options = ["--priority=5"];
    let own = [
        ("CUDA_MPS_CLIENT_PRIORITY", "1"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "70"),
    ];
    assert_eq!(mps.finds(&options, &own), format!("{pipe} 1 70"));
    let other = [("CUDA_MPS_PIPE_DIRECTORY", "/tmp/other")];
    assert_eq!(mps.finds(&options, &other), "/tmp/other - -");
    assert_eq!(mps.finds(&["--no-mps"], &other), "/tmp/other - -");
}

#[test]
fn a_program_inside_another_run_is_joined_by_its_own_options() {
    let mps = Mps::started();
    let pipe = mps.pipe().display().to_string();
    let gpushare = env!("CARGO_BIN_EXE_gpushare");
    let inside = |outer: &[&str], inner: &[&str]| {
        let inner = [&["--", gpushare, "run"], inner].concat();
        mps.finds(&[outer, &inner].concat(), &[])
    };
    assert_eq!(
        inside(&["--mps-threads=30%"], &["--priority=5"]),
        format!("{pipe} 0 30")
    );
    assert_eq!(
        inside(&["--priority=5"], &["--mps-threads=20%"]),
        format!("{pipe} 0 20")
    );
    assert_eq!(inside(&["--mps-threads=30%"], &["--no-mps"]), "- - -");
}

#[test]
fn a_cap_is_left_to_the_library_because_it_can_change_while_the_program_runs() {
    let mps = Mps::started();
    let pipe = mps.pipe().display().to_string();
    assert_eq!(mps.finds(&["--cap=30%"], &[]), format!("{pipe} 1 -"));
    let inherited = [("CUDA_DEVICE_SM_LIMIT", "40")];
    assert_eq!(mps.finds(&[], &inherited), format!("{pipe} 1 -"));
    let both = ["--cap=30%", "--mps-threads=50%"];
    assert_eq!(mps.finds(&both, &[]), format!("{pipe} 1 50"));
}

#[test]
fn a_share_of_the_sms_is_refused_where_no_mps_would_hold_it() {
    let mps = Mps::new();
    let start = |options: &[&str]| mps.starts(options);
    start(&["--mps-threads=50%"]).refused(1, &["--mps-threads needs MPS", "gpushare mps start"]);
    let anyhow = start(&["--mps-threads=50%", "--best-effort"]).done();
    assert_eq!(anyhow.out, "started\n");
    assert!(anyhow.err.contains("--mps-threads needs MPS"), "{anyhow:?}");
    mps.gpushare(&["mps", "start"]).done();
    start(&["--mps-threads=50%"]).done();
    start(&["--mps-threads=0%"]).refused(2, &["--mps-threads"]);
    assert_eq!(start(&["--mps-threads=50%", "--no-mps"]).code, 2);
    let other = [("CUDA_MPS_PIPE_DIRECTORY", "/tmp/other")];
    let found = mps.finds(&["--mps-threads=50%"], &other);
    assert_eq!(found, "/tmp/other - 50", "the daemon that the user named");
}

#[test]
fn a_daemon_that_turns_a_question_away_is_asked_again() {
    let mps = Mps::started();
    let pipe = mps.pipe().display().to_string();
    mps.puts("busy", "");
    assert_eq!(mps.finds(&[], &[]), format!("{pipe} 1 -"));
}

#[test]
fn a_program_that_is_to_join_is_not_started_where_it_cannot() {
    let mps = Mps::new();
    let start = |options: &[&str]| mps.starts(options);
    start(&["--mps"]).refused(1, &["--mps needs MPS", "gpushare mps start"]);
    assert_eq!(start(&["--mps", "--no-mps"]).code, 2);
    let anyhow = start(&["--mps", "--best-effort"]).done();
    assert!(anyhow.err.contains("--mps needs MPS"), "{anyhow:?}");
    mps.gpushare(&["mps", "start"]).done();
    assert_eq!(start(&["--mps"]).done().out, "started\n");
}

#[test]
fn programs_that_start_together_all_join() {
    let mps = Mps::started();
    let pipe = mps.pipe().display().to_string();
    mps.puts("slow", "");
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| mps.finds(&["--mps"], &[])))
            .collect();
        for start in starts {
            assert_eq!(start.join().expect("it ended"), format!("{pipe} 1 -"));
        }
    });
}
