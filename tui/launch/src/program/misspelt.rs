//! Variables with the prefix of gpushare that no code reads, so that a limit in them has no effect.

use gpushare_base::text::nearest;
use shm_layout::variables::TABLE;

const PREFIX: &str = "GPUSHARE_";

/// Returns a sentence for each such variable of this process, with the name that was probably meant.
pub fn sentences() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_unknown(name)).collect();
    names.sort();
    names.iter().map(|name| sentence(name)).collect()
}

fn sentence(name: &str) -> String {
    match nearest(name) {
        Some(near) => {
            format!("{name} is set and means nothing to gpushare; did you mean {near}?")
        }
        None => {
            format!("{name} is set and means nothing to gpushare; gpushare(1) lists the variables")
        }
    }
}

fn ours() -> impl Iterator<Item = &'static str> {
    let ours = TABLE.iter().filter(|variable| variable.alias_of.is_none());
    ours.map(|variable| variable.name)
}

fn is_unknown(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return false;
    };
    // Kubernetes sets these variables in every pod for a Service with the name gpushare.
    let of_a_service = rest.starts_with("SERVICE_") || rest == "PORT" || rest.starts_with("PORT_");
    !of_a_service && !ours().any(|known| known == name)
}

/// Returns the known name that was probably meant.
fn nearest(name: &str) -> Option<&'static str> {
    let rest = name.strip_prefix(PREFIX)?;
    let near = nearest::nearest(
        rest,
        ours().map(|known| known.strip_prefix(PREFIX).unwrap_or(known)),
    )?;
    ours().find(|known| known.strip_prefix(PREFIX).unwrap_or(known) == near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_the_right_one_beside_it() {
        for (name, near) in [
            ("GPUSHARE_MEMRY", Some("GPUSHARE_MEMORY")),
            ("GPUSHARE_MEM", Some("GPUSHARE_MEMORY")),
            ("GPUSHARE_MEMORY_LIMIT", Some("GPUSHARE_MEMORY")),
            ("GPUSHARE_GRUOP", Some("GPUSHARE_GROUP")),
            ("GPUSHARE_CAPS", Some("GPUSHARE_CAP")),
            ("GPUSHARE_QUOTA", None),
        ] {
            assert!(is_unknown(name), "{name}");
            assert_eq!(nearest(name), near, "{name}");
        }
        for name in [
            "GPUSHARE_MEMORY",
            "GPUSHARE_SIM_WORLD",
            "GPUSHARE_SERVICE_HOST",
            "GPUSHARE_PORT_9400_TCP",
            "MEMORY",
        ] {
            assert!(!is_unknown(name), "{name}");
        }
    }
}
