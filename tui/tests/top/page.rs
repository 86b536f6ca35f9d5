//! The moment as a page for a browser.

use gpushare_top::state::State;
use gpushare_top::view::page;

use crate::support::{coloured, state, story};

#[test]
fn a_page_has_the_sentences_a_picture_the_table_and_the_events_and_takes_nothing_from_elsewhere() {
    let state = state();
    let file = page::file(&state, &coloured());
    let (_, main) = file.split_once("<main>").unwrap();
    let (main, _) = main.split_once("</main>").unwrap();
    let main = format!("<main>{main}</main>");
    let document = roxmltree::Document::parse(&main).unwrap();
    let all = || document.descendants();
    let count = |name: &str| all().filter(|node| node.has_tag_name(name)).count();
    assert_eq!(count("img"), 1);
    assert_eq!(count("table"), 2, "processes and events");
    let text: String = all().filter_map(|node| node.text()).collect();
    for said in [
        "gpu01",
        "NVIDIA H200",
        "DENIED",
        "What helps",
        "gpushare quota set 41876",
        "vllm-worker",
        "14:31:17",
        "WAIT%",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    // A browser fetches nothing but what the page itself holds.
    for attribute in ["src", "srcset", "href"] {
        let values = all().filter_map(|node| node.attribute(attribute));
        for value in values {
            assert!(value.starts_with("data:image/svg+xml;base64,"), "{value}");
        }
    }
    for word in ["http:", "https:", "@import", "url(", "<script", "<iframe"] {
        assert!(!file.contains(word), "{word}");
    }
    assert!(file.contains("default-src 'none'; img-src data:; style-src 'unsafe-inline'"));
}

#[test]
fn the_names_of_processes_are_text_in_a_page_whatever_they_hold() {
    const NAMES: [&str; 3] = [
        "<script>alert(1)</script>",
        "\"'><img src=x onerror=alert(1)>",
        "]]></table>&lt;b\u{202e}\u{1b}[2J<!--",
    ];
    let mut state = State::default();
    for mut sample in story() {
        sample.host = NAMES[0].into();
        sample.segment.dir = NAMES[1].into();
        for (process, name) in sample.processes.iter_mut().zip(NAMES.iter().cycle()) {
            process.view.identity.label = (*name).into();
            process.view.group = Some((*name).into());
            process.user = (*name).into();
        }
        for (event, name) in sample.events.iter_mut().zip(NAMES.iter().cycle()) {
            event.name = (*name).into();
        }
        for device in &mut sample.devices {
            device.view.name = NAMES[2].into();
        }
        state.update(sample);
    }
    let part = page::part(&state, &coloured());
    let document = roxmltree::Document::parse(&part).unwrap();
    let mut elements = document.descendants().filter(|node| node.is_element());
    assert!(elements.all(|node| {
        let hostile = |name: &str| name.starts_with("on");
        node.tag_name().name() != "script" && !node.attributes().any(|one| hostile(one.name()))
    }));
    let images = document
        .descendants()
        .filter(|node| node.has_tag_name("img"));
    assert_eq!(images.count(), 1, "the picture");
    let text: String = document
        .descendants()
        .filter_map(|node| node.text())
        .collect();
    assert!(text.contains(NAMES[0]) && text.contains(NAMES[1]), "{text}");
    assert!(
        text.contains("]]></table>&lt;b\\u{202e}\\u{1b}[2J<!--"),
        "{text}"
    );
    let file = page::file(&state, &coloured());
    assert_eq!(file.matches("<script").count(), 0);
    assert!(file.contains("<title>&lt;script&gt;alert(1)&lt;/script&gt; "));
}
