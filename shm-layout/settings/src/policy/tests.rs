use super::*;
use crate::grammar::TextError;

fn read(text: &str) -> Result<LockPolicy, TextError> {
    parse_policy(&[text])?.apply(LockPolicy::default())
}

#[test]
fn a_policy_changes_only_what_it_says() {
    let policy = read("timeslice=5ms order=fifo").expect("well formed");
    assert_eq!(policy.kind, PolicyKind::Timeslice(5 * MS));
    assert_eq!(policy.order, Order::Fifo);
    assert_eq!(policy.grace_ns, LockPolicy::default().grace_ns);
    let words = parse_policy(&["launches=10", "sync-skips=3,idle=1s"]).expect("well formed");
    assert_eq!(
        (words.kind, words.sync_skips, words.idle_ns),
        (Some(PolicyKind::Launches(10)), Some(3), Some(Some(S)))
    );
}

#[test]
fn a_turn_includes_the_memory_only_if_it_is_long_enough_to_move_it() {
    let policy = read("timeslice=30s swap=on").expect("well formed");
    assert_eq!(policy.memory_turn(false, 0), Some(30 * S));
    assert_eq!(policy.to_string().parse(), Ok(policy));
    let then = |text: &str| parse_policy(&[text])?.apply(policy);
    assert_eq!(then("order=fifo").map(|policy| policy.swap), Ok(true));
    assert_eq!(then("timeslice=10s").map(|policy| policy.swap), Ok(true));
    assert_eq!(then("swap=off").map(|policy| policy.swap), Ok(false));
    assert_eq!(then("timeslice=5ms").map(|policy| policy.swap), Ok(false));
    assert_eq!(then("overlap").map(|policy| policy.swap), Ok(false));
    for text in ["swap=on", "overlap swap=on", "timeslice=5ms swap=on"] {
        let why = read(text).unwrap_err().to_string();
        assert!(why.contains("swap needs timeslice=1s or more"), "{why}");
    }
    let why = read("timeslice=2s swap=yes").unwrap_err().to_string();
    assert!(why.contains("swap=on, swap=off"), "{why}");
}

#[test]
fn the_turn_of_memory_is_what_is_set_or_long_enough_for_nine_tenths_of_the_time() {
    let turn = |text, overcommits, swap_ns| {
        let policy = read(text).expect(text);
        policy.memory_turn(overcommits, swap_ns)
    };
    assert_eq!(turn("timeslice=1s swap=on", false, 100 * MS), Some(S));
    assert_eq!(turn("timeslice=1s swap=on", false, 500 * MS), Some(5 * S));
    assert_eq!(
        turn("timeslice=1s swap=on turn=2s", false, 500 * MS),
        Some(2 * S)
    );
    assert_eq!(turn("off turn=2s", true, 500 * MS), Some(2 * S));
    assert_eq!(turn("off turn=2s", false, 500 * MS), None);
    assert_eq!(turn("off", true, 500 * MS), None);
}

#[test]
fn the_settings_of_evictions_are_read_written_and_recorded() {
    let policy = read("off evict-idle=2s stay=10m turn=100ms host-memory=1.5GiB deep-after=2h");
    let policy = policy.expect("well formed");
    assert_eq!(policy.evict_idle_ns, Some(2 * S));
    assert_eq!(policy.host_memory_bytes, Some(HostMemory(3 << 29)));
    assert_eq!(policy.deep_after_ns, Some(7200 * S));
    assert_eq!(policy.to_string().parse(), Ok(policy));
    assert_eq!(
        LockPolicy::decode(&LockPolicy::encode(Some(policy))),
        Some(policy)
    );
    let then = |text: &str| parse_policy(&[text])?.apply(policy);
    let none = then("host-memory=0").expect("well formed");
    assert_eq!(none.host_memory_bytes, Some(HostMemory(0)));
    assert!(none.to_string().contains("host-memory=0 "), "{none}");
    let auto = then("evict-idle=auto stay=auto turn=auto host-memory=auto deep-after=never");
    assert_eq!(auto, Ok(LockPolicy::default()));
    let why = read("host-memory=17TiB").unwrap_err().to_string();
    assert!(why.contains("between 0 and 16TiB"), "{why}");
    for text in [
        "host-memory=half",
        "evict-idle=0",
        "stay=11m",
        "turn=1ms",
        "deep-after=1ms",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn numbers_out_of_range_name_their_range() {
    assert_eq!(
        read("timeslice=50us").unwrap_err().to_string(),
        "\"50us\" is out of range; must be between 100us and 1m"
    );
    for text in [
        "launches=0",
        "launches=-1",
        "timeslice=61s",
        "idle=0",
        "max-hold=1h",
        "grace=0",
        "sync-skips=x",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn what_a_text_may_say_and_what_the_segment_takes_are_the_same() {
    for (word, values, _) in policy_words() {
        let Some([least, most]) = values.and_then(|values| values.range()) else {
            continue;
        };
        for edge in [&least, &most] {
            let text = format!("{word}={edge}");
            // A grace that was not given is no reason to refuse the shortest hold.
            let text = match word {
                "max-hold" => format!("{text} grace=1ms"),
                _ => text,
            };
            let policy = read(&text).expect(&text);
            assert_eq!(policy.check(), Ok(()), "{text}");
            assert_eq!(
                LockPolicy::decode(&LockPolicy::encode(Some(policy))),
                Some(policy)
            );
        }
    }
    for kind in KINDS {
        let beyond = |(_, most)| (kind.of)(Some(most + 1)).expect("a kind with an amount");
        let Some(kind) = kind.amount.and_then(|values| values.limits).map(beyond) else {
            continue;
        };
        let policy = LockPolicy {
            kind,
            max_hold_ns: 600 * S,
            ..LockPolicy::default()
        };
        refused(policy, kind.parts().0.word);
    }
    for (at, row) in POLICY_ROWS.iter().enumerate() {
        let mut numbers = LockPolicy::default().numbers();
        let Some((_, most)) = row.values.limits else {
            continue;
        };
        numbers[at] = most + row.unit;
        let policy = LockPolicy::of_numbers(PolicyKind::Off, numbers).expect("numbers");
        refused(policy, row.word);
    }
    // An edit that is filled in by hand is checked as well.
    let edit = PolicyEdit {
        idle_ns: Some(Some(1)),
        ..PolicyEdit::default()
    };
    assert_eq!(
        edit.apply(LockPolicy::default()).unwrap_err().to_string(),
        "idle must be between 100us and 10m"
    );
}

fn refused(policy: LockPolicy, word: &str) {
    let (named, why) = policy.check().expect_err(word);
    assert_eq!(named, word);
    assert!(why.contains("between"), "{why}");
    assert_eq!(
        LockPolicy::decode(&LockPolicy::encode(Some(policy))),
        None,
        "{word}"
    );
}

#[test]
fn no_two_rows_share_a_bit_of_a_record() {
    let mut claimed = [0; POLICY_WORDS];
    let rows = POLICY_ROWS.iter().map(|row| &row.place);
    for field in [&PRESENT, &KIND, &AMOUNT].into_iter().chain(rows) {
        for (word, mask) in field.claims() {
            assert_eq!(claimed[word] & mask, 0, "word {word}");
            claimed[word] |= mask;
        }
    }
}

#[test]
fn each_kind_has_its_row_and_its_own_number() {
    for kind in KINDS {
        let amount = kind
            .amount
            .and_then(|values| values.limits)
            .map(|(least, _)| least);
        let made = (kind.of)(amount).expect("its own amount");
        let (row, back) = made.parts();
        assert_eq!((row.word, back), (kind.word, amount));
        assert_eq!(PolicyKind::of_code(kind.code.into(), amount), Some(made));
    }
}

#[test]
fn words_nobody_knows_and_kinds_said_twice_are_refused() {
    for text in [
        "",
        "of",
        "=",
        "slice=5ms",
        "off always",
        "launches=1 launches=2",
        "order=last",
        "idle=1s idle=2s",
    ] {
        assert!(read(text).is_err(), "{text:?}");
    }
    assert!(read("on").unwrap_err().to_string().contains("timeslice="));
}

#[test]
fn overlap_beside_a_time_slice_is_a_part_of_it_and_alone_a_policy() {
    let slice = read("timeslice=5ms overlap=0").expect("a slice");
    assert_eq!(
        (slice.kind, slice.overlap_ns),
        (PolicyKind::Timeslice(5 * MS), 0)
    );
    let either_way = read("overlap=300us timeslice=5ms").expect("a slice");
    assert_eq!(either_way.overlap_ns, 300 * US);
    assert_eq!(read(&either_way.to_string()), Ok(either_way));
    assert_eq!(
        read("overlap=300us").expect("a policy").kind,
        PolicyKind::Overlap(Some(300 * US))
    );
    for (text, lasts, ahead) in [
        ("overlap", false, 4 * MS),
        ("overlap", true, 4 * MS),
        ("overlap order=priority", false, 500 * US),
        ("overlap order=priority", true, 2 * MS),
        ("overlap=300us order=priority", true, 300 * US),
    ] {
        let policy = read(text).expect("a policy");
        assert_eq!(read(&policy.to_string()), Ok(policy));
        let kind = policy.kind.settled(policy.order, lasts);
        assert_eq!(kind, PolicyKind::Overlap(Some(ahead)), "{text}");
    }
    // Too little for the policy, so it is for the slices that are in force.
    let only = parse_policy(&["overlap=0"]).expect("an edit");
    let exclusive = only.apply(either_way).expect("both are slices");
    assert_eq!((exclusive.kind, exclusive.overlap_ns), (slice.kind, 0));
    for text in [
        "overlap=0",
        "always overlap=1ms",
        "overlap overlap=1ms",
        "overlap=2s",
        "timeslice=5ms overlap=2s",
        "overlap=1ms overlap=1ms",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn a_slice_longer_than_a_written_hold_is_a_conflict_and_else_lengthens_it() {
    assert_eq!(
        read("timeslice=20s").expect("lengthens").max_hold_ns,
        20 * S
    );
    assert_eq!(
        read("timeslice=20s max-hold=15s").unwrap_err().to_string(),
        "max-hold=15s is shorter than timeslice=20s; give at least max-hold=20s"
    );
    assert!(read("grace=2s max-hold=1s").is_err());
}

#[test]
fn a_written_policy_reads_back_to_the_same_policy() {
    for text in [
        "off",
        "always order=priority",
        "launches=7 sync-skips=2",
        "timeslice=1.5ms idle=100us grace=50ms",
    ] {
        let policy = read(text).expect("well formed");
        assert_eq!(read(&policy.to_string()), Ok(policy), "{policy}");
    }
    assert!(
        LockPolicy::default()
            .to_string()
            .starts_with("off order=fair idle=auto max-hold=10s grace=200ms")
    );
}
