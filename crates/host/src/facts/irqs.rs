//! Interrupts: which device raises them, which CPUs may and did handle them.

use std::collections::HashMap;

use serde::Serialize;

use super::files::Folder;
use crate::interrupts;

#[derive(Serialize)]
pub struct Irqs {
    /// The CPUs that `counts` of each interrupt belong to.
    cpus: Vec<u32>,
    /// Hexadecimal, as the kernel prints and takes it.
    default_smp_affinity: Option<String>,
    lines: Vec<Irq>,
}

#[derive(Serialize)]
struct Irq {
    irq: u32,
    chip: Option<String>,
    /// The drivers' names for their handlers: `eth0-TxRx-3`, `nvme0q1`.
    action: Option<String>,
    /// The NIC or block device, by /sys/.../msi_irqs or otherwise by a NIC's name in the action.
    device: Option<String>,
    /// A list, as the kernel prints and takes it.
    smp_affinity_list: Option<String>,
    effective_affinity_list: Option<String>,
    affinity_hint: Option<String>,
    /// Whether the kernel refuses to move it. Known only if /sys/kernel/debug/irq is readable.
    managed: Option<bool>,
    /// Since boot, one per CPU.
    counts: Vec<u64>,
}

/// `owners`: interrupt -> device, by msi_irqs. `nics`: names of all interfaces.
pub fn read(host: &Folder, owners: &HashMap<u32, String>, nics: &[&str]) -> Irqs {
    let text = host.text("proc/interrupts").unwrap_or_default();
    let table = interrupts::parse(&text);
    let debug = host.join("sys/kernel/debug/irq/irqs");
    let has_debug = debug.exists("");
    // The rows with names (NMI, LOC) are the architecture's own: they have no affinity.
    let numbered = table.rows.into_iter().filter_map(|row| Some((row.irq.parse::<u32>().ok()?, row)));
    let lines = numbered.map(|(irq, row)| {
        let folder = host.join(&format!("proc/irq/{irq}"));
        let (chip, action) = split_description(row.description);
        let by_name =
            || nics.iter().find(|nic| belongs_to(action.as_deref(), nic)).map(|&nic| nic.to_owned());
        let state = has_debug.then(|| debug.text(&irq.to_string())).flatten();
        Irq {
            irq,
            device: owners.get(&irq).cloned().or_else(by_name),
            chip,
            action,
            smp_affinity_list: folder.line("smp_affinity_list"),
            effective_affinity_list: folder.line("effective_affinity_list"),
            affinity_hint: folder.line("affinity_hint"),
            managed: state.map(|text| text.contains("IRQD_AFFINITY_MANAGED")),
            counts: row.counts,
        }
    });
    let lines = lines.collect();
    Irqs { cpus: table.cpus, default_smp_affinity: host.line("proc/irq/default_smp_affinity"), lines }
}

/// Chip and action of `PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0`. Between the two are, depending on
/// kernel and architecture, the hardware number and the trigger, joined or not.
fn split_description(description: &str) -> (Option<String>, Option<String>) {
    let mut words = description.split_whitespace();
    let chip = words.next().map(str::to_owned);
    let rest: Vec<&str> = words.skip_while(|word| is_hardware_number_or_trigger(word)).collect();
    (chip, (!rest.is_empty()).then(|| rest.join(" ")))
}

fn is_hardware_number_or_trigger(word: &str) -> bool {
    let trigger = word.trim_start_matches(|c: char| c.is_ascii_digit());
    // Xen's chips have the type of event channel instead: `-event`, `-virq`, `-ipi`.
    trigger.is_empty() || trigger.starts_with('-') || ["Edge", "Level", "None"].contains(&trigger)
}

/// Handlers of a NIC without msi_irqs (Xen) are called `eth0`, `eth0-q0-rx`.
fn belongs_to(action: Option<&str>, nic: &str) -> bool {
    action
        .and_then(|action| action.strip_prefix(nic))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;

    use super::{belongs_to, read, split_description};
    use crate::facts::files::Files;

    #[test]
    fn debugfs_says_which_are_managed_and_msi_irqs_whose_they_are() {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            (
                "proc/interrupts",
                "      CPU0 CPU2\n 24: 1 2 PCI-MSI 1-edge nvme0q1\n 25: 3 4 PCI-MSI 2-edge other\nNMI: 5 6 Non-maskable interrupts\n",
            ),
            (
                "sys/kernel/debug/irq/irqs/24",
                "handler:  handle_edge_irq\ndstate:   0x37408200\n  IRQD_AFFINITY_MANAGED\n",
            ),
            ("sys/kernel/debug/irq/irqs/25", "handler:  handle_edge_irq\n"),
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = Files::open(Some(root.path())).unwrap();
        let irqs = read(&files.root(), &HashMap::from([(24, "nvme0n1".to_owned())]), &["eth0"]);
        assert_eq!(irqs.cpus, [0, 2]);
        assert_eq!(irqs.lines.len(), 2, "rows with names are no interrupts of devices");
        assert_eq!((irqs.lines[0].device.as_deref(), irqs.lines[0].managed), (Some("nvme0n1"), Some(true)));
        assert_eq!((irqs.lines[1].device.as_deref(), irqs.lines[1].managed), (None, Some(false)));
        assert_eq!(irqs.lines[1].counts, [3, 4]);
    }

    #[test]
    fn descriptions_of_kernels_and_architectures() {
        for (description, chip, action) in [
            ("PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0", "PCI-MSIX-0000:00:02.0", "virtio1-req.0"),
            ("IR-PCI-MSI 524288-edge      nvme0q0", "IR-PCI-MSI", "nvme0q0"),
            ("PCI-MSI-edge      eth0-TxRx-0", "PCI-MSI-edge", "eth0-TxRx-0"),
            ("xen-dyn-event     eth0", "xen-dyn-event", "eth0"),
            ("xen-dyn    -event     eth0-q0-rx", "xen-dyn", "eth0-q0-rx"),
            ("xen-pirq -ioapic-edge  rtc0", "xen-pirq", "rtc0"),
            ("GICv3  27 Level     arch_timer", "GICv3", "arch_timer"),
            ("IO-APIC   16-fasteoi   ehci_hcd:usb1, i801_smbus", "IO-APIC", "ehci_hcd:usb1, i801_smbus"),
            ("IO-APIC    2-edge      2nd", "IO-APIC", "2nd"),
        ] {
            let (found_chip, found_action) = split_description(description);
            assert_eq!(found_chip.as_deref(), Some(chip), "{description}");
            assert_eq!(found_action.as_deref(), Some(action), "{description}");
        }
        assert_eq!(split_description("IO-APIC   5-edge"), (Some("IO-APIC".to_owned()), None));
        assert_eq!(split_description(""), (None, None));
    }

    #[test]
    fn an_action_belongs_to_the_nic_it_names() {
        assert!(belongs_to(Some("eth0"), "eth0"));
        assert!(belongs_to(Some("eth0-q0-rx"), "eth0"));
        assert!(!belongs_to(Some("eth01"), "eth0"));
        assert!(!belongs_to(None, "eth0"));
    }
}
