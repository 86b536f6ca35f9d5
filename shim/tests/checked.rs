//! Builds of the library: the one that tests preload checks the file from which it calls the driver; the installed one does
//! not.

use gpushare_testbed::artifact;

#[test]
fn a_debug_build_checks_where_the_driver_is_called_from_and_a_release_does_not() {
    let library = std::fs::read(artifact("libgpushare.so")).expect("built");
    let words = b"from where the driver may not answer";
    let is_checked = library.windows(words.len()).any(|part| part == words);
    assert_eq!(is_checked, cfg!(debug_assertions));
}
