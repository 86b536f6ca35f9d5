//! `gpushare slurm install`: the lines that Slurm's files need.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use shm_layout::text::PathText as _;

use crate::Done;
use gpushare_base::host::artifacts;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_launch::program::wrong_value;
use gpushare_launch::slurm::Shard;

/// Print what to add to slurm.conf, gres.conf and plugstack.conf, or write what is gpushare's own
///
/// Run it on a node that has the GPUs, and give all nodes the same files. No file of Slurm's is changed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of shards of each GPU
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=100))]
    shards: u8,
    /// Memory of a shard [default: its part of the GPU]
    #[arg(long, value_name = "SIZE|1/N")]
    shard: Option<String>,
    /// Write plugstack.conf.d/gpushare.conf and the hooks without SPANK into this directory, /etc/slurm for instance
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let shard = match &args.shard {
        Some(text) => {
            let read = text.parse::<Shard>();
            read.map_err(|error| wrong_value("--shard", &error))?;
            text.clone()
        }
        None => format!("1/{}", args.shards),
    };
    let program = std::env::current_exe()?.display().to_string();
    let plugin = artifacts::find(artifacts::SPANK)?.display().to_string();
    let awkward =
        |text: &String| text.contains(|c: char| c.is_whitespace() || "'\"\\#%$".contains(c));
    if let Some(path) = [&plugin, &program, &shard]
        .into_iter()
        .find(|text| awkward(text))
    {
        return Err(Failure::failed(format!(
            "{path:?} has a character that Slurm's files cannot hold; install gpushare at a path without it"
        )));
    }
    let place = args.write.clone().unwrap_or_else(|| "/etc/slurm".into());
    let files = [
        (
            "plugstack.conf.d/gpushare.conf",
            0o644,
            stack(&plugin, &program, &shard),
        ),
        (
            "gpushare-task-prolog",
            0o755,
            script(&program, &format!("task-prolog --shard {shard}")),
        ),
        ("gpushare-epilog", 0o755, script(&program, "epilog")),
    ];
    for (name, mode, text) in &files {
        let path = place.join(name);
        match &args.write {
            Some(_) => {
                write(&path, *mode, text)?;
                writeln!(out, "{}: written", path.shown())?;
            }
            None => writeln!(out, "# {}\n{text}", path.shown())?,
        }
    }
    let gpus = gpus();
    let count = gpus.len() * usize::from(args.shards);
    let place = place.display();
    writeln!(
        out,
        "# plugstack.conf: add\ninclude {place}/plugstack.conf.d/*\n"
    )?;
    writeln!(
        out,
        "# slurm.conf: add, with the Gres of each node\nGresTypes=gpu,shard\nNodeName=... Gres=gpu:{},shard:{count}\n",
        gpus.len()
    )?;
    writeln!(out, "# gres.conf on this node")?;
    for gpu in &gpus {
        writeln!(out, "Name=gpu File={gpu}")?;
    }
    for gpu in &gpus {
        writeln!(out, "Name=shard Count={} File={gpu}", args.shards)?;
    }
    writeln!(
        out,
        "\n# Without SPANK, instead of the line in plugstack.conf, in slurm.conf (there is no --gpu-mem then)\nTaskProlog={place}/gpushare-task-prolog\nEpilog={place}/gpushare-epilog\n"
    )?;
    writeln!(
        out,
        "# Then: scontrol reconfigure, restart slurmd on the nodes, and gpushare slurm check on each"
    )?;
    Ok(Exit::Done)
}

/// Returns the plugin's line. With `optional`, jobs run and report a plugin that cannot be loaded; with `required` they
/// would not start and nodes would be drained.
fn stack(plugin: &str, program: &str, shard: &str) -> String {
    format!("optional {plugin} program={program} shard={shard}\n")
}

/// Returns a script without arguments, because Slurm's settings take only the path of a program.
fn script(program: &str, words: &str) -> String {
    format!("#!/bin/sh\n{program} slurm {words} || :\n")
}

fn write(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::failed(format!("cannot write {}: {error}", path.shown()));
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(cannot)?;
    fs::write(path, text).map_err(cannot)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(cannot)
}

/// Returns the device files of this node's GPUs, or one as an example if there is none.
fn gpus() -> Vec<String> {
    let there = |number: &u32| Path::new(&format!("/dev/nvidia{number}")).exists();
    let numbers: Vec<u32> = (0..64).filter(there).collect();
    let numbers = if numbers.is_empty() { vec![0] } else { numbers };
    let name = |number: u32| format!("/dev/nvidia{number}");
    numbers.into_iter().map(name).collect()
}
