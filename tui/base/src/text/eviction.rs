//! Sentences about the place of a process's memory.

use shm_layout::{Phase, Residence, Why};

use super::units::{short_size, short_time};

/// Returns the sentence for an event about it.
pub fn event(phase: Phase, why: Option<Why>, code: u16, took_ms: u32, bytes: u64) -> String {
    let size = short_size(bytes);
    let took = short_time(u64::from(took_ms) * 1_000_000);
    match (phase, why) {
        (Phase::Resident, Some(why)) => refusal(why, code),
        (Phase::Resident, None) => format!("{size} are back after {took}"),
        (Phase::Evicting, _) => format!("{size} leave the device"),
        (Phase::Evicted, _) => format!("{size} left the device in {took}"),
        (Phase::Returning, _) => format!("wants its {size} back after {took}, and waits for room"),
        (Phase::Restoring, _) => format!("{size} come back"),
        (Phase::Lost, why) => lost(why, code, bytes),
    }
}

/// Returns the reason why the memory is not evicted.
pub fn refusal(why: Why, code: u16) -> String {
    format!("not evicted: {}{}", why.sentence(), driver(code))
}

/// Returns the amount of lost memory, with the reason.
pub fn lost(why: Option<Why>, code: u16, bytes: u64) -> String {
    let why = why.map_or("its memory is lost", Why::sentence);
    format!("{} of it: {why}{}", short_size(bytes), driver(code))
}

fn driver(code: u16) -> String {
    match code {
        0 => String::new(),
        code => format!(" (driver error {code})"),
    }
}

/// Returns one line on the state of the eviction: `evicting 12G, 40 %`. Returns `None` if the memory is on the device and
/// nothing failed.
pub fn line(residence: &Residence, bytes: u64, now_ns: u64) -> Option<String> {
    let word = match (residence.phase, residence.why) {
        (Phase::Resident, why) => return why.map(|why| refusal(why, residence.code)),
        (Phase::Lost, why) => return Some(lost(why, residence.code, bytes)),
        (phase, _) => phase.word()?,
    };
    let size = short_size(bytes);
    let since = short_time(now_ns.saturating_sub(residence.since_ns));
    Some(match (residence.progress(now_ns), residence.phase) {
        (Some(percent), _) => format!(
            "{word} {size}, {percent} % of about {}",
            short_time(residence.expected_ns)
        ),
        (None, Phase::Evicted) => format!(
            "{word} for {since}: {size}, which take {} of the host{}{}",
            short_size(residence.host_bytes),
            match residence.is_in_part {
                true => "; the rest is on the GPU until room is lacking",
                false => "",
            },
            deepening(residence, now_ns)
        ),
        (None, Phase::Returning) => format!("{word} for {since}: waits for room for {size}"),
        (None, _) => format!("{word} {size}"),
    })
}

/// Returns what becomes of the context of a process on the host, as a clause behind a sentence; empty where it is not to leave.
fn deepening(residence: &Residence, now_ns: u64) -> String {
    let longer = short_time(residence.deep_ns);
    match (residence.deepens_in_ns(now_ns), residence.why) {
        (Some(left), None) => format!(
            "; its context leaves too in {}, and a request then takes about {longer} longer",
            short_time(left)
        ),
        (_, Some(why)) => format!(
            "; its context stays: {}{}",
            why.sentence(),
            driver(residence.code)
        ),
        (None, None) => String::new(),
    }
}

/// Returns where the memory is in a word or two: `card`, `leaving 40%`, `part` (on the host as far as others lacked room), `host`, `deep`
/// (on the host by the driver's checkpoint, contexts and modules too), `waits` (for room to come back), `coming 62%` or `lost`.
pub fn place(residence: &Residence, now_ns: u64) -> String {
    let word = match residence.phase {
        Phase::Resident => "card",
        Phase::Evicting => "leaving",
        Phase::Evicted if residence.is_checkpoint => "deep",
        Phase::Evicted if residence.is_in_part => "part",
        Phase::Evicted => "host",
        Phase::Returning => "waits",
        Phase::Restoring => "coming",
        Phase::Lost => "lost",
    };
    match residence.progress(now_ns) {
        Some(percent) => format!("{word} {percent}%"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_moves_is_placed_with_its_progress() {
        let mut residence = Residence {
            since_ns: 100,
            expected_ns: 1000,
            ..Residence::default()
        };
        assert_eq!(place(&residence, 600), "card");
        residence.phase = Phase::Restoring;
        assert_eq!(place(&residence, 600), "coming 50%");
        residence.phase = Phase::Evicted;
        assert_eq!(place(&residence, 600), "host");
        residence.is_in_part = true;
        assert_eq!(place(&residence, 600), "part");
        residence.is_checkpoint = true;
        assert_eq!(place(&residence, 600), "deep");
    }

    #[test]
    fn each_place_is_told_in_a_line() {
        let second = 1_000_000_000;
        let at = |phase| Residence {
            phase,
            since_ns: 10 * second,
            host_bytes: 3 << 30,
            ..Residence::default()
        };
        let told = |residence| line(&residence, 2 << 30, 20 * second);
        assert_eq!(told(at(Phase::Resident)), None);
        let mut going = at(Phase::Evicting);
        going.expected_ns = 40 * second;
        assert_eq!(
            told(going).as_deref(),
            Some("evicting 2.0G, 25 % of about 40.0s")
        );
        assert_eq!(
            told(at(Phase::Evicted)).as_deref(),
            Some("evicted for 10.0s: 2.0G, which take 3.0G of the host")
        );
        let mut in_part = at(Phase::Evicted);
        in_part.is_in_part = true;
        assert!(told(in_part).is_some_and(|told| told.ends_with(
            "which take 3.0G of the host; the rest is on the GPU until room is lacking"
        )));
        let mut deepening = at(Phase::Evicted);
        (deepening.deep_at_ns, deepening.deep_ns) = (260 * second, second / 2);
        assert_eq!(
            told(deepening).as_deref(),
            Some(
                "evicted for 10.0s: 2.0G, which take 3.0G of the host; its context leaves too in 4m00s, and a request then takes about \
                 500ms longer"
            )
        );
        deepening.why = Some(Why::Managed);
        assert!(told(deepening).is_some_and(|told| told.ends_with(
            "of the host; its context stays: it has managed memory, which the driver does not evict"
        )));
        let mut refused = at(Phase::Resident);
        refused.why = Some(Why::Managed);
        assert_eq!(
            told(refused).as_deref(),
            Some("not evicted: it has managed memory, which the driver does not evict")
        );
        let mut gone = at(Phase::Lost);
        (gone.why, gone.code) = (Some(Why::RestoreFailed), 2);
        let gone = told(gone).expect("said");
        assert!(
            gone.contains("2.0G") && gone.ends_with("(driver error 2)"),
            "{gone}"
        );
    }
}
