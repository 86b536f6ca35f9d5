//! The death of a broker while the memory of one process leaves a full device and that of another returns.

use gpushare_testbed::{Testbed, Watched, cc};

use crate::support::*;

/// A card whose link moves the memory of a server in a second and a half.
const CARD: &str = "[[device]]\nmemory = \"64MiB\"\n[link]\nout = \"32MiB\"\nback = \"32MiB\"";
const PARTS: u64 = 12;
const PART: u64 = 4 << 20;

/// A server with 48 MiB in twelve parts, filled with a number.
struct Server {
    program: Watched,
    name: &'static str,
    number: u64,
}

impl Server {
    fn start(machine: &Machine, bed: &Testbed, name: &'static str, number: u64) -> Self {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../shim/tests/apps/memory.c");
        let program = cc(source.as_ref(), "memory", &["-ldl", "-pthread"]);
        let mut command = bed.preloaded(program);
        command.env("GPUSHARE_DIR", machine.dir()).envs([
            ("GPUSHARE_NAME", name),
            ("GPUSHARE_SWAPPABLE", "1"),
            ("GPUSHARE_ON_FULL", "wait"),
        ]);
        let mut server = Self {
            program: Watched::spawn(&mut command),
            name,
            number,
        };
        server.ok("init");
        server.ok("device 0");
        for part in 0..PARTS {
            server.ok(&format!("alloc a{part} {PART}"));
            server.ok(&format!("write a{part} {number} {}", PART / 4));
        }
        server.ok("synchronize");
        server
    }

    fn ok(&mut self, command: &str) -> String {
        let answer = self.program.ask(command);
        assert!(
            answer.starts_with('0'),
            "{}: {command}: {answer}",
            self.name
        );
        answer
    }

    fn has_all(&mut self) {
        for part in 0..PARTS {
            let words = PART / 4;
            let answer = self.ok(&format!("count a{part} {} {words}", self.number));
            assert_eq!(answer, format!("0 {words}"), "{}: a{part}", self.name);
        }
    }

    /// Returns the parts that are on the card.
    fn parts(&self, machine: &Machine) -> u64 {
        let used = &machine.process(self.name)["devices"][0]["used_bytes"];
        used.as_u64().expect("a number") / PART
    }
}

#[test]
fn a_switch_goes_on_to_its_end_wherever_the_broker_dies() {
    for parts in [0, 4, PARTS - 1] {
        let Some(mut machine) = Machine::new() else {
            return;
        };
        let bed_file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(bed_file.path(), CARD).expect("ours");
        let bed = Testbed::with_scenario(bed_file.path().to_str().expect("UTF-8"));
        machine
            .run(0, &["policy", "set", "all", "overcommit=on"])
            .done();
        let mut first = Server::start(&machine, &bed, "first", 1);
        let mut second = Server::start(&machine, &bed, "second", 2);
        eventually("the first has left", PATIENCE, || {
            first.parts(&machine) == 0
        });
        first.program.say("synchronize");
        eventually("it has come so far", PATIENCE, || {
            second.parts(&machine) < PARTS && first.parts(&machine) >= parts
        });
        machine.kill_broker();
        assert_eq!(first.program.line(), "0", "at {parts}");
        first.has_all();
        // The way back needs no broker either.
        second.has_all();
        let line = machine.serve(&[]);
        assert!(line.contains("found the memory"), "{line}");
        first.has_all();
        eventually("all of the first is on the card", PATIENCE, || {
            first.parts(&machine) == PARTS && second.parts(&machine) < PARTS
        });
    }
}
