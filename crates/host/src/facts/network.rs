//! NICs and how their packets are distributed over CPUs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::attachment::{Attachment, attachment};
use super::files::Folder;
use super::offloads;

#[derive(Serialize)]
pub struct Interface {
    pub name: String,
    /// Whether it has hardware, or a hypervisor's emulation of it.
    physical: bool,
    driver: Option<String>,
    controller_driver: Option<String>,
    pci_address: Option<String>,
    numa_node: Option<u32>,
    operstate: Option<String>,
    /// Null without link, or if the driver does not know it.
    speed_mbit_s: Option<u64>,
    duplex: Option<String>,
    mtu_bytes: Option<u64>,
    tx_queue_len: Option<u64>,
    gro_flush_timeout_ns: Option<u64>,
    napi_defer_hard_irqs: Option<u64>,
    threaded_napi: Option<bool>,
    /// What it does for the kernel, in ethtool's words: `tso`, `gro`. Null for a saved host.
    offloads: Option<BTreeMap<&'static str, bool>>,
    /// The bond or bridge that this one belongs to.
    master: Option<String>,
    /// The interfaces that are part of this one.
    lower: Vec<String>,
    rx_queues: Vec<RxQueue>,
    tx_queues: Vec<TxQueue>,
    #[serde(skip)]
    pub irqs: Vec<u32>,
}

/// Masks are hexadecimal, as the kernel prints and takes them.
#[derive(Serialize)]
struct RxQueue {
    queue: u32,
    rps_cpus: Option<String>,
    rps_flow_cnt: Option<u64>,
}

#[derive(Serialize)]
struct TxQueue {
    queue: u32,
    /// Null if there is no choice: a NIC with one queue.
    xps_cpus: Option<String>,
}

pub fn read(host: &Folder, live: bool) -> Vec<Interface> {
    let folder = host.join("sys/class/net");
    // The bonding driver has its own file among the interfaces.
    let names = folder.names("").into_iter().filter(|name| name != "bonding_masters");
    names.map(|name| interface(&folder.join(&name), name, live)).collect()
}

fn interface(folder: &Folder, name: String, live: bool) -> Interface {
    let physical = folder.exists("device");
    let Attachment { driver, controller_driver, pci_address, numa_node, irqs } =
        if physical { attachment(folder) } else { Attachment::default() };
    let queues = folder.join("queues");
    let mut rx_queues = Vec::new();
    let mut tx_queues = Vec::new();
    for entry in queues.names("") {
        let queue = queues.join(&entry);
        if let Some(Ok(number)) = entry.strip_prefix("rx-").map(str::parse) {
            let rps_cpus = queue.line("rps_cpus");
            rx_queues.push(RxQueue { queue: number, rps_cpus, rps_flow_cnt: queue.number("rps_flow_cnt") });
        } else if let Some(Ok(number)) = entry.strip_prefix("tx-").map(str::parse) {
            tx_queues.push(TxQueue { queue: number, xps_cpus: queue.line("xps_cpus") });
        }
    }
    let entries = folder.names("");
    let offloads = if live { offloads::read(&name) } else { None };
    Interface {
        name,
        physical,
        driver,
        controller_driver,
        pci_address,
        numa_node,
        operstate: folder.line("operstate"),
        speed_mbit_s: folder.number::<i64>("speed").and_then(known_speed),
        duplex: folder.line("duplex"),
        mtu_bytes: folder.number("mtu"),
        tx_queue_len: folder.number("tx_queue_len"),
        gro_flush_timeout_ns: folder.number("gro_flush_timeout"),
        napi_defer_hard_irqs: folder.number("napi_defer_hard_irqs"),
        threaded_napi: folder.flag("threaded"),
        offloads,
        master: entries.iter().any(|entry| entry == "master").then(|| folder.link_name("master")).flatten(),
        lower: entries.iter().filter_map(|entry| entry.strip_prefix("lower_").map(str::to_owned)).collect(),
        rx_queues,
        tx_queues,
        irqs,
    }
}

/// A link's speed in Mbit/s. Drivers write an unknown one as 0, as -1, or as -1 in 16 or 32 bits without a sign.
fn known_speed(speed: i64) -> Option<u64> {
    match u64::try_from(speed) {
        Ok(0 | 0xffff | 0xffff_ffff) | Err(_) => None,
        Ok(known) => Some(known),
    }
}
