//! gpushare-dra: the driver for Dynamic Resource Allocation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use gpushare_base::host::{artifacts, cdi};
use gpushare_dra::api::Api;
use gpushare_dra::claim::DRIVER;
use gpushare_dra::grpc;
use gpushare_dra::node::{self, Node};
use gpushare_dra::plugin::{Plugin, say};
use gpushare_dra::slices::{self, Gpu, Mode};
use gpushare_observe::source::nvml::Watch;
use shm_layout::text::PathText as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// Enforce Kubernetes claims on this node: their memory becomes a quota, their time slices a weight
///
/// A driver for Dynamic Resource Allocation (Kubernetes 1.34 and later); assets/k8s has all that a cluster needs.
/// Beside NVIDIA's driver it has one device, limits, by which a claim asks us to have its share of a GPU hold; with --mode gpus it
/// gives out the GPUs itself. It works as root beside a broker (gpushare serve --everyone), and asks the API server by curl.
#[derive(Debug, Parser)]
#[command(name = "gpushare-dra", version, max_term_width = 100)]
struct Options {
    /// This node's name in the cluster
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: String,
    /// What it offers
    #[arg(long, value_enum, default_value = "limits")]
    mode: Mode,
    /// The kubelet's directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet: PathBuf,
    /// Where the container runtime looks for CDI files
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    cdi: PathBuf,
    /// Copy the library into this directory of the machine; without it the library is mounted from where it is installed
    #[arg(long, value_name = "DIR")]
    library: Option<PathBuf>,
    /// The kind of CDI device that a GPU is, by UUID; empty for NVIDIA's runtime, which reads NVIDIA_VISIBLE_DEVICES
    #[arg(long, value_name = "KIND", default_value = "nvidia.com/gpu")]
    gpu_kind: String,
    /// The API server, where it is not the one of the pod's environment
    #[arg(long, value_name = "URL")]
    api_server: Option<String>,
    /// The folder with token and ca.crt
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    service_account: PathBuf,
}

/// Interval between two checks of the slice.
const ROUND: Duration = Duration::from_secs(30);
/// Maximum time for NVML to list the GPUs.
const NVML: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&why);
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), String> {
    let run = cdi::broker_dir();
    let devices = slices::devices(options.mode, &gpus(&options, &run)?);
    let own = options.kubelet.join("plugins").join(DRIVER);
    let registration = options
        .kubelet
        .join("plugins_registry")
        .join(format!("{DRIVER}-reg.sock"));
    let plugin = Arc::new(Plugin {
        api: Api::new(options.api_server, options.service_account)?,
        node: Mutex::new(Node {
            library: library(options.library.as_deref())?,
            run,
            notes: own.join("claims"),
            cdi: options.cdi,
            gpu_kind: Some(options.gpu_kind).filter(|kind| !kind.is_empty()),
        }),
        endpoint: own.join("dra.sock"),
        registered: Notify::new(),
    });
    for folder in [&own, &options.kubelet.join("plugins_registry")] {
        fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.shown()))?;
    }
    let heard = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
    let mut terminate = heard(SignalKind::terminate())?;
    let mut interrupt = heard(SignalKind::interrupt())?;
    let restored = Arc::clone(&plugin);
    let _ = tokio::task::spawn_blocking(move || restored.restore()).await;
    // The kubelet connects as soon as the second socket exists.
    let endpoint = listen(&plugin.endpoint)?;
    let registry = listen(&registration)?;
    let [first, second] =
        [endpoint, registry].map(|listener| grpc::serve(listener, Arc::clone(&plugin) as _));
    say(&format!("serving claims on node {}", options.node));
    let publishing = Arc::clone(&plugin);
    tokio::spawn(async move {
        loop {
            let (plugin, node, devices) = (
                Arc::clone(&publishing),
                options.node.clone(),
                devices.clone(),
            );
            let work = tokio::task::spawn_blocking(move || {
                match slices::publish(&plugin.api, &node, &devices) {
                    Ok(true) => say("the ResourceSlice is published"),
                    Ok(false) => {}
                    Err(why) => say(&format!("the ResourceSlice is not published: {why}")),
                }
            });
            let _ = work.await;
            let _ = tokio::time::timeout(ROUND, publishing.registered.notified()).await;
        }
    });
    let done = tokio::select! {
        done = first => done,
        done = second => done,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    // The claims stay prepared, because their pods continue.
    for socket in [&registration, &plugin.endpoint] {
        let _ = fs::remove_file(socket);
    }
    done.map_err(|error| format!("cannot serve the kubelet: {error}"))
}

fn listen(path: &Path) -> Result<tokio::net::UnixListener, String> {
    grpc::listen(path).map_err(|error| format!("cannot listen at {}: {error}", path.shown()))
}

/// Returns the GPUs if this driver allocates them, else none.
fn gpus(options: &Options, run: &Path) -> Result<Vec<Gpu>, String> {
    if options.mode == Mode::Limits {
        return Ok(Vec::new());
    }
    // The devices in the segments are left out: any process can enter one that does not exist.
    let nvml = Watch::once(run);
    nvml.settle(NVML);
    let devices = nvml.latest().devices.into_iter();
    let gpus: Vec<Gpu> = devices
        .map(|device| Gpu {
            uuid: device.uuid,
            product: device.name,
            bytes: device.total_bytes,
        })
        .collect();
    match gpus.is_empty() {
        true => Err("NVML lists no GPU on this node; give the container NVIDIA's driver libraries, or use --mode limits".into()),
        false => Ok(gpus),
    }
}

/// Returns the library's path on the machine. A copy replaces an older one in one step; running containers keep theirs.
fn library(to: Option<&Path>) -> Result<PathBuf, String> {
    let from = artifacts::library().map_err(|failure| failure.sentence)?;
    let Some(to) = to else {
        return Ok(from);
    };
    let bytes =
        fs::read(&from).map_err(|error| format!("cannot read {}: {error}", from.shown()))?;
    let path = to.join(artifacts::LIBRARY);
    if fs::read(&path).ok().as_ref() != Some(&bytes) {
        node::write(&path, &bytes)?;
    }
    Ok(path)
}
