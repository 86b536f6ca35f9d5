//! The broker's promises on a machine with several users. The tests use real users.

mod attention;
mod claims;
#[path = "../cli_support/mod.rs"]
mod cli_support;
mod containers;
mod death;
mod descriptors;
mod devices;
mod edits;
mod hostile;
mod identity;
mod metrics;
mod room;
mod rules;
mod simulated;
mod support;
mod switch;
mod traces;
mod turns;
mod unit;
mod upgrade;

/// Plays a role: a child is this test program in another process, as another user.
#[test]
fn plays_a_role() {
    let Some(words) = support::role() else { return };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["tenant", label] => support::tenant(label, None),
        ["tenant", label, group] => support::tenant(label, Some(group)),
        ["dies", at] => death::dies(at),
        ["renamer"] => hostile::renamer(),
        ["spoiler"] => turns::spoiler(),
        ["crowder"] => room::crowder(),
        ["vandal"] => hostile::vandal(),
        ["locker"] => hostile::locker(),
        ["scribbler", seconds] => hostile::scribbler(seconds.parse().expect("a number")),
        ["eraser"] => hostile::eraser(),
        ["liar"] => hostile::liar(),
        ["mugger"] => hostile::mugger(),
        ["claimer"] => hostile::claimer(),
        ["filler", how, ..] => devices::filler(how == "once"),
        ["raiser"] => hostile::raiser(),
        ["asker"] => hostile::asker(None),
        ["asker", group] => hostile::asker(Some(group)),
        ["namer", first] => devices::namer(first.parse().expect("a number")),
        ["meddler"] => hostile::meddler(),
        ["undoer", generation] => edits::undoer(generation.parse().expect("a number")),
        ["pesterer", times] => edits::pesterer(times.parse().expect("a number")),
        ["pulser", slot] => turns::pulser(slot.parse().expect("a number")),
        ["thief", how] => turns::thief(how),
        ["forger"] => hostile::forger(),
        ["flooder"] => hostile::flooder(),
        ["deaf"] => hostile::deaf(),
        ["hoarder", slots] => attention::hoarder(slots.parse().expect("a number")),
        ["marker"] => attention::marker(),
        ["newcomer"] => attention::newcomer(),
        ["changer"] => attention::changer(),
        ["piper"] => attention::piper(),
        ["environment"] => support::environment(),
        ["upgrade"] => {
            use shm_layout::{socket::Connection, wire};
            let connection = Connection::to(&support::dir()).expect("it serves");
            let refused = connection
                .ask(&wire::Message::new(wire::Verb::Upgrade))
                .err();
            support::say(refused.map_or("granted".to_owned(), |error| error.to_string()));
        }
        ref other => panic!("there is no role {other:?}"),
    }
}
