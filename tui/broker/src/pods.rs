//! The groups of a Kubernetes pod's processes. The component that prepares the pod's claims decides them, not the
//! processes' own environment.
//!
//! A directory beside the broker's own files, which root alone may enter, has a file for each pod with the names of its
//! claims' groups, one a line. A process in such a pod is in one of them, whatever it asks for. The group of a claim of one
//! pod accepts no other process. The group of a claim that several pods share accepts every process that asks for it,
//! because Kubernetes does not report each pod that later uses such a claim to the node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use shm_layout::OpenError;
use shm_layout::broker::private_dir;
use shm_layout::dir::Dir;

/// Prefix of the groups of all claims.
const OF_CLAIMS: &str = "k8s-";
/// Prefix of the groups of claims that several pods may share.
const SHARED: &str = "k8s-shared-";
/// Maximum length of a group's name.
const LONGEST: usize = 31;

/// Returns the name of a claim's group, from the claim's UID.
pub fn group(claim: &str, shared: bool) -> String {
    let digits = claim.chars().filter(char::is_ascii_hexdigit);
    let begin = if shared { SHARED } else { OF_CLAIMS };
    begin.chars().chain(digits).take(LONGEST).collect()
}

/// Returns true if this is the name of a claim's group.
pub fn is_group(name: &str) -> bool {
    let digits = name
        .strip_prefix(SHARED)
        .or_else(|| name.strip_prefix(OF_CLAIMS));
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.len() == LONGEST && digits.is_some_and(is_digits)
}

/// The groups of each pod, by its UID.
pub type Groups = BTreeMap<String, BTreeSet<String>>;

/// Replaces the pods that the broker of a directory has files for.
pub fn set(dir: &Path, groups: &Groups) -> Result<(), OpenError> {
    let pods = Dir::open_or_make(&private_dir(dir))?.inner_or_make(FOLDER)?;
    let io = |source: io::Error| OpenError::Io {
        path: pods.path().to_owned(),
        op: "write in",
        source,
    };
    for (pod, groups) in groups.iter().filter(|(pod, _)| is_plain(pod)) {
        let lines: String = groups.iter().map(|group| format!("{group}\n")).collect();
        // The file is written completely or not at all.
        let new = format!(".{pod}");
        let _ = pods.remove(&new);
        let mut file = pods.write(&new, 0o600)?;
        file.write_all(lines.as_bytes()).map_err(io)?;
        pods.rename(&new, pod).map_err(io)?;
    }
    for name in pods.names().map_err(io)? {
        if !groups.contains_key(&name) {
            pods.remove(&name).map_err(io)?;
        }
    }
    Ok(())
}

/// Returns the group that a process enters if it asks for `asked`, or the reason why it may not. `pod` returns its pod;
/// `private` is the directory of the broker's own files.
pub fn entered(
    private: &Dir,
    pod: impl FnOnce() -> Option<String>,
    asked: Option<&str>,
) -> Result<Option<String>, String> {
    let known = known(private, pod).unwrap_or_default();
    let fits = |asked: &&str| known.iter().any(|group| group == asked);
    match (asked.filter(fits), known.first(), asked) {
        (Some(asked), _, _) => Ok(Some(asked.to_owned())),
        (None, Some(first), _) => Ok(Some(first.clone())),
        (None, None, Some(asked)) if asked.starts_with(OF_CLAIMS) && !asked.starts_with(SHARED) => {
            Err(format!(
                "the group {asked} is for the pod of its claim, and this process is not in that pod"
            ))
        }
        (None, None, asked) => Ok(asked.map(str::to_owned)),
    }
}

const FOLDER: &str = "pods";

/// Returns the groups of the claims of a process's pod, or `None` if it has none. If no pod has any, `pod` is not called.
fn known(private: &Dir, pod: impl FnOnce() -> Option<String>) -> Option<Vec<String>> {
    let pods = private.inner(FOLDER).ok()?;
    let mut lines = String::new();
    let mut file = pods.read(&pod()?).ok()?;
    file.read_to_string(&mut lines).ok()?;
    Some(lines.lines().map(str::to_owned).collect())
}

/// Returns true if the UID consists of digits, letters and dashes, so that it cannot name a file outside of the folder.
fn is_plain(pod: &str) -> bool {
    !pod.is_empty()
        && pod
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    const CLAIM: &str = "11112222-3333-4444-5555-666677778888";

    #[test]
    fn a_pods_process_is_in_a_group_of_its_claims_whatever_it_asks_for() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let dir = place.path().join("run");
        let (own, other) = (group(CLAIM, false), group(POD, false));
        assert_eq!(own, "k8s-111122223333444455556666777");
        let groups = Groups::from([(POD.to_owned(), [own.clone(), "k8s-z".to_owned()].into())]);
        set(&dir, &groups).expect("ours");
        let private = Dir::open(&private_dir(&dir)).expect("made");
        let entered =
            |pod: Option<&str>, asked| entered(&private, || pod.map(str::to_owned), asked);
        for asked in [None, Some("team"), Some(&*other), Some(&*own)] {
            assert_eq!(
                entered(Some(POD), asked),
                Ok(Some(own.clone())),
                "{asked:?}"
            );
        }
        assert_eq!(entered(Some(POD), Some("k8s-z")), Ok(Some("k8s-z".into())));
        assert!(entered(None, Some(&own)).is_err());
        assert!(entered(Some(CLAIM), Some(&own)).is_err());
        assert_eq!(entered(None, Some("team")), Ok(Some("team".into())));
        assert_eq!(entered(None, None), Ok(None));
        let shared = group(CLAIM, true);
        assert_eq!(entered(None, Some(&shared)), Ok(Some(shared.clone())));

        set(&dir, &Groups::new()).expect("ours");
        assert_eq!(entered(Some(POD), None), Ok(None));
        assert!(!is_plain("../control") && is_plain(POD));
    }
}
