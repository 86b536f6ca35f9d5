//! `gpushare mps status`: the state of MPS and its clients.

use std::collections::HashMap;
use std::io::Write;

use shm_layout::{Liveness, SegmentDir, Segments, clock, snapshot};

use crate::{Done, json, segments};
use gpushare_base::host::mps::{PATIENCE, Place, State, command};
use gpushare_base::host::pids::HostPids;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units::short_time;
use gpushare_sample::keys::object;
use gpushare_sample::{LONG_KERNEL_NS, SCHEMA_VERSION};

/// Show whether MPS runs for this directory, its servers and their clients
///
/// Exits with 1 if the control daemon is there and does not answer.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write JSON: null where there is none
    #[arg(long)]
    json: bool,
}

object! {
    /// The document that `--json` writes.
    pub Document(found: Found, place: Place) {
        schema_version: u32 = SCHEMA_VERSION, "Grows when a key changes its meaning or goes away.";
        running: Option<bool> = found.running, "Whether MPS runs for this directory and answers; null when its control daemon does not answer.";
        problem: Option<String> = found.problem, "What the control daemon did in place of an answer; null where it answered or does not run.";
        pid: Option<u32> = found.pid, "The control daemon; null when it does not run.";
        pipe_directory: String = place.pipe.display().to_string(), "The value of CUDA_MPS_PIPE_DIRECTORY for its clients.";
        log_directory: String = place.log.display().to_string(), "Where it and its servers write control.log and server.log.";
        servers: Option<Vec<Server>> = found.servers, "The servers, one for each user with clients; empty before the first client, null when MPS does not run or does not answer.";
    }
}

object! {
    /// A process that runs the kernels of its clients.
    pub Server(server_pid: u32, says: Option<String>, of: Vec<Client>) {
        pid: u32 = server_pid, "The server, which is in NVML's process list too.";
        status: Option<String> = says, "What it says of itself: ACTIVE, or FAULT after a client's kernel failed, until all clients have ended; null where it does not say.";
        clients: Vec<Client> = of, "The programs whose kernels it runs.";
    }
}

object! {
    /// A program under MPS.
    pub Client(client_pid: u32, known: Option<&Known>) {
        pid: u32 = client_pid, "The program.";
        name: Option<String> = known.map(|known| known.label.clone()).or_else(|| command(client_pid)), "Its name in gpushare, or that of its command; null when it has ended.";
        managed: bool = known.is_some(), "Whether the preloaded library counts it.";
        submission_ns: Option<u64> = known.map(|known| known.submission_ns).filter(|ns| *ns != 0), "Mean time of a kernel or graph of it while no other process used the GPU; null where it was not measured.";
    }
}

/// The facts about a client that the preloaded library counts.
pub struct Known {
    label: String,
    submission_ns: u64,
}

/// Status of a server after a fault.
const FAULT: &str = "FAULT";

/// The state that the daemon reports.
pub struct Found {
    running: Option<bool>,
    problem: Option<String>,
    pid: Option<u32>,
    servers: Option<Vec<Server>>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let place = Place::existing(&dir.path)?;
    let place = place.map_or_else(|| Place::of(&dir.path), Ok)?;
    let found = look(&dir, &place);
    let exit = if found.problem.is_some() {
        Exit::Failed
    } else {
        Exit::Done
    };
    if args.json {
        json(out, &Document::of(found, place))?;
        return Ok(exit);
    }
    let dir = dir.path.display();
    let pid = found.pid.unwrap_or(0);
    match (&found.problem, &found.servers) {
        (Some(problem), _) => {
            return Err(Failure::failed(format!(
                "control daemon {pid} of MPS runs for {dir} and does not answer: {problem}"
            )));
        }
        (None, None) => {
            writeln!(
                out,
                "MPS does not run for {dir}; gpushare mps start starts it"
            )?;
        }
        (None, Some(servers)) => {
            writeln!(out, "MPS runs for {dir}: control daemon {pid}")?;
            if servers.iter().all(|server| server.clients.is_empty()) {
                writeln!(out, "no clients")?;
            }
            for server in servers {
                if server.status.as_deref() == Some(FAULT) {
                    writeln!(
                        out,
                        "server {} takes no new client, because a kernel of one failed: end all its clients",
                        server.pid
                    )?;
                }
                for client in &server.clients {
                    write!(out, "client {} of server {}", client.title(), server.pid)?;
                    let delays = client.delays().filter(|_| server.clients.len() > 1);
                    writeln!(
                        out,
                        "{}",
                        delays.map_or_else(String::new, |why| format!(": {why}"))
                    )?;
                }
            }
        }
    }
    Ok(exit)
}

fn look(dir: &SegmentDir, place: &Place) -> Found {
    let (pid, servers) = match place.state(PATIENCE) {
        State::Off => {
            return Found {
                running: Some(false),
                problem: None,
                pid: None,
                servers: None,
            };
        }
        State::On { pid, servers } => (pid, clients(dir, place, servers)),
        State::Silent { pid, why } => (pid, Err(why)),
    };
    let (servers, problem) = match servers {
        Ok(servers) => (Some(servers), None),
        Err(why) => (None, Some(why)),
    };
    Found {
        running: servers.is_some().then_some(true),
        problem,
        pid: Some(pid),
        servers,
    }
}

/// Returns the servers with their clients.
pub fn clients(dir: &SegmentDir, place: &Place, servers: Vec<u32>) -> Result<Vec<Server>, String> {
    let known = known(dir);
    let mut all = Vec::new();
    for server in servers {
        let pids = place.clients(server)?.into_iter();
        let client = |pid| Client::of(pid, known.get(&pid));
        let status = place.status(server);
        all.push(Server::of(server, status, pids.map(client).collect()));
    }
    Ok(all)
}

/// Returns what is known of each process of the segments, by its pid on this machine.
fn known(dir: &SegmentDir) -> HashMap<u32, Known> {
    let Ok(segments) = Segments::open_viewer(&dir.path) else {
        return HashMap::new();
    };
    let mut pids = HostPids::new();
    let living = snapshot(&segments, clock::now()).processes.into_iter();
    living
        .filter(|process| process.alive != Liveness::Dead)
        .filter_map(|process| {
            let pid = pids.resolve(&process.identity)?;
            let longest = process.devices.iter().map(|device| device.submission_ns);
            let submission_ns = longest.max().unwrap_or(0);
            let label = process.identity.label;
            Some((
                pid,
                Known {
                    label,
                    submission_ns,
                },
            ))
        })
        .collect()
}

impl Server {
    /// Returns the titles of its clients.
    pub fn titles(&self) -> impl Iterator<Item = String> {
        self.clients.iter().map(Client::title)
    }
}

impl Client {
    fn title(&self) -> String {
        let name = plain(self.name.as_deref().unwrap_or("(ended)"));
        let managed = if self.managed { "" } else { " (unmanaged)" };
        format!("{} {name}{managed}", self.pid)
    }

    /// Returns what its kernels cost the other clients, as the end of a sentence; `None` if they are short.
    fn delays(&self) -> Option<String> {
        let each_ns = self.submission_ns.filter(|ns| *ns >= LONG_KERNEL_NS)?;
        Some(format!(
            "its kernels of {} delay the others by up to that long each; gpushare run --no-mps keeps it out",
            short_time(each_ns)
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use gpushare_sample::testing::explains;

    #[test]
    fn every_key_of_the_json_is_explained() {
        let known = Known {
            label: "train".into(),
            submission_ns: 1,
        };
        let client = Client::of(std::process::id(), Some(&known));
        let found = Found {
            running: Some(true),
            problem: None,
            pid: Some(1),
            servers: Some(vec![Server::of(2, Some(FAULT.into()), vec![client])]),
        };
        let place = Place::of(Path::new("/dev/shm/x")).expect("absolute");
        explains(&Document::of(found, place));
    }
}
