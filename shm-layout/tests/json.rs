//! The JSON form of values in files: the keys and words of recordings and of the audit log do not change.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use shm_layout::{
    Boost, Change, Event, EventKind, LockPolicy, LockState, Order, PolicyKind, Quota, QuotaValue,
    Reason, Set, Share, ShareEdit, SlotId, Source, Until, What, trace::TraceState,
};

const SLOT: SlotId = SlotId { index: 3, epoch: 9 };

/// Writes a value, compares it with the text, and reads it back to the same text.
fn stays<T: Serialize + DeserializeOwned>(value: &T, wanted: &str) {
    let text = serde_json::to_string(value).expect("plain data");
    assert_eq!(text, wanted);
    let again: T = serde_json::from_str(&text).expect("our own text");
    assert_eq!(serde_json::to_string(&again).expect("plain data"), wanted);
}

#[test]
fn a_policy_has_its_rule_and_all_its_numbers() {
    let policy = LockPolicy {
        kind: PolicyKind::Timeslice(5_000_000),
        ..LockPolicy::default()
    };
    stays(
        &policy,
        r#"{"rule":{"kind":"timeslice","value":5000000},"order":"fair","overlap_ns":200000,"idle_ns":null,"max_hold_ns":10000000000,"grace_ns":200000000,"sync_skips":0}"#,
    );
    let off: LockPolicy = serde_json::from_value(json!({"rule": {"kind": "off"}})).expect("a rule");
    assert_eq!(off, LockPolicy::default());
}

#[test]
fn words_are_the_words_on_the_screen() {
    for order in Order::ALL {
        stays(&order, &format!("\"{}\"", order.word()));
    }
    for reason in shm_layout::ALL_REASONS {
        stays(&reason, &format!("\"{}\"", reason.word()));
    }
    stays(&LockState::Hold, "\"hold\"");
    stays(&TraceState::NoBuffer, "\"no_buffer\"");
    let alias = Source::of_alias("CUDA_MEM_LIMIT").expect("a variable we honour");
    for source in [Source::Default, Source::LaunchEnv, Source::Group, alias] {
        stays(&source, &format!("\"{}\"", source.word()));
    }
}

#[test]
fn a_share_and_a_quota_lie_flat_beside_what_they_belong_to() {
    stays(
        &Share::default(),
        r#"{"weight":100,"priority":0,"cap_percent":null,"paused":false,"on_full":"fail","evict":false,"evict_after_ns":null,"pinned":false,"reserve":"none","boost_until_ns":null,"share_until_ns":null,"share_source":"default"}"#,
    );
    let quota = Quota {
        bytes: Some(1),
        source: Source::Operator,
    };
    stays(&quota, r#"{"quota_bytes":1,"quota_source":"operator"}"#);
}

#[test]
fn an_events_arguments_have_names() {
    let event = |kind| Event {
        arg0: 7,
        arg1: 8,
        ..Event::of(1, SLOT, kind)
    };
    stays(
        &event(EventKind::Hold).what(),
        r#"{"kind":"hold","waited_ns":7}"#,
    );
    stays(
        &event(EventKind::Release(Reason::Slice)).what(),
        r#"{"kind":"release","reason":"slice","held_ns":7}"#,
    );
    stays(
        &event(EventKind::Denial).what(),
        r#"{"kind":"denial","asked_bytes":7,"quota_bytes":8,"call":null}"#,
    );
    stays(&What::Other, r#"{"kind":"other"}"#);
}

#[test]
fn a_stored_edit_is_the_same_edit_again() {
    let quota = |device, value, until| Change::ProcessQuota {
        slot: SLOT,
        device,
        value,
        until,
    };
    let share = Change::ProcessShare {
        slot: SLOT,
        share: ShareEdit {
            weight: Set::To(200),
            priority: Set::Inherit,
            paused: Set::To(true),
            boost: Set::To(Boost {
                priority: -3,
                until_ns: 99,
            }),
            ..ShareEdit::default()
        },
    };
    let group = Change::Group {
        name: "team".into(),
        settings: shm_layout::GroupEdit {
            memory: Set::Inherit,
            cap: Set::To(30),
            ..shm_layout::GroupEdit::default()
        },
        remove: false,
    };
    let policy = |device, policy| Change::Policy {
        device,
        policy,
        until: None,
    };
    let timed = Change::ProcessShare {
        slot: SLOT,
        share: ShareEdit {
            weight: Set::To(200).until(7),
            cap: Set::For(
                None,
                Until {
                    ns: 8,
                    then: Some(Some(30)),
                },
            ),
            paused: Set::For(
                Some(true),
                Until {
                    ns: 9,
                    then: Some(None),
                },
            ),
            evict: Set::Inherit.until(9),
            ..ShareEdit::default()
        },
    };
    let examples = [
        (
            timed,
            r#"{"kind":"process_share","slot":3,"epoch":9,"weight":"200 until 7","cap":"inherit until 8 then 30","paused":"true until 9 then inherit","evict":"inherit until 9"}"#,
        ),
        (
            quota(
                Some(1),
                QuotaValue::Bytes(32 << 30),
                Some(Until::lasting(7)),
            ),
            r#"{"kind":"process_quota","slot":3,"epoch":9,"device":1,"value":"32GiB","until_ns":7}"#,
        ),
        (
            quota(
                Some(0),
                QuotaValue::Bytes(1 << 30),
                Some(Until {
                    ns: 7,
                    then: Some(QuotaValue::Inherit),
                }),
            ),
            r#"{"kind":"process_quota","slot":3,"epoch":9,"device":0,"value":"1GiB","until_ns":7,"then":"inherit"}"#,
        ),
        (
            quota(None, QuotaValue::Percent(25), None),
            r#"{"kind":"process_quota","slot":3,"epoch":9,"device":null,"value":"25%","until_ns":null}"#,
        ),
        (
            share,
            r#"{"kind":"process_share","slot":3,"epoch":9,"weight":"200","priority":"inherit","paused":"true","boost":"-3 until 99"}"#,
        ),
        (
            policy(None, Some(LockPolicy::default())),
            r#"{"kind":"policy","device":null,"policy":"off order=fair idle=auto max-hold=10s grace=200ms sync-skips=0"}"#,
        ),
        (
            policy(Some([7; 16]), None),
            r#"{"kind":"policy","device":"GPU-07070707-0707-0707-0707-070707070707","policy":"inherit"}"#,
        ),
        (
            Change::Policy {
                device: None,
                policy: None,
                until: Some(Until {
                    ns: 9,
                    then: Some(Some(LockPolicy::default())),
                }),
            },
            r#"{"kind":"policy","device":null,"policy":"inherit","until_ns":9,"then":"off order=fair idle=auto max-hold=10s grace=200ms sync-skips=0"}"#,
        ),
        (
            Change::DeviceLimit {
                uuid: [9; 16],
                value: QuotaValue::Unlimited,
            },
            r#"{"kind":"device_limit","device":"GPU-09090909-0909-0909-0909-090909090909","value":"none"}"#,
        ),
        (
            group,
            r#"{"kind":"group","name":"team","memory":"inherit","cap":"30","remove":false}"#,
        ),
        (
            Change::Trace {
                slot: SLOT,
                on: None,
            },
            r#"{"kind":"trace","slot":3,"epoch":9}"#,
        ),
        (
            Change::Trace {
                slot: SLOT,
                on: Some(5000),
            },
            r#"{"kind":"trace","slot":3,"epoch":9,"records":5000}"#,
        ),
    ];
    for (change, wanted) in examples {
        stays(&change, wanted);
        let again: Change = serde_json::from_str(wanted).expect("our own line");
        assert_eq!(again, change, "{wanted}");
    }
}

#[test]
fn a_word_that_means_nothing_is_no_edit() {
    let lines = [
        r#"{"kind":"process_quota","slot":3,"epoch":9,"device":null,"value":"8Q","until_ns":null}"#,
        r#"{"kind":"process_share","slot":3,"epoch":9,"weight":"heavy"}"#,
        r#"{"kind":"policy","device":"GPU-1","policy":"off"}"#,
        r#"{"kind":"someday"}"#,
    ];
    for line in lines {
        assert!(serde_json::from_str::<Change>(line).is_err(), "{line}");
    }
}
