//! `gpushare cdi generate`: the mounts and variables that a container tool must add.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;
use shm_layout::text::{self, PathText as _};
use shm_layout::variables;

use crate::{Done, json};
use gpushare_base::host::{artifacts, cdi, output};
use gpushare_base::text::exit::{Exit, Failure};

/// Let podman, docker and containerd give containers a share of a GPU
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub enum Verb {
    Generate(Args),
}

/// Write the CDI file of the devices gpushare.dev/share=8g and the like
///
/// --device gpushare.dev/share=8g mounts the broker's directory and the library, preloads it and limits the
/// container's processes to 8 GiB each; share=all sets no limit. The GPU itself is another device, nvidia.com/gpu=0
/// for instance, and the container's user must be one that the broker serves.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes to offer
    #[arg(value_name = "SIZE", default_values_t = SIZES.map(String::from))]
    sizes: Vec<String>,
    /// Write to this file, /etc/cdi/gpushare.json for instance, instead of standard output; missing folders are made
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

const SIZES: [&str; 10] = [
    "1g", "2g", "4g", "8g", "16g", "24g", "32g", "40g", "64g", "80g",
];
const KIND: &str = "gpushare.dev/share";

pub fn run(verb: &Verb, out: &mut dyn Write) -> Done {
    let Verb::Generate(args) = verb;
    let library = artifacts::library()?;
    let dir = cdi::broker_dir();
    let document = document(
        &args.sizes,
        &dir.display().to_string(),
        &library.display().to_string(),
    )?;
    let Some(path) = &args.output else {
        return json(out, &document);
    };
    let text = serde_json::to_string_pretty(&document)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let cannot = |error| Failure::failed(format!("cannot make {}: {error}", folder.shown()));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    output::whole_file(path, |file| Ok(writeln!(file, "{text}")?))?;
    writeln!(
        out,
        "{}: written; podman run --device {KIND}=8g …",
        path.shown()
    )?;
    Ok(Exit::Done)
}

fn document(sizes: &[String], dir: &str, library: &str) -> Result<Value, Failure> {
    let device = |name: &str, env| cdi::Device {
        name: name.to_owned(),
        env,
    };
    let mut devices = vec![device("all", Vec::new())];
    for size in sizes {
        let bytes =
            text::parse_size(size).map_err(|error| Failure::usage(format!("{size}: {error}")))?;
        let plain = size
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
        if !plain {
            return Err(Failure::usage(format!(
                "{size}: give a size of letters and digits, 8g for instance"
            )));
        }
        let limit = (variables::MEMORY.to_owned(), text::format_size(bytes));
        devices.push(device(size, vec![limit]));
    }
    Ok(cdi::document(KIND, dir, library, &devices))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_sets_the_limit_that_its_name_says() {
        let document =
            document(&["8g".into()], "/run/gpushare", "/opt/libgpushare.so").expect("sizes");
        assert_eq!(document["devices"][1]["name"], "8g");
        assert_eq!(
            document["devices"][1]["containerEdits"]["env"][1],
            "GPUSHARE_MEMORY=8GiB"
        );
        assert_eq!(
            document["containerEdits"]["mounts"][1]["hostPath"],
            "/opt/libgpushare.so"
        );
        assert!(super::document(&["8q".into()], "", "").is_err());
        assert!(super::document(&["8 g".into()], "", "").is_err());
    }
}
