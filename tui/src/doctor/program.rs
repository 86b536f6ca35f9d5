//! Will the library reach this program?

use super::{Finding, Patient};
use crate::host::elf::{self, Obstacle};
use crate::host::programs::find_program;

pub(super) fn check(patient: &Patient) -> Option<Finding> {
    let word = patient.program.as_ref()?;
    let program = match find_program(word) {
        Ok(program) => program,
        Err(failure) => {
            return Some(Finding::fail(
                "program",
                failure.sentence,
                "see the message; gpushare run would fail the same way",
            ));
        }
    };
    let Some(obstacle) = elf::obstacle(&program) else {
        return Some(Finding::ok(
            "program",
            format!("the preload reaches {}", program.display()),
        ));
    };
    let found = obstacle.sentence(&program);
    Some(match obstacle {
        Obstacle::Privileged => Finding::fail(
            "program",
            found,
            "with a limit gpushare run does not start it; a copy without those rights would be reached",
        ),
        Obstacle::Static => Finding::warn(
            "program",
            found,
            "if it uses the GPU itself, ask for a dynamically linked build",
        ),
        Obstacle::Musl => Finding::warn(
            "program",
            found,
            "if it uses the GPU itself, run it in a container with glibc",
        ),
        Obstacle::OtherMachine => Finding::warn(
            "program",
            found,
            "only programs of this machine's own kind use the GPU under gpushare",
        ),
    })
}
