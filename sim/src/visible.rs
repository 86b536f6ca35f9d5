//! `CUDA_VISIBLE_DEVICES`: the devices that a program sees, and their order.
//!
//! The rules are the driver's. The value is a comma-separated list of GPU indices, of UUIDs of GPUs and MIG instances, or of
//! prefixes of such a UUID that fit only one device. The list ends at the first entry that names no device. A list that names a
//! device twice makes no device visible. A program sees either GPUs or one MIG instance. Without the variable it sees the GPUs
//! that are not in MIG mode or, if there are none, the first instance.
//!
//! A server of MPS has a list of its own, and its clients count from 0 among the devices of that one.

use crate::world::{Device, uuid_text};

/// Returns the devices that a program with this value of the variable sees.
pub fn visible<'w>(devices: &'w [Device], variable: Option<&str>) -> Vec<&'w Device> {
    let Some(variable) = variable else {
        return unrestricted(devices);
    };
    let mut seen: Vec<&Device> = Vec::new();
    for entry in variable.split(',').map(str::trim) {
        let Some(device) = find(devices, entry) else {
            break;
        };
        if seen.iter().any(|other| other.index == device.index) {
            return Vec::new();
        }
        seen.push(device);
    }
    match seen.iter().find(|device| device.mig.is_some()) {
        Some(instance) => vec![*instance],
        None => seen,
    }
}

/// Returns the devices that a client of an MPS server sees, by the values of the variable that the server and the client have.
pub fn of_client<'w>(
    devices: &'w [Device],
    of_server: Option<&str>,
    variable: Option<&str>,
) -> Vec<&'w Device> {
    let Some(of_server) = of_server else {
        return visible(devices, variable);
    };
    let seen = visible(devices, Some(of_server)).into_iter().cloned();
    let numbered = seen
        .enumerate()
        .map(|(gpu, device)| Device { gpu, ..device });
    let numbered: Vec<Device> = numbered.collect();
    let of_index = |index| devices.iter().find(|device| device.index == index);
    let seen = visible(&numbered, variable).into_iter();
    seen.filter_map(|device| of_index(device.index)).collect()
}

fn unrestricted(devices: &[Device]) -> Vec<&Device> {
    let whole: Vec<_> = devices
        .iter()
        .filter(|device| device.mig.is_none())
        .collect();
    if whole.is_empty() {
        devices.iter().take(1).collect()
    } else {
        whole
    }
}

fn find<'w>(devices: &'w [Device], entry: &str) -> Option<&'w Device> {
    if let Ok(gpu) = entry.parse::<usize>() {
        // An index names a GPU; for a GPU in MIG mode it names the first instance.
        return devices.iter().find(|device| device.gpu == gpu);
    }
    let entry = entry.to_ascii_lowercase();
    if !(entry.starts_with("gpu-") || entry.starts_with("mig-")) {
        return None;
    }
    let names = |device: &&Device| {
        let whole = uuid_text("GPU", &device.gpu_uuid).to_ascii_lowercase();
        let own = device.uuid_text().to_ascii_lowercase();
        // `MIG-GPU-uuid/gi/ci` is the old form.
        let old = device
            .mig
            .as_ref()
            .map(|(instance, _)| format!("mig-{whole}/{}/0", instance + 1));
        own.starts_with(&entry) || whole.starts_with(&entry) || old.as_deref() == Some(&*entry)
    };
    let mut found = devices.iter().filter(names);
    let first = found.next()?;
    found
        .all(|other| other.gpu == first.gpu && entry.starts_with("gpu-"))
        .then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::Private;
    use crate::scenario::Scenario;

    fn indices(devices: &[Device], variable: Option<&str>) -> Vec<usize> {
        visible(devices, variable)
            .iter()
            .map(|device| device.index)
            .collect()
    }

    #[test]
    fn clients_of_mps_count_among_the_devices_of_their_server() {
        let private = Private::new("visible-mps");
        let private_mig = Private::new("visible-mps-mig");
        let world = private.open(Some(&"[[device]]\n".repeat(3)));
        let devices = world.devices();
        let uuid = devices[2].uuid_text();
        let seen = |server, client| -> Vec<usize> {
            let seen = of_client(devices, server, client);
            seen.iter().map(|device| device.index).collect()
        };
        assert_eq!(seen(None, Some("2")), [2]);
        assert_eq!(seen(Some("2,0"), None), [2, 0]);
        assert_eq!(seen(Some("2,0"), Some("1")), [0]);
        assert!(seen(Some("2"), Some("2")).is_empty());
        assert_eq!(seen(Some("2,0"), Some(&uuid)), [2]);
        let world = private_mig.open(Some(&Scenario::text_of("mig").unwrap()));
        let instance = world.devices().iter().find(|one| one.mig.is_some());
        let instance = instance.expect("it has some");
        let seen = of_client(world.devices(), None, Some(&instance.uuid_text()));
        assert_eq!(seen.first().map(|one| one.index), Some(instance.index));
    }

    #[test]
    fn indices_and_uuids_choose_and_order() {
        let private = Private::new("visible");
        let world = private.open(Some(&"[[device]]\n".repeat(3)));
        let devices = world.devices();
        assert_eq!(indices(devices, None), [0, 1, 2]);
        assert_eq!(indices(devices, Some("2,0")), [2, 0]);
        assert_eq!(
            indices(devices, Some("1,9,0")),
            [1],
            "the list ends at an unknown entry"
        );
        assert_eq!(indices(devices, Some("")), [] as [usize; 0]);
        assert_eq!(indices(devices, Some("-1")), [] as [usize; 0]);
        assert_eq!(indices(devices, Some("0,0")), [] as [usize; 0]);
        assert_eq!(indices(devices, Some("NoDevFiles")), [] as [usize; 0]);
        let uuid = devices[1].uuid_text();
        assert_eq!(indices(devices, Some(&uuid)), [1]);
        assert_eq!(indices(devices, Some(&uuid[..16])), [1]);
        assert_eq!(
            indices(devices, Some("GPU-")),
            [] as [usize; 0],
            "fits more than one"
        );
    }

    #[test]
    fn one_mig_instance_is_all_that_is_seen() {
        let private = Private::new("visible-mig");
        let world = private.open(Some(&Scenario::text_of("mig").expect("built in")));
        let devices = world.devices();
        assert_eq!(
            indices(devices, None),
            [3],
            "the GPU that is not in MIG mode"
        );
        let both = format!("{},{}", devices[2].uuid_text(), devices[0].uuid_text());
        assert_eq!(indices(devices, Some(&both)), [2]);
        assert_eq!(indices(devices, Some("0")), [0]);
    }
}
