//! Check that the library can be preloaded into a program.

use super::{Finding, Patient};
use shm_layout::text::PathText as _;

use gpushare_base::host::elf::{self, Obstacle};
use gpushare_base::host::programs::find_program;

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
            format!("the library can be preloaded into {}", program.shown()),
        ));
    };
    let found = obstacle.sentence(&program);
    Some(match obstacle {
        Obstacle::Privileged => Finding::fail(
            "program",
            found,
            "gpushare run does not start it with a limit; a copy without these privileges can be preloaded",
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
        Obstacle::OtherMachine => {
            Finding::warn("program", found, "use a build for this machine's processor")
        }
    })
}
