//! Refused evictions: a process with state that the driver would lose is not evicted. The reason is shown, and the process
//! continues.

use std::io::Write;

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{EventReader, Segments, What, Why};

use crate::Wish;
use crate::client::{Client, GIB, MIB, PATIENCE};
use crate::overcommit::overcommit;

/// Makes a world with this scenario. The file must exist as long as the world.
pub fn world(text: &str) -> (tempfile::NamedTempFile, Testbed) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    let bed = Testbed::with_scenario(file.path().to_str().expect("a path in UTF-8"));
    (file, bed)
}

/// Checks that the eviction is refused for this reason and that the process continues to work.
fn refused(bed: &Testbed, client: &mut Client<'_>, why: Why) {
    client.wish(bed, Wish::Evict);
    client.is_refused(why);
    client.wish(bed, Wish::Resume);
    client.ok("alloc z 4096");
}

#[test]
fn managed_memory_is_refused_until_it_is_freed() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.ok(&format!("managed m {MIB}"));
    refused(&bed, &mut client, Why::Managed);
    client.ok("free m");
    client.evict(&bed);
}

#[test]
fn memory_that_others_use_or_that_is_theirs_is_refused() {
    let bed = Testbed::new();
    let (mut one, mut two) = (Client::start(&bed, &[]), Client::start(&bed, &[]));
    one.ok(&format!("alloc a {MIB}"));
    two.ok(&format!("alloc a {MIB}"));
    let (code, handle) = one.ask("ipc-get a");
    assert_eq!(code, 0);
    two.ok(&format!("ipc-open b {}", handle[0]));
    refused(&bed, &mut one, Why::Exported);
    refused(&bed, &mut two, Why::Imported);
    let mut three = Client::start(&bed, &[]);
    three.ok(&format!("create p {} 0", 2 * MIB));
    three.ok("export x p");
    refused(&bed, &mut three, Why::Exported);
}

/// Lists the reasons in the events.
fn reasons(bed: &Testbed) -> Vec<Why> {
    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    let mut reasons = Vec::new();
    while let Some(event) = reader.next(segments.state()) {
        let Ok(event) = event else { continue };
        if let What::Residence { why: Some(why), .. } = event.what() {
            reasons.push(why);
        }
    }
    reasons
}

#[test]
fn ranks_that_share_memory_stay_and_say_why_to_one_that_lacks_room() {
    let (_file, bed) = world("[[device]]\nmemory = \"64MiB\"");
    overcommit(&bed, true);
    let (mut one, mut two) = (Client::start(&bed, &[]), Client::start(&bed, &[]));
    one.ok(&format!("alloc a {}", 20 * MIB));
    two.ok(&format!("alloc a {}", 20 * MIB));
    let (code, handle) = one.ask("ipc-get a");
    assert_eq!(code, 0);
    two.ok(&format!("ipc-open b {}", handle[0]));
    let mut other = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait=5s")]);
    other.begin(&format!("alloc a {}", 40 * MIB));
    one.is_refused(Why::Exported);
    two.is_refused(Why::Imported);
    assert_ne!(other.end(), 0, "no room is made");
    let said = reasons(&bed);
    assert!(
        said.contains(&Why::Exported) && said.contains(&Why::Imported),
        "{said:?}"
    );
}

#[test]
fn of_ranks_that_share_a_small_buffer_the_swappable_memory_leaves_and_the_buffer_stays() {
    let (_file, bed) = world("[[device]]\nmemory = \"64MiB\"");
    let swappable = [("GPUSHARE_SWAPPABLE", "1")];
    let (mut one, mut two) = (
        Client::start(&bed, &swappable),
        Client::start(&bed, &swappable),
    );
    for client in [&mut one, &mut two] {
        client.ok(&format!("alloc a {}", 16 * MIB));
        client.ok("write a 3 1000");
    }
    one.ok(&format!("alloc buffer {MIB}"));
    one.ok("write buffer 7 1000");
    let (code, handle) = one.ask("ipc-get buffer");
    assert_eq!(code, 0);
    two.ok(&format!("ipc-open b {}", handle[0]));
    one.evict(&bed);
    two.evict(&bed);
    assert_eq!(one.used(), MIB, "what the other has mapped");
    two.wish(&bed, Wish::Resume);
    assert_eq!(two.ok("read b 1000"), [7, 7], "while its owner is away");
    assert_eq!(two.ok("read a 1000"), [3, 3]);
    two.ok("write b 8 1000");
    one.wish(&bed, Wish::Resume);
    assert_eq!(one.ok("read buffer 1000"), [8, 8]);
    assert_eq!(one.ok("read a 1000"), [3, 3]);
}

#[test]
fn a_capture_is_not_disturbed() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.ok("stream s");
    client.ok("capture s");
    client.wish(&bed, Wish::Evict);
    client.is_refused(Why::Capturing);
    client.ok("capture-end s g");
    client.reaches(shm_layout::Phase::Evicted);
}

#[test]
fn a_capture_that_ends_with_its_context_is_no_reason_any_more() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.ok("context c 0");
    client.ok("stream s");
    client.ok("capture s");
    client.ok("context-destroy c");
    client.ok("device 0");
    client.evict(&bed);
}

#[test]
fn a_capture_that_ends_with_the_primary_context_is_no_reason_any_more() {
    for end in ["device-reset 0", "device-release 0"] {
        let bed = Testbed::new();
        let mut client = Client::start(&bed, &[]);
        client.ok("stream s");
        client.ok("capture s");
        client.ok(end);
        client.ok("context c 0");
        client.ok(&format!("alloc a {MIB}"));
        client.evict(&bed);
    }
}

#[test]
fn a_capture_into_a_graphics_queue_ends_too() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.ok("stream s");
    client.ok("capture-cig s");
    client.wish(&bed, Wish::Evict);
    client.is_refused(Why::Capturing);
    client.ok("capture-cig-end s");
    eventually("another reason is given", PATIENCE, || {
        client.residence().why != Some(Why::Capturing)
    });
}

#[test]
fn a_process_without_memory_has_nothing_to_give() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    refused(&bed, &mut client, Why::Nothing);
}

#[test]
fn a_driver_that_is_not_known_to_do_it_is_not_asked() {
    for version in ["565.10", "610.20.01"] {
        let (_file, bed) = world(&format!(
            "[driver]\nversion = \"{version}\"\n[[device]]\nmemory = \"1GiB\""
        ));
        let mut client = Client::start(&bed, &[]);
        client.ok(&format!("alloc a {MIB}"));
        refused(&bed, &mut client, Why::Driver);
    }
}

#[test]
fn without_nvml_it_could_not_see_whether_there_is_room_to_come_back() {
    let bed = Testbed::with_scenario("no-nvml");
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    refused(&bed, &mut client, Why::NoNvml);
}

#[test]
fn a_mig_instance_is_refused() {
    let bed = Testbed::with_scenario("mig");
    let mut client = Client::start(&bed, &[("CUDA_VISIBLE_DEVICES", "0")]);
    client.ok(&format!("alloc a {MIB}"));
    refused(&bed, &mut client, Why::Mig);
}

#[test]
fn a_host_without_room_for_the_copy_is_left_alone() {
    let (_file, bed) = world("[[device]]\nmemory = \"4096GiB\"");
    let mut client = Client::start(&bed, &[]);
    // The memory is never written, so it takes nothing of the host's memory here.
    client.ok(&format!("alloc a {}", 2048 * GIB));
    refused(&bed, &mut client, Why::HostMemory);
}

#[test]
fn a_process_that_another_program_has_locked_is_refused() {
    let bed = Testbed::new();
    let (mut client, mut other) = (Client::start(&bed, &[]), Client::start(&bed, &[]));
    client.ok(&format!("alloc a {MIB}"));
    let pid = client.watched.pid();
    other.ok(&format!("lock {pid}"));
    client.wish(&bed, Wish::Evict);
    client.is_refused(Why::Locked);
    other.ok(&format!("unlock {pid}"));
    client.reaches(shm_layout::Phase::Evicted);
}

#[test]
fn what_does_not_come_to_rest_is_left_alone() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\ncheckpoint = \"lock\"");
    let mut client = Client::start(&bed, &[("GPUSHARE_EVICT_AFTER", "200ms")]);
    client.ok(&format!("alloc a {MIB}"));
    client.is_refused(Why::Busy);
    client.ok("alloc b 4096");
}
