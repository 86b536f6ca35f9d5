//! A node: a broker, the driver, a kubelet, and an API server that stores objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpushare_dra::messages::{
    Claim, Claims, DRA, PluginInfo, PrepareAnswer, Prepared, REGISTRATION, RegistrationStatus,
    UnprepareAnswer,
};
use gpushare_testbed::{Need, Watched, artifact, eventually, needs, python};
use prost::Message;
use serde_json::{Value, json};

pub const PATIENCE: Duration = Duration::from_secs(60);
/// The node's name.
pub const NODE: &str = "gpu01";
pub const POD: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
/// UID of a claim on a share of a device that several claims have in common.
pub const SHARE: &str = "9a1b2c3d-3333-4444-5555-666677778888";
/// The token that the API server requires.
const TOKEN: &str = "the-tokens-text";

/// Objects by their paths.
type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

/// A node. Its drop ends its processes.
pub struct Node {
    place: tempfile::TempDir,
    pub cdi: PathBuf,
    objects: Objects,
    url: String,
    broker: Option<Ended>,
    driver: Option<Watched>,
}

/// A process that ends when its guard is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Node {
    /// Returns `None` if the test has no root or no curl.
    pub fn new() -> Option<Self> {
        if !needs(Need::Root) || !needs(Need::Tool("curl")) {
            return None;
        }
        let place = tempfile::Builder::new()
            .prefix("k")
            .tempdir_in("/tmp")
            .expect("there is room");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path(), open).expect("ours");
        let account = place.path().join("account");
        fs::create_dir(&account).expect("ours");
        fs::write(account.join("token"), format!("{TOKEN}\n")).expect("ours");
        let (objects, url) = api_server();
        let node = json!({ "metadata": { "name": NODE, "uid": "uid-of-the-node" } });
        let cdi = place.path().join("cdi");
        let made = Self {
            place,
            cdi,
            objects,
            url,
            broker: None,
            driver: None,
        };
        made.put(&format!("/api/v1/nodes/{NODE}"), node);
        Some(made)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn run(&self) -> PathBuf {
        self.path("run")
    }

    /// Puts an object into the API server.
    pub fn put(&self, path: &str, object: Value) {
        self.objects
            .lock()
            .expect("whole")
            .insert(path.to_owned(), object);
    }

    pub fn delete(&self, path: &str) {
        self.objects.lock().expect("whole").remove(path);
    }

    pub fn object(&self, path: &str) -> Option<Value> {
        self.objects.lock().expect("whole").get(path).cloned()
    }

    pub fn serve(&mut self) {
        self.broker = None;
        let mut command = self.gpushare(&["serve", "--everyone"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("readable");
        assert!(line.contains("serving"), "{line:?}");
        self.broker = Some(Ended(child));
    }

    /// Ends all processes and removes all state in memory, as a reboot does.
    pub fn reboot(&mut self) {
        (self.driver, self.broker) = (None, None);
        for gone in ["run", "run-private", "cdi"] {
            let _ = fs::remove_dir_all(self.path(gone));
        }
    }

    pub fn gpushare(&self, words: &[&str]) -> Command {
        let mut command = Command::new(artifact("gpushare"));
        command.args(words).env("GPUSHARE_DIR", self.run());
        command
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let output = self.gpushare(words).output().expect("it runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Returns a claim's group at the broker.
    pub fn group(&self, name: &str) -> Option<Value> {
        let all = self.json(&["group", "show", "--json"]);
        let mut all = all["groups"].as_array().expect("a list").iter();
        all.find(|group| group["name"] == name && group["defined"] == true)
            .cloned()
    }

    /// Starts the driver, and waits until it listens.
    pub fn drive(&mut self, words: &[&str]) {
        let mut command = self.driver(words);
        let driver = Watched::spawn(&mut command);
        eventually("the driver listens", PATIENCE, || {
            assert!(!driver.ended(), "{}", driver.stderr());
            driver.stderr().contains("serving claims")
        });
        self.driver = Some(driver);
    }

    pub fn driver(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpushare-dra"));
        command
            .env("GPUSHARE_DIR", self.run())
            .env("GPUSHARE_LIB", artifact("libgpushare.so"))
            .args(["--node", NODE, "--api-server", &self.url])
            .arg("--kubelet")
            .arg(self.path("kubelet"))
            .arg("--cdi")
            .arg(&self.cdi)
            .arg("--service-account")
            .arg(self.path("account"))
            .args(words);
        command
    }

    /// Starts the driver with an API server that accepts connections and never replies. Returns the number of connections.
    pub fn drive_unanswered(&mut self) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let answering = std::mem::replace(&mut self.url, url);
        self.drive(&[]);
        self.url = answering;
        listener.set_nonblocking(true).expect("a socket");
        listener.incoming().map_while(Result::ok).count()
    }

    /// Kills the driver, as in a crash.
    pub fn kill_driver(&mut self) {
        self.driver = None;
    }

    /// Returns the driver's messages so far.
    pub fn log(&self) -> String {
        self.driver.as_ref().expect("it runs").stderr()
    }

    pub fn endpoint(&self) -> String {
        let path = self.path("kubelet/plugins/gpushare.dev/dra.sock");
        path.display().to_string()
    }

    pub fn registry(&self) -> PathBuf {
        self.path("kubelet/plugins_registry/gpushare.dev-reg.sock")
    }

    /// Stores an allocated claim of one pod in the API server.
    pub fn claim(&self, uid: &str, results: Value, config: Value) -> Claim {
        let name = format!("claim-{uid}");
        let object = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name, "namespace": "ml", "uid": uid,
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "train", "uid": POD }],
            },
            "spec": {},
            "status": {
                "allocation": { "devices": { "results": results, "config": config } },
                "reservedFor": [{ "resource": "pods", "name": "train", "uid": POD }],
            },
        });
        self.put(&claim_path(&name), object);
        Claim {
            namespace: "ml".into(),
            uid: uid.into(),
            name,
        }
    }
}

pub fn claim_path(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/{name}")
}

/// Returns a device that was allocated to a claim.
pub fn allocated(driver: &str, device: &str, memory: Option<&str>) -> Value {
    let request = device.split('-').next().expect("a word");
    let mut result = json!({
        "request": request, "driver": driver, "pool": NODE, "device": device, "shareID": SHARE,
    });
    if let Some(memory) = memory {
        result["consumedCapacity"] = json!({ "memory": memory });
    }
    result
}

/// A kubelet.
pub struct Kubelet {
    process: Watched,
    registry: PathBuf,
    endpoint: String,
    service: &'static str,
}

impl Kubelet {
    /// Makes a kubelet that registers the driver as the real one does, and uses this version of those offered. Returns `None`,
    /// with a message, if Google's gRPC cannot be installed.
    pub fn registering(node: &Node, version: &str) -> Option<Self> {
        let python = python(&["grpcio==1.85.1"])?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/kubelet.py");
        let mut kubelet = Self {
            process: Watched::spawn(Command::new(python).arg("-u").arg(script)),
            registry: node.registry(),
            endpoint: String::new(),
            service: "",
        };
        let info: PluginInfo = kubelet.register("GetInfo", &[]);
        assert_eq!((&*info.kind, &*info.name), ("DRAPlugin", "gpushare.dev"));
        assert!(Path::new(&info.endpoint).exists(), "{info:?}");
        let offered = DRA.iter().find(|(name, _)| *name == version);
        kubelet.service = offered.expect("a version").1;
        assert!(
            info.supported_versions.iter().any(|one| one == version),
            "{info:?}"
        );
        kubelet.endpoint = info.endpoint;
        let status = RegistrationStatus {
            plugin_registered: true,
            error: String::new(),
        };
        let _: RegistrationStatus =
            kubelet.register("NotifyRegistrationStatus", &status.encode_to_vec());
        Some(kubelet)
    }

    fn register<M: Message + Default>(&mut self, function: &str, message: &[u8]) -> M {
        let socket = self.registry.display().to_string();
        let said = self.call(&socket, &format!("/{REGISTRATION}/{function}"), message);
        M::decode(&*said.expect("an answer")).expect("a message")
    }

    /// Calls a function and returns the reply, or the gRPC code and a message.
    pub fn call(
        &mut self,
        socket: &str,
        function: &str,
        message: &[u8],
    ) -> Result<Vec<u8>, String> {
        let mut hex = String::new();
        message
            .iter()
            .for_each(|byte| write!(hex, "{byte:02x}").expect("text"));
        let said = self.process.ask(&format!("{socket} {function} {hex}"));
        let Some(hex) = said.strip_prefix("ok") else {
            return Err(said);
        };
        let hex = hex.trim();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        Ok((0..hex.len()).step_by(2).map(byte).collect())
    }

    pub fn ask_driver(&mut self, function: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        let (socket, service) = (self.endpoint.clone(), self.service);
        self.call(&socket, &format!("/{service}/{function}"), message)
    }

    pub fn prepare(&mut self, claim: &Claim) -> Prepared {
        let claims = Claims {
            claims: vec![claim.clone()],
        };
        let said = self.ask_driver("NodePrepareResources", &claims.encode_to_vec());
        let mut said = PrepareAnswer::decode(&*said.expect("an answer")).expect("a message");
        said.claims.remove(&claim.uid).expect("about this claim")
    }

    pub fn unprepare(&mut self, claim: &Claim) -> String {
        let claims = Claims {
            claims: vec![claim.clone()],
        };
        let said = self.ask_driver("NodeUnprepareResources", &claims.encode_to_vec());
        let mut said = UnprepareAnswer::decode(&*said.expect("an answer")).expect("a message");
        said.claims
            .remove(&claim.uid)
            .expect("about this claim")
            .error
    }
}

/// Runs an API server over plain HTTP: a client with the token may read, make and replace objects.
fn api_server() -> (Objects, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let objects = Objects::default();
    let kept = Arc::clone(&objects);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let _ = answer(socket, &kept);
        }
    });
    (objects, url)
}

fn answer(mut socket: TcpStream, objects: &Objects) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let (mut first, mut length, mut known) = (String::new(), 0, false);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        known |= line == format!("Authorization: Bearer {TOKEN}");
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    // The client of a driver that was killed has connected, and asks nothing.
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Ok(());
    };
    let path = path.to_owned();
    let mut objects = objects.lock().expect("whole");
    let missing = json!({ "kind": "Status", "message": "not found", "details": { "name": path.rsplit('/').next() } });
    let (code, said) = match method {
        _ if !known => (401, json!({ "message": "Unauthorized" })),
        "GET" => objects
            .get(&path)
            .map_or((404, missing), |object| (200, object.clone())),
        _ => {
            let mut object: Value = serde_json::from_slice(&body).expect("JSON");
            let name = object["metadata"]["name"].as_str().expect("a name");
            let (path, code) = match method {
                "POST" => (format!("{path}/{name}"), 201),
                _ => (path, 200),
            };
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            // A replaced object must be unchanged since it was read, and a created one must be new.
            let there = objects.get(&path);
            if there.is_some() != (method == "PUT")
                || there.map_or(Value::Null, version) != version(&object)
            {
                (
                    409,
                    json!({ "kind": "Status", "message": "conflict", "details": { "name": name } }),
                )
            } else {
                let next = version(&object)
                    .as_str()
                    .map_or(1, |old| old.parse::<u64>().expect("ours") + 1);
                object["metadata"]["resourceVersion"] = next.to_string().into();
                objects.insert(path, object.clone());
                (code, object)
            }
        }
    };
    let said = said.to_string();
    write!(
        socket,
        "HTTP/1.1 {code} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}",
        said.len()
    )
}
