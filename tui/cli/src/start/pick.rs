//! `gpushare pick`: the least busy device, with a short claim so that two picks at the same time differ.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use shm_layout::AdvisoryLocks;
use shm_layout::dir::Dir;
use shm_layout::environment::Environment;
use shm_layout::{PICK_NS, SegmentDir, clock};

use crate::table::{Side, Table};
use crate::{Done, json, note, segments};
use gpushare_base::host::wait;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::units::{self, short_size};
use gpushare_base::text::uuids;
use gpushare_control::targets;
use gpushare_launch::exclusive::Taken;
use gpushare_launch::nvml_cache::NvmlCache;
use gpushare_launch::picking::{self, Candidate, Choice, Demand, Wanted};
use gpushare_observe::source::live::Live;
use gpushare_observe::source::nvml::Watch;
use gpushare_sample::keys::object;
use gpushare_sample::{DeviceSample, Nvml, SCHEMA_VERSION};

/// Print the UUID of the least busy device and hold a short claim on it
///
/// For CUDA_VISIBLE_DEVICES=$(gpushare pick). MIG instances count as devices. Only devices listed in
/// /usr/local/share/gpus/ids (or the file GPUSHARE_ALLOWED_GPUS names) are chosen, if that file exists.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Pick this device, by number or UUID, instead of the least busy one
    #[arg(value_name = "N")]
    gpu: Option<String>,
    /// Only pick a device with this much free memory
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Only pick a device that no process uses and no other pick has just chosen
    #[arg(long)]
    free: bool,
    /// Pick any of the devices that may be picked instead of the least busy one
    #[arg(long)]
    random: bool,
    /// Show how busy each device is and why one was chosen
    #[arg(long)]
    explain: bool,
    /// Write JSON; if the device could not be claimed, unclaimed_because says why
    #[arg(long)]
    json: bool,
    /// Print when the claim ends as well, on the segments' clock, for who takes it back
    #[arg(long, hide = true)]
    claim_end: bool,
    /// Only pick a device that CUDA_VISIBLE_DEVICES lets a program started here use
    #[arg(long, hide = true)]
    visible: bool,
    /// Only pick a device with the free memory that the variables of a program started here ask for
    #[arg(long, hide = true)]
    fits: bool,
    /// Only print how many devices a program started here sees, or nothing where NVML does not say
    #[arg(long, hide = true)]
    count: bool,
    /// Only check that a program started here can have the memory that it wants reserved
    #[arg(long, hide = true)]
    check_reserve: bool,
}

/// Maximum time that a pick waits for its turn; each turn takes as long as NVML's answer.
const TURN: Duration = Duration::from_secs(10);
/// Maximum time for a turn if users who do not trust each other share the directory.
const TURN_OF_MANY: Duration = Duration::from_secs(2);

object! {
    /// The document that `--json` writes.
    pub(crate) Document<'a>(candidates: &'a [Candidate], chosen: usize, unclaimed: Option<String>) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        uuid: &'a str = &candidates[chosen].uuid, "The device that was picked.";
        gpu: usize = chosen, "Its number, as --gpu takes it.";
        claimed: bool = unclaimed.is_none(), "Whether it is claimed for some seconds, so that another pick chooses another device.";
        unclaimed_because: Option<String> = unclaimed, "Why the device could not be claimed; null if it is claimed.";
        devices: &'a [Candidate] = candidates, "Every device, and how busy it is.";
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let wanted = args
        .memory
        .as_deref()
        .map(units::parse_size)
        .transpose()
        .map_err(|error| Failure::usage(format!("--memory: {error}")))?;
    let dir = segments::dir_or_new()?;
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    if args.count {
        let sample = segments::sample(&dir)?;
        if let Some(count) = picking::visible(&sample, visible.as_deref()) {
            writeln!(out, "{count}")?;
        }
        return Ok(Exit::Done);
    }
    let limits = Environment::read(&|name| std::env::var(name).ok()).limits;
    if args.check_reserve {
        let sample = segments::sample(&dir)?;
        picking::check_reserve(&sample, visible.as_deref(), &limits)?;
        return Ok(Exit::Done);
    }
    let request = Request {
        gpu: args.gpu.as_deref(),
        memory: match args.fits {
            true => Demand::of(&limits),
            false => Demand::bytes(wanted),
        },
        visible: visible.as_deref().filter(|_| args.visible),
        free: args.free,
        random: args.random,
        explain: args.explain,
        choice: Choice::standing(&dir)?,
    };
    let picked = pick(&dir, &request)?;
    write(args, &picked, out)?;
    Ok(Exit::Done)
}

/// The conditions of a pick.
#[derive(Debug, Default)]
pub struct Request<'a> {
    /// Device to pick, by number or UUID.
    pub gpu: Option<&'a str>,
    /// Minimum free memory.
    pub memory: Demand,
    /// CUDA_VISIBLE_DEVICES of a program that may use no other device.
    pub visible: Option<&'a str>,
    /// Only devices without a process.
    pub free: bool,
    /// Any device that meets the conditions.
    pub random: bool,
    /// True to write the reasons to standard error if no device meets the conditions.
    pub explain: bool,
    /// Weights of the choice.
    pub choice: Choice,
}

/// The result of a pick.
pub struct Picked {
    candidates: Vec<Candidate>,
    chosen: usize,
    /// End of the claim, or the reason why there is none.
    claimed: Result<u64, String>,
    facts: NvmlCache,
}

impl Picked {
    /// Returns the device's UUID.
    pub fn uuid(&self) -> &str {
        &self.candidates[self.chosen].uuid
    }
}

/// Picks a device and claims it for a moment.
pub fn pick(dir: &SegmentDir, request: &Request<'_>) -> Result<Picked, Failure> {
    // No other pick may read the figures between this reading and its claim, or both choose the same device.
    let _turn = take_turn(&dir.path);
    let taken = Taken::look(&dir.path);
    let facts = NvmlCache::get(&dir.path, request.choice.bounds);
    let mut live = Live::with(&dir.path, Watch::told(facts.look.clone())).of_devices();
    let sample = segments::look(&mut live)?;
    if sample.devices.is_empty() {
        let nvml = match &sample.nvml {
            Nvml::Missing(why) => format!(" ({why})"),
            _ => String::new(),
        };
        return Err(Failure::no_such_target(format!(
            "found no GPU: NVML lists none{nvml} and no program has used one; gpushare doctor shows why"
        )));
    }
    let named = request
        .gpu
        .map(|gpu| targets::device(gpu, &sample))
        .transpose()?;
    let mut allowed = picking::allowed()?;
    if let Some(list) = request.visible {
        allowed = Some(picking::within(&sample.devices, list, named, allowed)?);
    }
    let uuids = sample.devices.iter().map(|device| &device.uuid);
    let wanted = Wanted {
        memory: request.memory,
        allowed: allowed.as_deref(),
        free: request.free,
        exclusive: uuids.filter(|uuid| taken.has(uuid)).cloned().collect(),
    };
    let candidates = picking::candidates(&sample, &wanted, &request.choice);
    let chosen = match picking::choose(&candidates, named, &wanted, request.random) {
        Ok(chosen) => chosen,
        Err(failure) => {
            if request.explain {
                explain(&candidates, None).write(&mut std::io::stderr())?;
            }
            return Err(failure);
        }
    };
    let claimed = claim(dir, &sample.devices[chosen]);
    Ok(Picked {
        candidates,
        chosen,
        claimed,
        facts,
    })
}

/// Waits for other picks to end, but not for a process that only holds the file's lock; without write permission
/// for the directory there is no turn to take.
fn take_turn(dir: &Path) -> Option<File> {
    if let Some(tokens) = AdvisoryLocks::of(dir, true).ok()? {
        let mut held = Ok(false);
        let turn = || {
            held = tokens.hold("pick");
            !matches!(held, Ok(false))
        };
        return (wait::until(TURN_OF_MANY, turn) && held.is_ok()).then(|| tokens.into_file());
    }
    let file = Dir::open(dir)
        .and_then(|dir| dir.write("pick.lock", 0o600))
        .ok()?;
    let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    wait::until(TURN, lock).then_some(file)
}

/// Makes a claim and returns its end on the segments' clock. The error says why there is none.
fn claim(dir: &SegmentDir, device: &DeviceSample) -> Result<u64, String> {
    let Some(uuid) = uuids::parse(&device.uuid) else {
        return Err("the device has no readable UUID".into());
    };
    let now = clock::now();
    let until = now.saturating_add(PICK_NS);
    let operator = shm_layout::Operator::open(&dir.path)
        .map_err(|error| format!("a claim needs the right to edit the segments: {error}"))?;
    segments::say_set_aside(operator.segments().set_aside());
    let held = operator.claim_pick(uuid, &device.name, device.total_bytes, until, now);
    let full = || "all its claims are held by other picks".to_owned();
    held.then_some(until).ok_or_else(full)
}

fn write(args: &Args, picked: &Picked, out: &mut dyn Write) -> Result<(), Failure> {
    let (candidates, chosen) = (&picked.candidates, picked.chosen);
    if args.json {
        let document = Document::of(candidates, chosen, picked.claimed.clone().err());
        return json(out, &document).map(drop);
    }
    if args.explain {
        explain(candidates, Some(chosen)).write(&mut std::io::stderr())?;
        note(&format!(
            "NVML's figures are {} ms old and were used {} times",
            picked.facts.age().as_millis(),
            picked.facts.uses()
        ));
        if let Err(why) = &picked.claimed {
            note(&format!(
                "it is not claimed, so another pick at the same time may choose it too: {why}"
            ));
        }
    }
    match &picked.claimed {
        Ok(end) if args.claim_end => writeln!(out, "{} {end}", candidates[chosen].uuid)?,
        _ => writeln!(out, "{}", candidates[chosen].uuid)?,
    }
    Ok(())
}

fn explain(candidates: &[Candidate], chosen: Option<usize>) -> Table {
    let mut table = Table::new(&[
        ("", Side::Left),
        ("GPU", Side::Right),
        ("FREE", Side::Right),
        ("OF", Side::Right),
        ("UTIL", Side::Right),
        ("QUEUE", Side::Right),
        ("CLAIMS", Side::Right),
        ("BUSY", Side::Right),
        ("", Side::Left),
    ]);
    for candidate in candidates {
        table.row([
            if Some(candidate.gpu) == chosen {
                "*".into()
            } else {
                String::new()
            },
            candidate.gpu.to_string(),
            short_size(candidate.free_bytes),
            short_size(candidate.total_bytes),
            candidate
                .utilisation_percent
                .map_or_else(|| "-".into(), |percent| format!("{percent}%")),
            candidate.queue.to_string(),
            candidate.claims.to_string(),
            format!("{:.3}", candidate.busy),
            candidate
                .excluded
                .clone()
                .unwrap_or_else(|| match candidate.mps {
                    true => format!("{} (MPS)", candidate.name),
                    false => candidate.name.clone(),
                }),
        ]);
    }
    table
}
