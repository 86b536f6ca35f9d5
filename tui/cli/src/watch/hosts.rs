//! `gpushare ps --hosts`: the processes of other machines.

use std::io::Write;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::table::{LONGEST_NAME, SHORT_NAME, Side, Table, clip, shorten, terminal_width};
use crate::{Done, note};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_base::text::shell::quote;
use gpushare_base::text::units::short_size;
use gpushare_observe::source::fleet::{self, Host, MOST};
use gpushare_sample::SCHEMA_VERSION;

/// Maximum time for a machine to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Width to which a state is cut, and the name of a user where the terminal has no room.
const WORD: usize = 20;
/// Column of the user's name.
const USER_COLUMN: usize = 2;
/// Column of the process's name.
const NAME_COLUMN: usize = 3;

/// The machines, and the filter for their processes.
pub struct Hosts<'a> {
    hosts: Vec<Host>,
    filter: Option<&'a str>,
}

/// Reads the machines' names. Each machine applies the filter itself, so a machine that is queried by HTTP takes none.
pub fn read<'a>(names: &[String], filter: Option<&'a str>) -> Result<Hosts<'a>, Failure> {
    if names.len() > MOST {
        let why = format!(
            "--hosts: {} machines are too many; name at most {MOST}",
            names.len()
        );
        return Err(Failure::usage(why));
    }
    let read = |name: &String| {
        let host = Host::read(name).map_err(|why| Failure::usage(format!("--hosts: {why}")))?;
        match host {
            Host::Url(..) if filter.is_some() => Err(Failure::usage(format!(
                "--filter: {name} is asked by HTTP, which takes none; name the machine for ssh"
            ))),
            host => Ok(host),
        }
    };
    let hosts = names.iter().map(read).collect::<Result<_, _>>()?;
    Ok(Hosts { hosts, filter })
}

impl Hosts<'_> {
    /// Queries all machines at once and prints their answers. A machine that does not answer is named, and the exit code is
    /// 1.
    pub fn ps(&self, as_json: bool, out: &mut dyn Write) -> Done {
        let Self { hosts, filter } = self;
        let answers: Vec<Result<Value, String>> = thread::scope(|scope| {
            let ask = |host| scope.spawn(move || ask(host, *filter));
            let asked: Vec<_> = hosts.iter().map(ask).collect();
            let lost = |_| Err("it could not be asked".to_owned());
            asked
                .into_iter()
                .map(|asked| asked.join().unwrap_or_else(lost))
                .collect()
        });
        let failed = answers.iter().any(Result::is_err);
        if as_json {
            let host = |(host, answer): (&Host, &Result<Value, String>)| {
                let processes = answer.as_ref().ok().map(|answer| &answer["processes"]);
                json!({ "host": host.name(), "wrong": answer.as_ref().err(), "processes": processes })
            };
            let hosts: Vec<Value> = hosts.iter().zip(&answers).map(host).collect();
            crate::json(
                out,
                &json!({ "schema_version": SCHEMA_VERSION, "hosts": hosts }),
            )?;
        } else {
            // A search for a name shows what it found.
            let chooses_names = filter.is_some_and(|filter| filter.contains("name"));
            let width = terminal_width().filter(|_| !chooses_names);
            table(hosts, &answers, width).write(out)?;
            for (host, answer) in hosts.iter().zip(&answers) {
                if let Err(why) = answer {
                    note(&format!("{}: {}", host.name(), plain(why)));
                }
            }
        }
        Ok(if failed { Exit::Failed } else { Exit::Done })
    }
}

fn ask(host: &Host, filter: Option<&str>) -> Result<Value, String> {
    let said = match host {
        Host::Ssh(name) => {
            // ssh passes the words to a shell as one line, so they are quoted.
            let quoted = |filter: &str| {
                let word = quote(filter.as_ref());
                format!("--filter={}", String::from_utf8_lossy(&word))
            };
            let filter = filter.map(quoted);
            let mut words = vec!["gpushare", "ps", "--json"];
            words.extend(filter.as_deref());
            fleet::once(name, &words, PATIENCE)?
        }
        Host::Url(authority, path) => fleet::get(authority, path)?,
    };
    let document: Value = fleet::read(&said, "gpushare")?;
    match document["processes"].is_array() {
        true => Ok(document),
        false => Err("what it says is not from gpushare".to_owned()),
    }
}

/// Makes the table; names are cut where it would not fit in `width`.
fn table(hosts: &[Host], answers: &[Result<Value, String>], width: Option<usize>) -> Table {
    let (left, right) = (Side::Left, Side::Right);
    let mut table = Table::new(&[
        ("HOST", left),
        ("PID", right),
        ("USER", left),
        ("NAME", left),
        ("G", right),
        ("USED", right),
        ("QUOTA", right),
        ("DENY", right),
        ("STATE", left),
    ]);
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let name = |value: &Value| shorten(&text(value), LONGEST_NAME);
    let number = |value: &Value| {
        value
            .as_u64()
            .map_or("-".to_owned(), |number| number.to_string())
    };
    let size = |value: &Value| value.as_u64().map_or("-".to_owned(), short_size);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for (host, answer) in hosts.iter().zip(answers) {
        for process in answer.iter().flat_map(|answer| list(&answer["processes"])) {
            let mut devices = list(&process["devices"]);
            devices.retain(|device| device["in_use"].as_bool().unwrap_or(true));
            if devices.is_empty() {
                devices.push(Value::Null);
            }
            for device in devices {
                table.row([
                    host.name(),
                    number(&process["pid"]),
                    name(&process["user"]),
                    name(&process["title"]),
                    number(&device["gpu"]),
                    size(&device["used_bytes"]),
                    size(&device["quota_bytes"]),
                    number(&device["denials"]),
                    clip(&text(&process["state"]), WORD),
                ]);
            }
        }
    }
    if let Some(width) = width {
        table.fit(USER_COLUMN, width, WORD);
        table.fit(NAME_COLUMN, width, SHORT_NAME);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table of a machine whose processes have these names.
    fn shown(names: &[&str], width: Option<usize>) -> String {
        let process = |name: &&str| {
            let device = json!({ "gpu": 0, "used_bytes": 9_u64 << 30, "denials": 0 });
            json!({ "pid": 4_194_304, "user": "alice", "title": name, "state": "memwait", "devices": [device] })
        };
        let processes: Vec<Value> = names.iter().map(process).collect();
        let host = Host::read("gpu01").expect("a name");
        let answer: Result<Value, String> = Ok(json!({ "processes": processes }));
        let mut out = Vec::new();
        let table = table(&[host], &[answer], width);
        table.write(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn names_take_the_room_that_there_is_and_differ_where_it_is_small() {
        let names = [
            "serve-llama-3-70b-instruct-of-team-blue-0",
            "serve-llama-3-70b-instruct-of-team-blue-1",
        ];
        for width in [None, Some(120)] {
            let text = shown(&names, width);
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        }
        let text = shown(&names, Some(80));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.lines().any(|line| line.len() == 80), "{text}");
        let ends = ["blue-0  ", "blue-1  "];
        assert!(ends.iter().all(|end| text.contains(end)), "{text}");
    }

    #[test]
    fn a_name_that_no_process_can_have_does_not_widen_all_rows_without_bound() {
        let accents = format!("e{}", "\u{301}".repeat(1 << 20));
        let text = shown(&["x".repeat(1 << 20).as_str(), "train", &accents], None);
        assert!(text.lines().all(|line| line.len() < 4_000));
    }
}
