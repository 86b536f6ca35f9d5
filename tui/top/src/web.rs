//! The dashboard in a browser (`--web`): the page of [`page`], which refreshes itself.
//!
//! A client needs the token of the address that is printed once. It only reads: nothing that it sends changes anything, and no rule
//! of the settings acts. The Host of each request must be this machine's, so that no page of another site that made its name lead
//! here is answered. The page's policy lets only its own script run, and load nothing but the page itself.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::say;
use crate::state::State;
use crate::view::{Look, page};
use gpushare_observe::http::{
    self, Answer, Request, Site, is_address, is_same_secret, names_loopback, without_port,
};
use gpushare_observe::source::{Source, locked};

/// Parses an address: an IP address, a port, or both. The port 0 is any free one.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let whole = text.parse::<SocketAddr>().ok();
    let of_ip = || text.parse().ok().map(|ip| SocketAddr::new(ip, 0));
    let of_port = || text.parse().ok().map(|port| SocketAddr::new(here, port));
    whole.or_else(of_ip).or_else(of_port).ok_or_else(|| {
        "write a port, an address of this machine, or both: 8080, 127.0.0.1:8080, [::1]:8080".into()
    })
}

/// Serves what a source shows until the program is ended.
pub fn serve(
    address: SocketAddr,
    mut source: Box<dyn Source>,
    mut state: State,
    look: Look,
    pace: Duration,
) -> Result<()> {
    (state.choices.read_only, state.choices.keyless) = (true, true);
    let first = state.choices.wanted_gpu.unwrap_or(0);
    let listener = http::listen(address)?;
    // The first sample comes before the address is printed, so that an unusable segment is reported instead.
    let Some(sample) = source.next()? else {
        bail!("there is nothing in the recording");
    };
    let name = sample.host.clone();
    state.update(sample);
    let site = Arc::new(Web {
        state: Mutex::new(state),
        look,
        token: random()?,
        name,
        first,
    });
    site.announce(listener.local_addr()?)?;
    let server = {
        let site = Arc::clone(&site);
        thread::Builder::new()
            .name("web".into())
            .spawn(move || http::serve(&site, &listener))?
    };
    while !server.is_finished() {
        thread::sleep(source.pace().unwrap_or(pace));
        // At the end of a recording its last moment stays.
        if let Some(sample) = source.next()? {
            let mut state = locked(&site.state);
            state.update(sample);
            state.take_actions();
        }
    }
    match server.join() {
        Ok(ended) => Ok(ended?),
        Err(_) => bail!("the page is no longer served"),
    }
}

/// Returns 128 random bits as hexadecimal digits.
fn random() -> Result<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.context("/dev/urandom cannot be read")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The site, with all that its pages are made of.
struct Web {
    state: Mutex<State>,
    look: Look,
    token: String,
    /// The name of the machine.
    name: String,
    /// The device that the address without a device shows.
    first: usize,
}

/// A page of the site.
enum Place {
    /// The page of a device.
    Page(usize),
    /// The part of it that changes.
    Part(usize),
    /// The address without its last slash.
    Unfinished,
}

impl Web {
    /// Prints the address of the page to standard output.
    fn announce(&self, address: SocketAddr) -> Result<()> {
        let (ip, port) = (address.ip(), address.port());
        let host = match ip.is_unspecified() {
            true => format!("{}:{port}", self.name),
            false => address.to_string(),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "http://{host}/{}/", self.token)?;
        out.flush()?;
        say("whoever has this address can watch until ^C ends this; nothing can be changed there");
        if !ip.is_loopback() {
            say(&format!(
                "{ip} can be reached from other machines, and nothing is encrypted; without an address, and with \
                 ssh -L {port}:127.0.0.1:{port}, only you can read it"
            ));
        }
        Ok(())
    }

    fn admits(&self, host: &str) -> bool {
        let name = without_port(host);
        names_loopback(host) || is_address(host) || name.eq_ignore_ascii_case(&self.name)
    }

    /// Returns the page behind a path; `None` for a wrong token or an unknown page.
    fn place(&self, path: &str) -> Option<Place> {
        let path = path.strip_prefix('/')?;
        let (token, rest) = match path.split_once('/') {
            Some((token, rest)) => (token, Some(rest)),
            None => (path, None),
        };
        if !is_same_secret(token.as_bytes(), self.token.as_bytes()) {
            return None;
        }
        let gpu = |text: &str| text.parse().ok();
        match rest {
            None => Some(Place::Unfinished),
            Some("") => Some(Place::Page(self.first)),
            Some(rest) => match rest.strip_prefix("part/") {
                Some(of) => gpu(of).map(Place::Part),
                None => gpu(rest).map(Place::Page),
            },
        }
    }

    /// Makes a page of the state of a device; `None` if there is no such device.
    fn page(&self, gpu: usize, write: impl FnOnce(&State) -> String) -> Option<String> {
        let mut state = locked(&self.state);
        if gpu > 0 && gpu >= state.data().sample.devices.len() {
            return None;
        }
        state.show_gpu(gpu);
        Some(write(&state))
    }

    /// Returns the page of a device and its policy.
    fn whole(&self, gpu: usize) -> Option<(String, String)> {
        let nonce = random().ok()?;
        let part = format!("part/{gpu}");
        let page = self.page(gpu, |state| page::live(state, &self.look, &part, &nonce))?;
        let policy = format!(
            "default-src 'none'; img-src data:; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'"
        );
        Some((page, policy))
    }
}

impl Site for Web {
    fn check(&self, request: &Request) -> Result<(), Answer> {
        if !self.admits(&request.host) {
            return Err(Answer::refused(
                "421 Misdirected Request",
                "use this machine's address, its name, or localhost",
            ));
        }
        match self.place(&request.path) {
            Some(_) => Ok(()),
            None => Err(Answer::refused(
                "404 Not Found",
                "use the whole address that gpushare-top --web printed; each start has a new one",
            )),
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let written = match self.place(&request.path) {
            Some(Place::Unfinished) => {
                let mut answer = Answer::refused("308 Permanent Redirect", "the page is in there");
                answer.headers = format!("Location: /{}/\r\n", self.token);
                return answer;
            }
            Some(Place::Page(gpu)) => self.whole(gpu),
            Some(Place::Part(gpu)) => self
                .page(gpu, |state| page::part(state, &self.look))
                .map(|part| (part, "default-src 'none'; sandbox".to_owned())),
            None => None,
        };
        let Some((body, policy)) = written else {
            return Answer::refused("404 Not Found", "this machine has no such GPU");
        };
        let mut answer = Answer::page("text/html; charset=utf-8", body);
        answer.headers = format!(
            "Content-Security-Policy: {policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n"
        );
        answer.pack(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_an_ip_or_both_and_on_loopback_if_it_does_not_say() {
        let read = |text: &str| address(text).map(|address| address.to_string());
        for (text, meant) in [
            ("8080", "127.0.0.1:8080"),
            ("127.0.0.1", "127.0.0.1:0"),
            ("::1", "[::1]:0"),
            ("[::1]:80", "[::1]:80"),
            ("0.0.0.0:80", "0.0.0.0:80"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(meant));
        }
        for wrong in ["", "gpu01", "70000", "1.2.3:80"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
