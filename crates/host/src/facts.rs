//! `headrace-agent facts`: one JSON object that says how a host is configured.
//!
//! Conventions of the JSON: a missing or unknown value is null, never 0; names end in their
//! unit; sets of CPUs that describe the hardware are lists of numbers; settings (affinities, masks, sysctls)
//! are text exactly as the kernel prints and takes it, so that they can be compared and written back.

mod attachment;
mod block;
pub(crate) mod cgroup;
mod counters;
mod cpu;
mod datasets;
pub(crate) mod files;
mod filesystems;
mod irqs;
mod md;
mod memory;
mod namespaces;
mod network;
mod offloads;
mod origins;
mod place;
mod platform;
mod pretty;
mod processes;
mod redact;
mod server;
mod sockets;
mod stale;
mod sysctls;
mod tasks;
pub(crate) mod tracing;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;

use crate::mountinfo;
use base::error::AgentError;
use files::{Choice, Files, Folder, ReadError};
use mysql::{Options, ServerArguments};

/// Raised when a key changes its meaning or is removed; a new key is not a new format.
const FORMAT: u32 = 1;

#[derive(Args)]
pub struct FactsArguments {
    /// Read the host that this folder holds; nothing outside it is read and no command is run
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Indent the JSON for people
    #[arg(long)]
    pretty: bool,
    /// Also read what may cost the server much: sizes of more than 10,000 tables, for up to a minute
    #[arg(long)]
    thorough: bool,
    #[command(flatten)]
    server: Box<ServerArguments>,
}

#[derive(Serialize)]
struct Facts {
    format: u32,
    agent_version: &'static str,
    /// When the facts were read, by the clock of the machine that read them.
    read_at_ns: u64,
    hostname: Option<String>,
    uptime_s: Option<f64>,
    kernel: platform::Kernel,
    os: platform::Os,
    virtualization: platform::Virtualization,
    clock_source: Option<Choice>,
    mitigations: BTreeMap<String, Option<String>>,
    /// The resources that have a file in /proc/pressure.
    pressure: Vec<String>,
    cpu: cpu::Cpu,
    numa_nodes: Vec<memory::NumaNode>,
    memory: memory::Memory,
    block_devices: Vec<block::BlockDevice>,
    md_arrays: Vec<md::Array>,
    file_systems: Vec<filesystems::FileSystem>,
    network_interfaces: Vec<network::Interface>,
    irqs: irqs::Irqs,
    irqbalance: processes::Irqbalance,
    sysctls: BTreeMap<String, String>,
    /// The kernel's own tracing; null if its file system is not mounted or not readable.
    tracing: Option<Vec<tracing::Instance>>,
    /// The limits of this agent, and so of what it starts.
    cgroup: Option<cgroup::Limits>,
    servers: Vec<processes::Server>,
    /// Of the ZFS datasets that are mounted; null without one.
    zfs: Option<datasets::Datasets>,
    /// The server that was asked, whether it answered or not: its socket, or host and port.
    server_asked: Option<String>,
    /// The configuration that the named server reports.
    server_settings: Option<server::Settings>,
    errors: Vec<ReadError>,
}

pub fn run(arguments: &FactsArguments) -> anyhow::Result<()> {
    let server = arguments.server.options(server::read_timeout(arguments.thorough))?;
    if server.is_some() && arguments.root.is_some() {
        let message = "--root names a saved host, which has no server to ask";
        return Err(AgentError::Input(message.to_owned()).into());
    }
    let facts = read(Files::open(arguments.root.as_deref())?, server.as_ref(), arguments.thorough)?;
    let mut output = std::io::stdout().lock();
    if arguments.pretty {
        output.write_all(pretty::pretty(&serde_json::to_value(&facts)?).as_bytes())?;
    } else {
        serde_json::to_writer(&mut output, &facts)?;
        output.write_all(b"\n")?;
    }
    Ok(output.flush()?)
}

/// What is printed of the host that a folder holds.
#[cfg(fuzzing)]
pub(crate) fn printed(root: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&read(Files::open(Some(root))?, None, false)?)?)
}

fn read(files: Files, server: Option<&Options>, is_thorough: bool) -> anyhow::Result<Facts> {
    let host = files.root();
    let host = &host;
    let mounts = mountinfo::parse(&host.text("proc/self/mountinfo").unwrap_or_default());
    let hierarchies = cgroup::Hierarchies::of(&mounts);
    let cpu = cpu::read(host);
    let block_devices = block::read(host);
    let network_interfaces = network::read(host, files.is_live());
    let nics: Vec<&str> = network_interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let irqs = irqs::read(host, &irq_owners(&block_devices, &network_interfaces), &nics);
    let mut running = processes::read(host, &hierarchies, files.is_live());
    if files.is_live() {
        running.servers.iter_mut().for_each(|server| server.look_into(host, &block_devices));
    }
    let facts = Facts {
        format: FORMAT,
        agent_version: env!("CARGO_PKG_VERSION"),
        read_at_ns: u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?,
        hostname: host.line("proc/sys/kernel/hostname"),
        uptime_s: host.number("proc/uptime"),
        kernel: platform::kernel(host),
        os: platform::os(host),
        virtualization: platform::virtualization(host, cpu.hypervisor_flag),
        clock_source: platform::clock_source(host),
        mitigations: platform::mitigations(host),
        pressure: platform::pressure(host),
        cpu,
        numa_nodes: memory::numa_nodes(host),
        memory: memory::read(host, files.is_live()),
        file_systems: filesystems::read(host, &mounts, &block_devices),
        block_devices,
        md_arrays: md::read(host),
        network_interfaces,
        irqs,
        irqbalance: processes::irqbalance(host, running.irqbalance_pid, files.is_live()),
        sysctls: sysctls::read(host),
        tracing: tracing::read(host, &mounts),
        cgroup: own_cgroup(host, &hierarchies),
        servers: running.servers,
        zfs: datasets::read(host, &mounts, files.is_live()),
        server_asked: server.map(|server| server.endpoint.to_string()),
        server_settings: None,
        errors: Vec::new(),
    };
    let mut errors = files.into_errors();
    let server_settings = server.and_then(|server| {
        server::read(server, is_thorough, &facts.servers, facts.hostname.as_deref(), &mut errors)
    });
    Ok(Facts { server_settings, errors, ..facts })
}

fn own_cgroup(host: &Folder, hierarchies: &cgroup::Hierarchies) -> Option<cgroup::Limits> {
    host.text("proc/self/cgroup").map(|text| cgroup::read(host, hierarchies, &text))
}

/// Interrupt -> the first device that has it: namespaces of one NVMe controller share theirs.
fn irq_owners(devices: &[block::BlockDevice], interfaces: &[network::Interface]) -> HashMap<u32, String> {
    let devices = devices.iter().map(|device| (&device.name, &device.irqs));
    let interfaces = interfaces.iter().map(|interface| (&interface.name, &interface.irqs));
    let mut owners = HashMap::new();
    for (name, irqs) in devices.chain(interfaces) {
        for &irq in irqs {
            owners.entry(irq).or_insert_with(|| name.clone());
        }
    }
    owners
}
