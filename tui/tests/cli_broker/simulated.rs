//! The simulated GPU under a broker: its own files belong to the user.

use crate::support::*;

/// A user whose own directory no other test uses.
const VISITOR: u32 = 61_306;

#[test]
fn a_user_of_a_broker_runs_the_simulator_out_of_a_directory_of_their_own() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for name in ["libgpushare.so", "libcuda.so", "libnvidia_ml.so"] {
        machine.bring(name, name);
    }
    let own = Own::of(VISITOR);
    let words = ["run", "--sim", "--", "printenv", "LD_LIBRARY_PATH"];
    let run = machine.run(VISITOR, &words).done();
    let folder = own.0.join("machine/sim-lib");
    assert_eq!(run.out.trim(), folder.display().to_string());

    let finds_it = |value: &str| {
        let mut pick = machine.command(VISITOR, &["pick", "--explain"]);
        said(pick.env("GPUSHARE_SIM", value))
            .err
            .contains("Simulated GPU")
    };
    assert!(!finds_it("0"), "the machine's GPUs are meant");
    assert!(finds_it("1"), "it was asked for");
}
