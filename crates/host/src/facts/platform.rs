//! Kernel, distribution, virtualisation, clock source, mitigations.

use std::collections::BTreeMap;

use serde::Serialize;

use super::files::{Choice, Folder};

#[derive(Serialize)]
pub struct Kernel {
    release: Option<String>,
    version: Option<String>,
    /// `BOOT_IMAGE=... root=...` as the boot loader gave it.
    command_line: Option<String>,
}

pub fn kernel(host: &Folder) -> Kernel {
    Kernel {
        release: host.line("proc/sys/kernel/osrelease"),
        version: host.line("proc/sys/kernel/version"),
        command_line: host.line("proc/cmdline"),
    }
}

#[derive(Serialize, Default)]
pub struct Os {
    id: Option<String>,
    version_id: Option<String>,
    name: Option<String>,
}

pub fn os(host: &Folder) -> Os {
    let text = host.text("etc/os-release").or_else(|| host.text("usr/lib/os-release")).unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim().trim_matches(['"', '\'']).to_owned())
    };
    Os { id: value("ID"), version_id: value("VERSION_ID"), name: value("PRETTY_NAME") }
}

#[derive(Serialize)]
pub struct Virtualization {
    /// The CPU flag `hypervisor`; null if the CPUs list no flags, or are of ARM.
    hypervisor_flag: Option<bool>,
    /// `xen` on Xen, regardless of the CPU: a paravirtualised guest does not have the flag.
    hypervisor: Option<String>,
    guest_kind: Option<String>,
    dmi_vendor: Option<String>,
    dmi_product: Option<String>,
}

pub fn virtualization(host: &Folder, hypervisor_flag: Option<bool>) -> Virtualization {
    let dmi = host.join("sys/class/dmi/id");
    Virtualization {
        hypervisor_flag,
        hypervisor: host.line("sys/hypervisor/type"),
        guest_kind: host.line("sys/hypervisor/guest_type"),
        dmi_vendor: dmi.line("sys_vendor"),
        dmi_product: dmi.line("product_name"),
    }
}

pub fn clock_source(host: &Folder) -> Option<Choice> {
    let folder = host.join("sys/devices/system/clocksource/clocksource0");
    let selected = folder.line("current_clocksource")?;
    let available = folder.line("available_clocksource").unwrap_or_default();
    Some(Choice {
        selected: Some(selected),
        available: available.split_whitespace().map(str::to_owned).collect(),
    })
}

/// Vulnerability -> the kernel's status for it (`Not affected`, `Mitigation: ...`, `Vulnerable`).
pub fn mitigations(host: &Folder) -> BTreeMap<String, Option<String>> {
    let folder = host.join("sys/devices/system/cpu/vulnerabilities");
    folder.names("").into_iter().map(|name| (name.clone(), folder.line(&name))).collect()
}

/// The resources whose pressure this kernel reports. It may be built in and switched off (`psi=0`), then
/// the files are there and opening one fails.
pub fn pressure(host: &Folder) -> Vec<String> {
    let folder = host.join("proc/pressure");
    folder.names("").into_iter().filter(|name| folder.line(name).is_some()).collect()
}
