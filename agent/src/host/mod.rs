//! Reading a host: one parser a file of /proc or /sys. Parsers take text; the root path is a parameter.

pub mod cgroup;
pub mod cpuinfo;
pub mod cpulist;
pub mod diskstats;
pub mod facts;
pub mod filesystems;
pub mod interrupts;
pub mod listen;
pub mod md;
pub mod meminfo;
pub mod mountinfo;
pub mod netdev;
pub mod process;
pub mod psi;
pub mod sample;
pub mod server;
pub mod server_process;
pub mod servers;
pub mod snmp;
pub mod softirqs;
pub mod softnet;
pub mod stat;
pub mod thermal;
pub mod threads;
pub mod vmstat;
