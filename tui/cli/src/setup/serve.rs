//! `gpushare serve`: the broker of a machine with many users.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;

use crate::watch::metrics;
use crate::watch::metrics::Server;
use crate::{Done, note};
use gpushare_base::host::cdi;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::groups;
use gpushare_broker as broker;
use gpushare_broker::Options;
use gpushare_observe::http;
use gpushare_observe::source::live::Live;

/// Serve the shared segments to the users of this machine, as root
///
/// Each process is told by the kernel's word, not by its own; settings are changed by root and by the
/// administrators' group, and everyone may lower, pause, resume, name and trace their own processes. Programs go on
/// when it ends, and a new one finds everything as it was. It stays in the foreground;
/// assets/systemd/gpushare.service starts it at every boot.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Group whose members' programs are managed [default: only root's programs are]
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Manage the programs of all users of the machine, also of those in other user namespaces
    #[arg(long, conflicts_with = "group")]
    everyone: bool,
    /// Group whose members may change every setting, like root
    #[arg(long, value_name = "GROUP")]
    admin_group: Option<String>,
    /// Maximum number of managed processes of one user, or of one container that root has made
    #[arg(long, value_name = "N", default_value_t = 192,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    per_user: u16,
    /// Highest priority that a launch may ask for; administrators and their rules can set a higher one
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true,
          value_parser = clap::value_parser!(i32).range(-20..=19))]
    launch_priority: i32,
    /// Highest weight that a launch may ask for; administrators and their rules can set a higher one
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    launch_weight: u32,
    /// Also serve http://ADDRESS/metrics to Prometheus, as gpushare metrics --listen does
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Give metrics only to clients that send the token in this file
    #[arg(long, value_name = "FILE")]
    metrics_token_file: Option<PathBuf>,
    /// Take over from the running broker; programs continue without interruption
    #[arg(long)]
    upgrade: bool,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::not_permitted(
            "only root can serve a machine; for your own programs no broker is needed: start them with gpushare run",
        ));
    }
    let group = |name: &Option<String>| name.as_deref().map(groups::number).transpose();
    let options = Options {
        dir: cdi::broker_dir(),
        group: group(&args.group)?,
        everyone: args.everyone,
        admins: group(&args.admin_group)?,
        per_user: usize::from(args.per_user),
        launch: (args.launch_priority, args.launch_weight),
        upgrade: args.upgrade,
    };
    let metrics = listener(args)?
        .map(|listener| {
            let address = listener.local_addr()?;
            let access = metrics::access(address, args.metrics_token_file.as_deref())?;
            // Where NVML does not load, as under the unit's PrivateDevices, the page lacks its figures.
            let live = Live::new(&options.dir, true);
            Ok::<_, Failure>((listener, address, Server::new(live, access)))
        })
        .transpose()?;
    broker::serve(options, |ready| {
        // Errors are ignored, because standard output may have no reader.
        let mut say = |line: &str| drop(writeln!(out, "{line}").and_then(|()| out.flush()));
        say(ready);
        if let Some((listener, address, server)) = metrics {
            say(&format!("metrics: http://{address}/metrics"));
            let serve = move || server.run(&listener);
            if let Err(error) = thread::Builder::new().name("metrics".into()).spawn(serve) {
                note(&format!("metrics are not served: {error}"));
            }
        }
    })?;
    Ok(Exit::Done)
}

/// Returns the listener for metrics: on the requested address, or the socket of the service manager.
fn listener(args: &Args) -> Result<Option<TcpListener>, Failure> {
    let given = broker::handed(METRICS).map(TcpListener::from);
    match (args.metrics, given) {
        (Some(address), _) => http::listen(address).map(Some),
        (None, given) => Ok(given),
    }
}

/// Name of the metrics socket among those of the service manager.
const METRICS: &str = "metrics";
