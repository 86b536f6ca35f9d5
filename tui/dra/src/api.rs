//! A client of the API server. It runs curl, which is maintained and supports TLS and proxies, because a claim takes only a
//! request or two.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Path of the API for claims and slices.
pub const RESOURCES: &str = "/apis/resource.k8s.io/v1";

/// The address of the API server, and the credentials.
#[derive(Debug)]
pub struct Api {
    url: String,
    /// Folder with `token` and `ca.crt`, as Kubernetes puts it into a pod.
    account: PathBuf,
}

/// The reason why a request failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The object does not exist.
    Missing,
    /// Another client has changed or made the object in between.
    Conflict,
    /// Any other reason, as a sentence.
    Failed(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such object"),
            Self::Conflict => f.write_str("it was changed meanwhile"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl Api {
    /// Makes a client for this URL; without one, for the URL in a pod's environment.
    pub fn new(url: Option<String>, account: PathBuf) -> Result<Self, String> {
        let of_pod = || {
            let get = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
            let host = get("KUBERNETES_SERVICE_HOST")?;
            let port = get("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
            let host = if host.contains(':') {
                format!("[{host}]")
            } else {
                host
            };
            Some(format!("https://{host}:{port}"))
        };
        let url = url.or_else(of_pod).ok_or(
            "KUBERNETES_SERVICE_HOST is not set: run it in a pod, or say --api-server URL",
        )?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            account,
        })
    }

    /// Reads an object.
    pub fn get(&self, path: &str) -> Result<Value, Unanswered> {
        self.ask("GET", path, None)
    }

    /// Makes an object.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value, Unanswered> {
        self.ask("POST", path, Some(object))
    }

    /// Replaces an object. Fails if it has changed since it was read.
    pub fn replace(&self, path: &str, object: &Value) -> Result<Value, Unanswered> {
        self.ask("PUT", path, Some(object))
    }

    fn ask(&self, method: &str, path: &str, object: Option<&Value>) -> Result<Value, Unanswered> {
        let failed = |why: String| Unanswered::Failed(format!("{method} {path}: {why}"));
        let said = self
            .curl(method, path, object)
            .map_err(|error| failed(error.to_string()))?;
        let (body, code) = said.rsplit_once('\n').unwrap_or(("", &said));
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        match code {
            "200" | "201" => Ok(body),
            "404" if body["details"]["name"].is_string() => Err(Unanswered::Missing),
            "404" => Err(failed(
                "this API server does not know it; Kubernetes 1.34 or later has resource.k8s.io/v1"
                    .into(),
            )),
            "409" => Err(Unanswered::Conflict),
            _ => Err(failed(format!(
                "{code}: {}",
                body["message"].as_str().unwrap_or("no message")
            ))),
        }
    }

    /// Runs curl. Returns the body, with the status in a line of its own at the end. Secrets are passed through a pipe,
    /// because every user can read arguments.
    fn curl(&self, method: &str, path: &str, object: Option<&Value>) -> io::Result<String> {
        let mut lines = vec![
            ("url", format!("{}{path}", self.url)),
            ("request", method.to_owned()),
            ("write-out", "\\n%{http_code}".to_owned()),
        ];
        let authority = self.account.join("ca.crt");
        if authority.exists() {
            lines.push(("cacert", quoted(&authority.display().to_string())));
        }
        // The token is read for each request, because the kubelet renews it.
        if let Ok(token) = std::fs::read_to_string(self.account.join("token")) {
            lines.push(("header", format!("Authorization: Bearer {}", token.trim())));
        }
        if let Some(object) = object {
            lines.push(("header", "Content-Type: application/json".to_owned()));
            lines.push(("data-raw", quoted(&object.to_string())));
        }
        let config: String = lines
            .iter()
            .map(|(name, value)| format!("{name} = \"{value}\"\n"))
            .collect();
        let mut command = Command::new("curl");
        command
            .args([
                "--disable",
                "--silent",
                "--show-error",
                "--max-time",
                "10",
                "--config",
                "-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut curl = command.spawn().map_err(|error| {
            io::Error::other(format!("curl cannot be started, install it: {error}"))
        })?;
        if let Some(mut stdin) = curl.stdin.take() {
            stdin.write_all(config.as_bytes())?;
        }
        let output = curl.wait_with_output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(why));
        }
        String::from_utf8(output.stdout).map_err(io::Error::other)
    }
}

/// Escapes a text for the quotes in curl's settings.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
