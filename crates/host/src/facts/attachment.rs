//! What a block device or NIC is attached to: drivers, PCI function, interrupts.

use super::files::Folder;

#[derive(Default)]
pub struct Attachment {
    /// The driver nearest to the device (`sd`, `virtio_blk`, `nvme`, `mlx5_core`).
    pub driver: Option<String>,
    /// The driver of the controller, if that is another one (`ahci`, `virtio-pci`).
    pub controller_driver: Option<String>,
    pub pci_address: Option<String>,
    pub numa_node: Option<u32>,
    /// The interrupts of the PCI function: the device's own, or its controller's.
    pub irqs: Vec<u32>,
}

/// `device` is a folder such as `/sys/block/sda` or `/sys/class/net/eth0`.
pub fn attachment(device: &Folder) -> Attachment {
    let mut attached = Attachment::default();
    let mut drivers = Vec::new();
    for step in path_to_bus(device) {
        drivers.extend(step.link_name("driver"));
        let uevent = step.text("uevent").unwrap_or_default();
        // Above the first PCI function there are only bridges, and those have interrupts of their own.
        if let Some(address) = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")) {
            attached.pci_address = Some(address.to_owned());
            // -1 if the host has only one node.
            attached.numa_node = step.number::<i64>("numa_node").and_then(|node| u32::try_from(node).ok());
            attached.irqs = step.names("msi_irqs").iter().filter_map(|irq| irq.parse().ok()).collect();
            if attached.irqs.is_empty() {
                attached.irqs.extend(step.number::<u32>("irq").filter(|&irq| irq > 0));
            }
            break;
        }
    }
    drivers.dedup();
    let mut drivers = drivers.into_iter();
    attached.driver = drivers.next();
    attached.controller_driver = drivers.last();
    attached
}

/// The device's own folder and those of its parents, nearest first.
fn path_to_bus<'a>(device: &Folder<'a>) -> Vec<Folder<'a>> {
    let own = device.join("device");
    let mut steps = vec![own.clone(), own.join("device")];
    // With multipathing the namespace's parent is a subsystem, which links to its controllers.
    let controllers = own.names("").into_iter().filter(|name| is_nvme_controller(name));
    steps.extend(controllers.map(|name| own.join(&format!("{name}/device"))));
    let Some(target) = device.link("") else { return steps };
    let mut path = resolve(device.path(), &target);
    while let Some((parent, _)) = path.rsplit_once('/') {
        if !parent.starts_with("/sys/devices/") {
            break;
        }
        steps.push(device.absolute(parent));
        path = parent.to_owned();
    }
    steps
}

fn is_nvme_controller(name: &str) -> bool {
    name.strip_prefix("nvme")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The path that a relative link means.
fn resolve(link: &str, target: &str) -> String {
    let mut parts: Vec<&str> = link.split('/').filter(|part| !part.is_empty()).collect();
    parts.pop();
    for part in target.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::attachment;
    use crate::facts::files::Files;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_disk_behind_a_controller_and_a_bridge() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let bridge = "sys/devices/pci0/0000-00-1c.0";
        let disk = format!("{bridge}/0000-03-00.0/ata1/host0/target0/0-0-0-0");
        write(root, &format!("{bridge}/uevent"), "DRIVER=pcieport\nPCI_SLOT_NAME=0000:00:1c.0\n");
        write(root, &format!("{bridge}/msi_irqs/24"), "msi\n");
        write(root, &format!("{bridge}/0000-03-00.0/uevent"), "PCI_SLOT_NAME=0000:03:00.0\n");
        write(root, &format!("{bridge}/0000-03-00.0/driver"), "../../bus/pci/drivers/ahci\n");
        write(root, &format!("{bridge}/0000-03-00.0/numa_node"), "1\n");
        write(root, &format!("{bridge}/0000-03-00.0/msi_irqs/30"), "msi\n");
        write(root, &format!("{disk}/driver"), "../bus/scsi/drivers/sd\n");
        write(root, &format!("{disk}/block/sda/size"), "8\n");
        symlink("../..", root.join(&disk).join("block/sda/device")).unwrap();
        fs::create_dir_all(root.join("sys/block")).unwrap();
        symlink(Path::new("../..").join(&disk).join("block/sda"), root.join("sys/block/sda")).unwrap();
        let files = Files::open(Some(root)).unwrap();
        let found = attachment(&files.root().join("sys/block/sda"));
        assert_eq!(found.driver.as_deref(), Some("sd"));
        assert_eq!(found.controller_driver.as_deref(), Some("ahci"));
        assert_eq!(found.pci_address.as_deref(), Some("0000:03:00.0"));
        assert_eq!(found.numa_node, Some(1));
        assert_eq!(found.irqs, [30]);
        assert!(files.into_errors().is_empty());
    }

    #[test]
    fn a_namespace_with_multipathing() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let controller = "sys/block/nvme0n1/device/nvme0/device";
        write(root, &format!("{controller}/uevent"), "PCI_SLOT_NAME=0000:04:00.0\n");
        write(root, &format!("{controller}/driver"), "nvme");
        write(root, &format!("{controller}/numa_node"), "-1\n");
        write(root, &format!("{controller}/irq"), "17\n");
        let files = Files::open(Some(root)).unwrap();
        let found = attachment(&files.root().join("sys/block/nvme0n1"));
        assert_eq!(found.driver.as_deref(), Some("nvme"));
        assert_eq!(found.controller_driver, None);
        assert_eq!(found.numa_node, None);
        assert_eq!(found.irqs, [17]);
    }

    #[test]
    fn a_virtual_device_hangs_on_nothing() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/block/loop0/size", "8\n");
        let files = Files::open(Some(root.path())).unwrap();
        let found = attachment(&files.root().join("sys/block/loop0"));
        assert!(found.driver.is_none() && found.irqs.is_empty());
    }
}
