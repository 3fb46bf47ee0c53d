//! One end of the path: its counters, its interface, its CPUs.

use std::ffi::CStr;
use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::spec::End;
use crate::sample::sampler::{Host, Kind, Missed, Sample, Source};
use crate::sample::selection::{Listing, Selection};
use crate::sample::values::Values;
use crate::{netdev, snmp, softirqs, softnet, stat};
use base::clock::{now_ns, process_cpu_ns};

const KINDS: [&Kind; 5] = [&stat::CPU, &softirqs::SOFTIRQS, &softnet::SOFTNET, &netdev::NETWORK, &snmp::SNMP];

/// The counters of this end, as the samplers read them.
pub struct Counters {
    samplers: Vec<(&'static str, Box<dyn Sample>)>,
    interface: String,
}

impl Counters {
    pub fn new(interface: &str) -> Self {
        let host = Host {
            root: PathBuf::from("/"),
            processes: Selection::new(Listing::default(), ""),
            missed: Missed::default(),
        };
        let open = |kind: &&'static Kind| match kind.source {
            Source::Host(open) => Some((kind.name, open(&host))),
            Source::Server(_) => None,
        };
        Self { samplers: KINDS.iter().filter_map(open).collect(), interface: interface.to_owned() }
    }

    /// Time, CPU time of this process, interface and sampler -> metric -> label -> number. What this host does not have is absent.
    pub fn read(&mut self) -> Value {
        let mut found = Map::new();
        found.insert("t_ns".to_owned(), now_ns().into());
        found.insert("own_cpu_ns".to_owned(), process_cpu_ns().into());
        found.insert("interface".to_owned(), self.interface.clone().into());
        for (name, sampler) in &mut self.samplers {
            let (mut values, mut line) = (Values::default(), Vec::new());
            if sampler.sample(&mut values).is_err() {
                continue;
            }
            values.write_line(&mut line, name, 0, 0);
            let Ok(Value::Object(mut line)) = serde_json::from_slice(&line) else { continue };
            let Some(Value::Object(mut values)) = line.remove("values") else { continue };
            match *name {
                "network" => values.values_mut().for_each(|metric| keep(metric, &self.interface)),
                "softirqs" => values.retain(|name, _| name.starts_with("NET_")),
                "snmp" => values.retain(|name, _| name.starts_with("Udp.")),
                _ => {}
            }
            found.insert((*name).to_owned(), Value::Object(values));
        }
        Value::Object(found)
    }
}

fn keep(metric: &mut Value, label: &str) {
    if let Value::Object(labels) = metric {
        labels.retain(|name, _| name == label);
    }
}

/// The interface that has an address.
pub fn interface_of(address: IpAddr) -> Option<String> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: it fills the list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let mut found = None;
    let mut at = first;
    // SAFETY: entries of the list are valid until it is freed, names end with 0, and the family of an address says
    // what it is.
    unsafe {
        while let Some(entry) = at.as_ref() {
            if !entry.ifa_addr.is_null() {
                let own = match i32::from((*entry.ifa_addr).sa_family) {
                    libc::AF_INET => {
                        let raw = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                        Some(IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes()))
                    }
                    libc::AF_INET6 => {
                        let raw = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                        Some(IpAddr::from(raw.sin6_addr.s6_addr))
                    }
                    _ => None,
                };
                if own == Some(address) {
                    found = Some(CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned());
                    break;
                }
            }
            at = entry.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    found
}

impl End {
    /// Thread `number` of this end stays on its CPU from now on.
    pub fn settle(&self, number: usize) -> anyhow::Result<()> {
        self.cpus.get(number % self.cpus.len().max(1)).map_or(Ok(()), |cpu| stay_on(*cpu))
    }
}

/// The calling thread runs on this CPU only.
pub fn stay_on(cpu: usize) -> anyhow::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| anyhow::anyhow!("cannot run on CPU {cpu}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Counters, interface_of};

    #[test]
    fn the_loopback_has_its_address_and_its_counters() {
        let name = interface_of("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(interface_of("203.0.113.7".parse().unwrap()), None);
        let found = Counters::new(&name).read();
        assert!(found["cpu"]["softirq"]["cpu0"].is_u64(), "{found}");
        assert!(found["own_cpu_ns"].as_u64() > Some(0));
        assert!(found["softirqs"]["NET_RX"].is_object());
        assert!(found["softirqs"].get("TIMER").is_none());
        assert!(found["network"]["rx_packets"][&name].is_u64());
        assert!(found["snmp"]["Udp.RcvbufErrors"][""].is_u64());
        assert!(found["snmp"].get("Tcp.InSegs").is_none());
    }
}
