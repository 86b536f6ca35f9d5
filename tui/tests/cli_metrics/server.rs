//! The server's access rules, and its behaviour under load.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use gpushare_testbed::{Watched, eventually};

use crate::cli_support::World;

pub const LIMIT: Duration = Duration::from_secs(60);

pub fn serve(world: &World, args: &[&str]) -> (Watched, SocketAddr) {
    let mut words = vec!["metrics", "--no-nvml", "--listen"];
    words.extend(args);
    let mut server = Watched::spawn(&mut world.command(&words));
    let line = server.line();
    let address = line
        .strip_prefix("serving http://")
        .and_then(|line| line.strip_suffix("/metrics"));
    let address = address
        .unwrap_or_else(|| panic!("{line}"))
        .parse()
        .expect("an address");
    (server, address)
}

/// Sends bytes to a server and returns its reply until it closes.
fn say(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    // The server may have replied and closed before all was sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    say(
        address,
        format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes(),
    )
}

pub fn page(address: SocketAddr) -> String {
    get(address, "/metrics", HERE)
}

const HERE: &str = "Host: localhost\r\n";

#[test]
fn a_server_on_loopback_answers_those_who_name_it_so_and_changes_nothing() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 4096));
    let (_server, address) = serve(&world, &["127.0.0.1:0"]);
    let page = get(address, "/metrics", HERE);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(
        page.contains("version=0.0.4") && page.contains("} 4096\n"),
        "{page}"
    );
    let open = get(
        address,
        "/metrics",
        &format!("{HERE}Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n"),
    );
    assert!(
        open.contains("openmetrics-text; version=1.0.0") && open.ends_with("# EOF\n"),
        "{open}"
    );
    let packed = get(
        address,
        "/metrics",
        &format!("{HERE}Accept-Encoding: deflate, gzip\r\n"),
    );
    assert!(packed.contains("Content-Encoding: gzip"), "{packed}");
    assert!(!packed.contains("gpushare_"), "{packed}");
    let json = get(address, "/json", HERE);
    let (_, body) = json.split_once("\r\n\r\n").expect("a body");
    let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(json["processes"][0]["devices"][0]["used_bytes"], 4096);
    assert!(get(address, "/etc/passwd", HERE).starts_with("HTTP/1.1 404"));
    // A browser that was directed here under another name.
    assert!(get(address, "/json", "Host: evil.example:80\r\n").starts_with("HTTP/1.1 421"));
    let post = format!("POST /metrics HTTP/1.1\r\n{HERE}Content-Length: 3\r\n\r\na=b");
    assert!(say(address, post.as_bytes()).starts_with("HTTP/1.1 405"));
    assert!(say(address, b"\x16\x03\x01 nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "a".repeat(1 << 20));
    let answer = say(address, long.as_bytes());
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
}

#[test]
fn clients_that_say_nothing_are_let_go_and_never_more_than_sixteen_are_heard() {
    let world = World::new();
    let (server, address) = serve(&world, &["127.0.0.1:0"]);
    let start = Instant::now();
    let mut silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    let threads = || {
        std::fs::read_dir(format!("/proc/{}/task", server.pid()))
            .expect("it lives")
            .count()
    };
    assert!(threads() <= 16 + 4, "{}", threads());
    for stream in &mut silent {
        // Sending slowly does not keep a connection open.
        let _ = stream.write_all(b"G");
    }
    eventually("it answers again", LIMIT, || {
        get(address, "/metrics", HERE).starts_with("HTTP/1.1 200")
    });
    eventually("all are let go", LIMIT, || {
        silent.retain_mut(|stream| {
            stream
                .set_read_timeout(Some(Duration::from_millis(1)))
                .expect("a socket");
            let _ = stream.write_all(b" ");
            !matches!(stream.read(&mut [0; 512]), Ok(0))
        });
        silent.is_empty() || threads() <= 4
    });
    assert!(start.elapsed() < LIMIT);
}

/// Keeps connections open that send a byte now and then, and opens closed ones again, until `over` is set.
fn dawdle(address: SocketAddr, connections: usize, over: &AtomicBool) {
    let mut open: Vec<Option<TcpStream>> = (0..connections).map(|_| None).collect();
    while !over.load(Relaxed) {
        for place in &mut open {
            let stream = place.take().or_else(|| {
                let stream = TcpStream::connect_timeout(&address, Duration::from_millis(200));
                stream.ok().filter(|one| one.set_nonblocking(true).is_ok())
            });
            // The replies are not read.
            *place = stream.filter(|mut one| one.write_all(b"G").is_ok());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn slow_connections_keep_no_scrape_out() {
    let world = World::new();
    let (_server, address) = serve(&world, &["127.0.0.1:0"]);
    for connections in [48, 200] {
        let over = AtomicBool::new(false);
        let answered = std::thread::scope(|scope| {
            scope.spawn(|| dawdle(address, connections, &over));
            std::thread::sleep(Duration::from_millis(500));
            let scrape = |_: &usize| get(address, "/metrics", HERE).starts_with("HTTP/1.1 200");
            let answered = (0..20).filter(scrape).count();
            over.store(true, Relaxed);
            answered
        });
        // Most of them, because the machine may be busy.
        assert!(answered >= 15, "{answered} of 20 beside {connections}");
    }
}

#[test]
fn another_address_needs_a_token_that_only_its_owner_can_read() {
    let world = World::new();
    let everywhere = ["metrics", "--listen", "0.0.0.0:0"];
    world
        .gpushare(&everywhere)
        .refused(2, &["0.0.0.0", "--token-file"]);
    let file = world.dir().join("token");
    let path = file.display().to_string();
    let with = |path: &str| {
        [&everywhere[..], &["--token-file", path]]
            .concat()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let refused = |words: &[&str]| {
        let args = with(&path);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        world.gpushare(&args).refused(2, words);
    };
    refused(&["token file", "No such file"]);
    std::fs::write(&file, "0123456789abcdef0123").expect("ours");
    refused(&["chmod 600"]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let (_server, address) = serve(&world, &["0.0.0.0:0", "--token-file", &path]);
    let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    assert!(get(address, "/metrics", HERE).starts_with("HTTP/1.1 401"));
    let bearer = |token: &str| {
        get(
            address,
            "/metrics",
            &format!("Host: any\r\nAuthorization: Bearer {token}\r\n"),
        )
    };
    assert!(bearer("0123456789abcdef012").starts_with("HTTP/1.1 401"));
    assert!(bearer("0123456789abcdef0123x").starts_with("HTTP/1.1 401"));
    assert!(bearer("0123456789abcdef0123").starts_with("HTTP/1.1 200"));
    std::fs::write(&file, "short").expect("ours");
    refused(&["at least 16"]);
}

#[test]
fn an_address_that_is_taken_is_a_sentence() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    world
        .gpushare(&["metrics", "--listen", &address])
        .refused(1, &["cannot listen on", &address]);
}
