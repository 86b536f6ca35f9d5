//! A stand-in for NVIDIA's `nvidia-cuda-mps-control`, for the simulated GPU: `-d` starts the daemon, and each line on stdin is
//! a command.
//!
//! The daemon and its server are two processes that only exist. The world records which processes are clients, and the
//! simulated device runs their kernels. The daemon ends when its pid file is gone, and the server ends with the daemon.

#![allow(clippy::print_stdout, reason = "its answers are on stdout")]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use gpushare_sim::{World, mps, process};

/// Process names in the kernel: the first 15 bytes of NVIDIA's names.
const DAEMON: &str = "nvidia-cuda-mps";
const SERVER: &str = "nvidia-cuda-mps-server";

fn main() -> ExitCode {
    let Some(pipe) = std::env::var_os(mps::PIPE_DIRECTORY).map(PathBuf::from) else {
        return fails("CUDA_MPS_PIPE_DIRECTORY is not set");
    };
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        Some("-d") => start(&pipe),
        Some("daemon") => daemon(&pipe),
        Some("server") => server(),
        None => {
            let mut line = String::new();
            let _ = std::io::stdin().read_to_string(&mut line);
            obey(&pipe, line.trim())
        }
        Some(other) => fails(&format!("{other} is not an option")),
    }
}

fn fails(why: &str) -> ExitCode {
    println!("{}", gpushare_sim::note::shown(why));
    ExitCode::FAILURE
}

/// Returns a command that runs this program again, without the terminal.
fn again(argument: &str) -> Command {
    let own = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(own);
    let quiet = || Stdio::null();
    command.arg(argument).stdin(quiet()).stdout(quiet());
    command.stderr(quiet()).process_group(0);
    command
}

fn start(pipe: &Path) -> ExitCode {
    if mps::running(&pipe.join(mps::DAEMON)).is_some() {
        return fails("An instance of this daemon is already running");
    }
    if let Err(error) = again("daemon").arg0(DAEMON).spawn() {
        return fails(&format!("cannot start the daemon: {error}"));
    }
    // NVIDIA's program returns as soon as it has forked. This one returns when the daemon accepts commands.
    for _ in 0..500 {
        if mps::running(&pipe.join(mps::DAEMON)).is_some() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    fails("the daemon did not start")
}

fn daemon(pipe: &Path) -> ExitCode {
    name(DAEMON);
    let mut above = again("server");
    above.arg0(SERVER).stdin(Stdio::piped());
    let Ok(mut server) = above.spawn() else {
        return ExitCode::FAILURE;
    };
    let file = pipe.join(mps::DAEMON);
    let own = format!("{}\n", std::process::id());
    let written = std::fs::write(pipe.join(mps::SERVER), format!("{}\n", server.id()))
        .and_then(|()| std::fs::write(&file, &own));
    if written.is_ok() {
        while std::fs::read_to_string(&file).is_ok_and(|now| now == own) && runs(&mut server) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = std::fs::remove_file(pipe.join(mps::SERVER));
        let _ = std::fs::remove_file(&file);
    }
    let _ = server.kill();
    let _ = server.wait();
    ExitCode::SUCCESS
}

fn runs(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Runs the server, which ends with the daemon: the daemon holds the other end of its stdin.
fn server() -> ExitCode {
    name(SERVER);
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// Sets the name of this process in `/proc`.
fn name(name: &str) {
    let _ = std::fs::write("/proc/self/comm", name);
}

fn obey(pipe: &Path, line: &str) -> ExitCode {
    let file = pipe.join(mps::DAEMON);
    let (Some(_), Some(server)) = (mps::running(&file), mps::running(&pipe.join(mps::SERVER)))
    else {
        return fails("Cannot find MPS control daemon process");
    };
    let clients = || match World::open() {
        Ok(world) => {
            process::reap(&world);
            mps::clients(&world, server)
        }
        Err(_) => Vec::new(),
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    match *words {
        // As in NVIDIA's MPS, there is no server before the first client.
        ["get_server_list"] if clients().is_empty() => {}
        ["get_server_list"] => println!("{server}"),
        ["get_client_list", asked] => {
            if asked != server.to_string() {
                return fails("Server not found");
            }
            clients().iter().for_each(|client| println!("{client}"));
        }
        ["get_server_status", _] => {
            let faulty = World::open().is_ok_and(|world| mps::is_faulty(&world, server));
            println!("{}", if faulty { "FAULT" } else { "ACTIVE" });
        }
        // The daemon ends after its last client; the caller repeats the command until then.
        ["quit"] if clients().is_empty() => drop(std::fs::remove_file(file)),
        ["quit"] => {}
        ["quit", "-t", _] => {
            if let Ok(world) = World::open() {
                mps::end(&world, server);
            }
            drop(std::fs::remove_file(file));
        }
        _ => return fails(&format!("unknown command: {line}")),
    }
    ExitCode::SUCCESS
}
