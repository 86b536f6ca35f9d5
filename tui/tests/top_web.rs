//! `gpushare-top --web`: which requests are answered, what a page may do, and the page in a real browser.

mod cli_support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cli_support::World;
use gpushare_testbed::{Need, Watched, needs};

const LIMIT: Duration = Duration::from_secs(60);

/// A page that is served: its address, and the path with the token.
struct Site {
    server: Watched,
    address: SocketAddr,
    path: String,
}

impl Site {
    fn start(world: &World, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpushare-top"));
        command
            .args(["--no-nvml", "-d", "0.1", "--web"])
            .args(words);
        command.env("GPUSHARE_DIR", world.dir()).env("LC_ALL", "C");
        let mut server = Watched::spawn(&mut command);
        let line = server.line();
        let (address, path) = line
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once('/'))
            .unwrap_or_else(|| panic!("{line}"));
        Self {
            server,
            address: address.parse().expect("an address"),
            path: format!("/{path}"),
        }
    }

    fn token(&self) -> &str {
        self.path.trim_matches('/')
    }

    fn ask(&self, method: &str, path: &str, host: &str) -> String {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        say(self.address, request.as_bytes())
    }

    fn get(&self, path: &str) -> String {
        self.ask("GET", path, "localhost")
    }
}

fn say(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.write_all(bytes).expect("it listens");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_page_is_read_by_those_who_have_its_address_and_nothing_can_be_changed() {
    let world = World::new();
    let train = world.actor("train");
    assert!(train.takes(train.enter(0), 4096));
    let site = Site::start(&world, &[]);
    assert!(site.address.ip().is_loopback());
    assert_eq!(site.token().len(), 32);
    let page = site.get(&site.path);
    assert!(
        page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("train"),
        "{page}"
    );
    let (head, _) = page.split_once("\r\n\r\n").expect("a head");
    for header in [
        "Content-Security-Policy: default-src 'none'; img-src data:; style-src 'nonce-",
        "frame-ancestors 'none'",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Cross-Origin-Resource-Policy: same-origin",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    assert!(
        !head.contains("Set-Cookie") && !head.contains("unsafe"),
        "{head}"
    );
    let nonce = |page: &str| page.split_once("script-src 'nonce-").unwrap().1[..32].to_owned();
    assert!(page.contains(&format!("<script nonce=\"{}\">", nonce(&page))));
    assert_ne!(
        nonce(&page),
        nonce(&site.get(&site.path)),
        "a new one for each page"
    );
    assert!(site.get(&format!("{}part/0", site.path)).contains("<main>"));
    let only_head = site.ask("HEAD", &site.path, "localhost");
    assert!(only_head.starts_with("HTTP/1.1 200") && only_head.ends_with("\r\n\r\n"));
    let unfinished = site.get(site.path.trim_end_matches('/'));
    assert!(
        unfinished.starts_with("HTTP/1.1 308")
            && unfinished.contains(&format!("Location: {}\r\n", site.path))
    );

    let wrong = format!("/{}x/", &site.token()[..31]);
    let short = format!("/{}/", &site.token()[..31]);
    for path in ["/", "//", &wrong, &short, "/etc/passwd", "/part/0"] {
        let said = site.get(path);
        assert!(said.starts_with("HTTP/1.1 404"), "{path}: {said}");
        assert!(
            !said.contains("train") && !said.contains(site.token()),
            "{said}"
        );
    }
    for rest in ["9", "part/9", "part/", "x", "../0", "part/0/0"] {
        let said = site.get(&format!("{}{rest}", site.path));
        assert!(said.starts_with("HTTP/1.1 404"), "{rest}: {said}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let said = site.ask(method, &site.path, "localhost");
        assert!(said.starts_with("HTTP/1.1 405"), "{method}: {said}");
    }
    // A page of another site that made its name lead here, even one that knows the token.
    for host in [
        "evil.example",
        "evil.example:80",
        "",
        "localhost.evil.example",
    ] {
        let said = site.ask("GET", &site.path, host);
        assert!(said.starts_with("HTTP/1.1 421"), "{host}: {said}");
    }
    for host in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
        assert!(
            site.ask("GET", &site.path, host)
                .starts_with("HTTP/1.1 200"),
            "{host}"
        );
    }
}

#[test]
fn each_start_has_its_own_token_and_other_machines_reach_it_only_where_one_asks_for_that() {
    let world = World::new();
    let _train = world.actor("train");
    let one = Site::start(&world, &[]);
    let other = Site::start(&world, &["::1"]);
    assert_ne!(one.path, other.path);
    assert!(other.address.ip().is_loopback() && other.address.is_ipv6());
    let mut wide = Command::new(env!("CARGO_BIN_EXE_gpushare-top"));
    wide.args(["--no-nvml", "--web", "0.0.0.0"])
        .env("GPUSHARE_DIR", world.dir());
    let mut wide = Watched::spawn(&mut wide);
    assert!(wide.line().starts_with("http://"));
    gpushare_testbed::eventually("it warns", LIMIT, || {
        wide.stderr()
            .contains("can be reached from other machines, and nothing is encrypted")
    });
    let mut silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(one.address).expect("it listens"))
        .collect();
    silent
        .iter_mut()
        .for_each(|stream| drop(stream.write_all(b"G")));
    gpushare_testbed::eventually("it answers again", LIMIT, || {
        one.get(&one.path).starts_with("HTTP/1.1 200")
    });
    let tasks = std::fs::read_dir(format!("/proc/{}/task", one.server.pid()));
    assert!(tasks.expect("it lives").count() <= 16 + 4);
}

/// Forwards connections to a site and keeps their requests.
struct Proxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || forward(client, to, &kept));
            }
        });
        Self { address, requests }
    }

    /// Returns how many requests had this path.
    fn count(&self, path: &str) -> usize {
        let requests = self.requests.lock().expect("no panic");
        let start = format!("GET {path} ");
        requests
            .iter()
            .filter(|request| request.starts_with(&start))
            .count()
    }
}

fn forward(mut client: TcpStream, to: SocketAddr, kept: &Mutex<Vec<String>>) {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match client.read(&mut chunk) {
            Ok(read @ 1..) => request.extend_from_slice(&chunk[..read]),
            // A browser opens connections in advance.
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    kept.lock().expect("no panic").push(text);
    let mut server = TcpStream::connect(to).expect("it listens");
    let _ = server.write_all(&request);
    let _ = std::io::copy(&mut server, &mut client);
}

#[test]
fn in_a_browser_the_page_refreshes_itself_and_a_hostile_name_is_only_text() {
    if !needs(Need::Tool("chromium")) {
        return;
    }
    let world = World::new();
    let hostile = "<img src=x onerror=document.title=1>";
    let actor = world.actor(hostile);
    assert!(actor.takes(actor.enter(0), 4096));
    let site = Site::start(&world, &[]);
    let proxy = Proxy::start(site.address);
    let profile = tempfile::tempdir().expect("a temporary directory");
    let mut browser = Command::new("chromium");
    browser
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
        ])
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{}{}", proxy.address, site.path));
    let part = format!("{}part/0", site.path);
    let (dump, late) = thread::scope(|scope| {
        let dump = scope.spawn(|| browser.output().expect("started"));
        // Only a page that refreshes itself shows this process.
        gpushare_testbed::eventually("the page asks again", LIMIT, || proxy.count(&part) > 0);
        let late = world.actor("came-later");
        assert!(late.takes(late.enter(0), 8192));
        (dump.join().expect("no panic"), late)
    });
    drop(late);
    let said = String::from_utf8_lossy(&dump.stderr);
    let page = String::from_utf8_lossy(&dump.stdout);
    assert!(page.contains("came-later"), "{page} {said}");
    assert!(
        page.contains("&lt;img src=x onerror=document.title=1&gt;"),
        "{page}"
    );
    assert!(
        !page.contains("<img src=\"x\"") && !page.contains("<title>1</title>"),
        "{page}"
    );
    assert!(
        page.contains("hidden=\"\""),
        "no message that the connection is lost: {page}"
    );
    // The browser reports what the page's policy forbids.
    assert!(!said.contains("Content Security Policy"), "{said}");
    let asked = proxy.requests.lock().expect("no panic");
    let others: Vec<_> = asked
        .iter()
        .filter(|request| !request.contains(site.token()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}
