//! Tests of the table of keys, and of keys that the user chooses.

use super::*;

#[test]
fn a_chosen_key_takes_the_place_of_the_usual_one() {
    let mut keys = Keymap::default();
    keys.choose("quota", "Q").unwrap();
    keys.choose("quit", "^x").unwrap();
    keys.check().unwrap();
    let press = |code| keys.action(KeyEvent::from(code), Place::Main);
    assert_eq!(press(K::Char('Q')), Some(A::Quota));
    assert_eq!(press(K::Char('e')), None, "it has moved");
    assert_eq!(press(K::Char('p')), Some(A::Policy), "others stay");
    assert_eq!(press(K::Char('q')), None);
    let control_c = KeyEvent::new(K::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(keys.action(control_c, Place::Main), Some(A::Quit));
    let control = KeyEvent::new(K::Char('x'), KeyModifiers::CONTROL);
    assert_eq!(keys.action(control, Place::Detail), Some(A::Quit));
    assert_eq!(
        (keys.letter('e').as_str(), keys.letter('p').as_str()),
        ("Q", "p")
    );
}

#[test]
fn a_key_that_cannot_be_is_refused_with_a_sentence() {
    let mut keys = Keymap::default();
    assert!(
        keys.choose("fly", "x")
            .unwrap_err()
            .contains("there is no action \"fly\"")
    );
    assert!(
        keys.choose("quit", "Hyper")
            .unwrap_err()
            .contains("is no key")
    );
    keys.choose("quit", "e").unwrap();
    assert!(
        keys.choose("help", "e")
            .unwrap_err()
            .contains("chosen for quit already")
    );
    let why = keys.check().unwrap_err();
    assert_eq!(
        why,
        "e means \"memory quota of the selected process\" already; give quota another key too"
    );
}

#[test]
fn names_of_actions_tell_them_apart() {
    assert_eq!(A::AllGpus.name(), "all-gpus");
    assert_eq!(
        (A::Sort(1).name().as_str(), A::Sort(-1).name().as_str()),
        ("sort+1", "sort-1")
    );
}

#[test]
fn no_key_means_two_things_in_one_place() {
    for place in ANY.iter().copied() {
        let mut seen = Vec::new();
        for key in KEYS.iter().filter(|key| key.works_in(place)) {
            for code in key.codes {
                assert!(
                    !seen.contains(&(key.control, *code)),
                    "{code:?} twice in {place:?}"
                );
                seen.push((key.control, *code));
            }
        }
    }
}

#[test]
fn control_tells_two_keys_apart() {
    let press = |modifiers| action(KeyEvent::new(K::Char('l'), modifiers), Place::Main);
    assert_eq!(press(KeyModifiers::NONE), Some(A::Events));
    assert_eq!(press(KeyModifiers::CONTROL), Some(A::Redraw));
}
