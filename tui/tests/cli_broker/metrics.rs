//! The broker's metrics.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use crate::support::{ALICE, Machine, USERS};

#[test]
fn a_broker_serves_metrics_on_the_socket_that_the_service_manager_made() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let alice = machine.tenant(ALICE, "train");
    assert_eq!(alice.hear(), "slot 0 1");
    machine.kill_broker();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // The form in which systemd passes it: descriptor 3, with a name.
    let script = format!(
        "exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=metrics exec {} serve --group {USERS}",
        machine.path("gpushare").display()
    );
    machine.serve_given(&script, OwnedFd::from(listener));
    let mut client = TcpStream::connect(address).expect("it listens");
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(request).expect("it reads");
    let mut page = String::new();
    client.read_to_string(&mut page).expect("it answers");
    let process = format!("user=\"{ALICE}\",name=\"train\"");
    assert!(page.contains(&process), "{page}");
    assert!(page.contains("gpushare_process_weight{"), "{page}");
}
