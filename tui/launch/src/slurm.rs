//! A step of a Slurm job: its shards, GPUs and name by its environment, and the limits of its processes that follow.
//!
//! Slurm sets `SLURM_SHARDS_ON_NODE` and `SLURM_GPUS_ON_NODE` on the node and removes a user's values, so they can be trusted
//! before the user's program runs. A job is one group, `slurm-4711`: its processes share the memory that its shards stand for.

use std::str::FromStr;

use shm_layout::text::{LONGEST_LABEL, is_hidden};
use shm_layout::{QuotaValue, variables};

use gpushare_base::text::units::{Amount, TextError, parse_amount, parse_integer};

/// Slurm's variable with the number of shards that a step has on this node.
pub const SHARDS: &str = "SLURM_SHARDS_ON_NODE";
/// Slurm's variable with the number of GPUs that a step has on this node. `SLURM_JOB_GPUS` and `SLURM_STEP_GPUS` say nothing: in a
/// job without GPUs they are what its user set.
const GPUS: &str = "SLURM_GPUS_ON_NODE";
/// Weight of one shard: twice the shards give twice the time.
const WEIGHT: u64 = 10;

/// Amount of memory of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shard {
    /// Fraction of a GPU: 1 divided by this number.
    Of(u8),
    /// Size in bytes.
    Bytes(u64),
}

impl FromStr for Shard {
    type Err = TextError;

    /// Parses `1/8` of the GPU, or a size.
    fn from_str(text: &str) -> Result<Self, TextError> {
        if let Some(count) = text.trim().strip_prefix("1/") {
            let count = parse_integer(count, 1, 100)?;
            return Ok(Self::Of(u8::try_from(count).unwrap_or(100)));
        }
        match parse_amount(text)? {
            Amount::Bytes(bytes) if bytes > 0 => Ok(Self::Bytes(bytes)),
            _ => Err(TextError::Conflict {
                why: format!("{text:?} is no part of a GPU; give 1/8 or a size such as 10GiB"),
            }),
        }
    }
}

impl Shard {
    /// Returns the memory of `count` shards. It is rounded down, so that all jobs of a GPU fit.
    fn times(self, count: u64) -> Amount {
        match self {
            Self::Bytes(bytes) => Amount::Bytes(bytes.saturating_mul(count)),
            Self::Of(all) => {
                let percent = count.saturating_mul(100) / u64::from(all);
                Amount::Percent(u8::try_from(percent.clamp(1, 100)).unwrap_or(100))
            }
        }
    }
}

/// The limits and the name of a step's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Memory of the whole job on each device.
    pub memory: Option<Amount>,
    /// Memory of each process, if the job has neither shards nor GPUs, or if it cannot be compared with the job's memory because the
    /// size of the GPUs is unknown.
    pub each: Option<Amount>,
    /// Memory on each device that no process outside the job can take, within the job's memory.
    pub reserve: Option<Amount>,
    /// Weight by the number of shards.
    pub weight: Option<u64>,
    /// Name by the job, unless the user gave one.
    pub name: Option<String>,
}

impl Asked {
    /// Reads a step's environment. Returns `None` for a step without a GPU, which is not changed. `smallest` returns the bytes of
    /// the smallest GPU if it is known; it is called only to compare a size with a share.
    pub fn of(
        get: &dyn Fn(&str) -> Option<String>,
        shard: Option<Shard>,
        wish: Option<Amount>,
        reserve: Option<Amount>,
        smallest: &dyn Fn() -> Option<u64>,
    ) -> Option<Self> {
        let set = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let shards = set(SHARDS).and_then(|text| text.trim().parse::<u64>().ok());
        let shards = shards.filter(|count| *count > 0);
        let wish = wish.filter(|wish| *wish != Amount::Unlimited);
        let has_gpu = shards.is_some() || set(GPUS).is_some();
        if wish.is_none() && !has_gpu {
            return None;
        }
        let given = shards.and_then(|count| Some(shard?.times(count)));
        // Slurm does not bound the number of jobs without a GPU: their groups could fill the table, and their reserves keep the
        // memory of all GPUs from the others.
        let (memory, each) = match has_gpu {
            true => lower(given, wish, smallest),
            false => (None, wish),
        };
        Some(Self {
            memory,
            each,
            reserve: reserve.filter(|_| memory.is_some()),
            weight: shards.map(|count| count.saturating_mul(WEIGHT).min(1000)),
            name: match set(variables::NAME) {
                Some(_) => None,
                None => name(set),
            },
        })
    }

    /// Returns true if the job becomes a group. A job with whole GPUs is only displayed, and one without a GPU has at most a limit for
    /// each process.
    pub fn limits(&self) -> bool {
        self.memory.is_some() || self.weight.is_some()
    }

    /// Returns the settings of the group, as they are typed.
    pub fn settings(&self) -> Vec<String> {
        let memory = self.memory.map(|amount| format!("memory={amount}"));
        let weight = self.weight.map(|weight| format!("weight={weight}"));
        let reserve = self.reserve.map(|amount| format!("reserve={amount}"));
        memory.into_iter().chain(weight).chain(reserve).collect()
    }
}

/// Returns the lower of the shards' memory and the user's wish, which is the job's. If they cannot be compared, both apply: the
/// first to the job, the second to each process.
fn lower(
    given: Option<Amount>,
    wish: Option<Amount>,
    smallest: &dyn Fn() -> Option<u64>,
) -> (Option<Amount>, Option<Amount>) {
    let (Some(given), Some(wish)) = (given, wish) else {
        return (given.or(wish), None);
    };
    match exceeds(given, wish, smallest) {
        Some(true) => (Some(wish), None),
        Some(false) => (Some(given), None),
        None => (Some(given), Some(wish)),
    }
}

/// Returns true if the first amount is more than the second one. A size and a share are compared on the smallest GPU; `None` if
/// its size is unknown.
fn exceeds(one: Amount, other: Amount, smallest: &dyn Fn() -> Option<u64>) -> Option<bool> {
    let total = match (one, other) {
        (Amount::Bytes(one), Amount::Bytes(other)) => return Some(one > other),
        (Amount::Percent(one), Amount::Percent(other)) => return Some(one > other),
        _ => smallest()?,
    };
    let bytes = |amount: Amount| amount.of_device(total).unwrap_or(u64::MAX);
    Some(bytes(one) > bytes(other))
}

/// Returns the job's name, with the task's number in an array.
fn name(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut name = get("SLURM_JOB_NAME")?;
    if let Some(task) = get("SLURM_ARRAY_TASK_ID") {
        name = format!("{name}_{task}");
    }
    name.retain(|c| !is_hidden(c));
    while name.len() > LONGEST_LABEL {
        name.pop();
    }
    Some(name).filter(|name| !name.is_empty())
}

/// Returns the name of a job's group, or `None` if `job` is no job number.
pub fn group(job: &str) -> Option<String> {
    let digits =
        !job.is_empty() && job.len() <= 10 && job.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| format!("slurm-{job}"))
}

/// Returns true if this is the name of a job's group.
pub fn is_group(name: &str) -> bool {
    let job = name.strip_prefix("slurm-");
    job.is_some_and(|job| group(job).is_some())
}

/// Returns true if a later step needs more memory than the job's group has. A step may have fewer of the job's shards than
/// the next one. Values that cannot be compared are kept.
pub fn grows(now: QuotaValue, wanted: Option<Amount>, smallest: &dyn Fn() -> Option<u64>) -> bool {
    let Some(wanted) = wanted else {
        return false;
    };
    let now = match now {
        QuotaValue::Inherit => return true,
        QuotaValue::Unlimited => return false,
        QuotaValue::Bytes(bytes) => Amount::Bytes(bytes),
        QuotaValue::Percent(percent) => Amount::Percent(percent),
    };
    exceeds(wanted, now, smallest) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(environment: &[(&str, &str)], shard: &str, wish: Option<&str>) -> Option<Asked> {
        asked_and_reserved(environment, shard, wish, None)
    }

    fn asked_and_reserved(
        environment: &[(&str, &str)],
        shard: &str,
        wish: Option<&str>,
        reserve: Option<&str>,
    ) -> Option<Asked> {
        asked_on(environment, shard, wish, reserve, None)
    }

    fn asked_on(
        environment: &[(&str, &str)],
        shard: &str,
        wish: Option<&str>,
        reserve: Option<&str>,
        smallest: Option<u64>,
    ) -> Option<Asked> {
        let get = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = |text: Option<&str>| text.map(|text| parse_amount(text).expect("an amount"));
        let shard = shard.parse().ok();
        Asked::of(&get, shard, read(wish), read(reserve), &|| smallest)
    }

    #[test]
    fn a_job_reserves_within_what_it_may_use() {
        let step = [(SHARDS, "3"), (GPUS, "1")];
        let part = asked_and_reserved(&step, "1/8", None, Some("4GiB")).expect("it has shards");
        assert_eq!(part.settings(), ["memory=37%", "weight=30", "reserve=4GiB"]);
        let whole = [(GPUS, "1")];
        let of_whole = |wish| asked_and_reserved(&whole, "1/8", wish, Some("4GiB"));
        assert_eq!(of_whole(None).expect("a GPU").reserve, None, "no limit");
        let limited = of_whole(Some("8GiB")).expect("a GPU");
        assert_eq!(limited.settings(), ["memory=8GiB", "reserve=4GiB"]);
    }

    #[test]
    fn a_job_whose_user_says_that_it_has_a_gpu_has_no_group_and_reserves_nothing() {
        let users = [("SLURM_JOB_GPUS", "0"), ("SLURM_STEP_GPUS", "0")];
        let all = Some("100%");
        let asked = asked_and_reserved(&users, "1/8", all, all).expect("it asks");
        assert!(!asked.limits(), "{asked:?}");
        assert_eq!(asked.reserve, None);
        assert_eq!(asked.each, Some(Amount::Percent(100)));
        assert_eq!(asked_and_reserved(&users, "1/8", None, all), None);
    }

    #[test]
    fn shards_become_memory_and_weight_of_the_job() {
        let step = [(SHARDS, "3"), (GPUS, "1")];
        let part = asked(&step, "1/8", None).expect("it has shards");
        assert_eq!(part.settings(), ["memory=37%", "weight=30"]);
        let size = asked(&step, "10GiB", None).expect("it has shards");
        assert_eq!(size.settings(), ["memory=30GiB", "weight=30"]);
        let unknown = asked(&step, "", None).expect("it has shards");
        assert_eq!(unknown.settings(), ["weight=30"]);
    }

    #[test]
    fn a_wish_lowers_what_the_shards_give_and_never_raises_it() {
        let step = [(SHARDS, "1")];
        let gib = |count: u64| Some(Amount::Bytes(count << 30));
        let percent = |percent| Some(Amount::Percent(percent));
        for (smallest, shard, wish, wanted) in [
            (None, "10GiB", "8GiB", gib(8)),
            (None, "10GiB", "80GiB", gib(10)),
            (None, "1/4", "100%", percent(25)),
            (None, "10GiB", "none", gib(10)),
            (Some(80), "1/8", "8GiB", gib(8)),
            (Some(80), "1/8", "10GiB", percent(12)),
            (Some(80), "10GiB", "10%", percent(10)),
            (Some(80), "10GiB", "20%", gib(10)),
        ] {
            let smallest = smallest.map(|gib: u64| gib << 30);
            let asked = asked_on(&step, shard, Some(wish), None, smallest).expect("it has shards");
            assert_eq!((asked.memory, asked.each), (wanted, None), "{shard} {wish}");
        }
    }

    #[test]
    fn a_wish_that_cannot_be_compared_with_the_shards_limits_each_process() {
        let asked = asked(&[(SHARDS, "1")], "1/8", Some("8GiB")).expect("it has shards");
        assert_eq!(asked.memory, Some(Amount::Percent(12)));
        assert_eq!(asked.each, Some(Amount::Bytes(8 << 30)));
    }

    #[test]
    fn a_job_without_gpu_is_left_alone_and_one_with_whole_gpus_has_no_limit() {
        assert_eq!(asked(&[("SLURM_JOB_ID", "1")], "1/8", None), None);
        assert_eq!(asked(&[(SHARDS, "0")], "1/8", None), None);
        let whole = asked(&[(GPUS, "2")], "1/8", None).expect("it has GPUs");
        assert!(!whole.limits(), "{whole:?}");
    }

    #[test]
    fn the_name_is_the_jobs_without_what_does_not_show_unless_the_user_gave_one() {
        let step = |more| {
            let mut step = vec![
                (SHARDS, "1"),
                ("SLURM_JOB_NAME", "a\nexport X=1\u{202e}"),
                ("SLURM_ARRAY_TASK_ID", "7"),
            ];
            step.extend(more);
            asked(&step, "1/8", None).expect("it has shards").name
        };
        assert_eq!(step(None).as_deref(), Some("aexport X=1_7"));
        assert_eq!(step(Some((variables::NAME, "mine"))), None);
    }

    #[test]
    fn the_group_of_a_job_grows_with_a_larger_step_and_never_shrinks() {
        let grows = |now, wanted| super::grows(now, wanted, &|| None);
        assert!(grows(QuotaValue::Inherit, Some(Amount::Bytes(1))));
        assert!(grows(QuotaValue::Bytes(1), Some(Amount::Bytes(2))));
        for (now, wanted) in [
            (QuotaValue::Bytes(2), Some(Amount::Bytes(1))),
            (QuotaValue::Unlimited, Some(Amount::Bytes(1))),
            (QuotaValue::Percent(2), Some(Amount::Bytes(1))),
            (QuotaValue::Bytes(2), None),
        ] {
            assert!(!grows(now, wanted), "{now:?} {wanted:?}");
        }
        let on_200 = |now, wanted| super::grows(now, Some(wanted), &|| Some(200));
        assert!(on_200(QuotaValue::Bytes(2), Amount::Percent(2)));
        assert!(!on_200(QuotaValue::Percent(2), Amount::Bytes(4)));
        assert_eq!(group("4711").as_deref(), Some("slurm-4711"));
        for wrong in ["", "1;x", "../1", "12345678901"] {
            assert_eq!(group(wrong), None, "{wrong}");
        }
        assert!(is_group("slurm-4711"));
        assert!(!is_group("slurm-interns") && !is_group("4711"));
    }

    #[test]
    fn a_shard_is_a_part_of_the_gpu_or_a_size() {
        assert_eq!("1/8".parse(), Ok(Shard::Of(8)));
        assert_eq!("10GiB".parse(), Ok(Shard::Bytes(10 << 30)));
        for wrong in ["1/0", "1/1000", "25%", "none", "0", "2/8"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
