//! `headrace-agent memcached`: captures, or an interface for a while, in; one JSON document out.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Decoder;
use super::pattern::Shown;
use crate::capture::{self, CaptureOptions};
use crate::coverage::Coverage;
use crate::packets::PacketOptions;
use crate::sources::together::{grouped, name_of, read_streams};
use base::duration::parse_duration;
use base::error::AgentError;
use base::output::print_line;
use base::stop::StopSignal;

/// Sum up what clients ask of memcached, by command and pattern of key, as JSON
#[derive(Args)]
pub struct MemcachedArguments {
    /// Captures (pcap, pcapng, text of tcpdump -x), also compressed; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "interface")]
    files: Vec<PathBuf>,
    /// Capture packets of this interface; any for all of them (needs root, or CAP_NET_RAW)
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    interface: Option<String>,
    /// Stop a capture on an interface after this time; without, SIGINT or SIGTERM stops it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "interface")]
    duration: Option<Duration>,
    /// Port of memcached, can be given more than once
    #[arg(long = "port", value_name = "PORT", default_values_t = [11_211])]
    ports: Vec<u16>,
    /// Show this word where it stands in keys, beside the usual ones; all for all words
    #[arg(long = "key-words", value_name = "WORD", value_delimiter = ',')]
    words: Vec<String>,
    /// Name the hot keys as they are
    #[arg(long)]
    show_keys: bool,
}

/// Reads, and prints one JSON document.
///
/// # Errors
/// An input cannot be read or is not a capture, or nothing in it made sense.
pub fn run(arguments: &MemcachedArguments) -> anyhow::Result<()> {
    let shown = Shown::new(&arguments.words);
    let mut decoder = Decoder::new(String::new(), shown, arguments.show_keys);
    let packets =
        PacketOptions { ports: arguments.ports.clone(), finds_port: false, ..PacketOptions::default() };
    let mut coverage = Coverage::default();
    let mut sources: Vec<String> = Vec::new();
    let mut ended = Ok(());
    if let Some(name) = &arguments.interface {
        sources.push(format!("interface {name}"));
        decoder.shared.name.clone_from(&sources[0]);
        let options = CaptureOptions {
            interface: (name != "any").then(|| name.to_owned()),
            packets: packets.clone(),
            duration: arguments.duration,
            ..CaptureOptions::default()
        };
        let captured = capture::capture(&options, &StopSignal::install()?, &mut decoder)?;
        coverage = captured.coverage;
        ended = captured.ended.as_asked(name);
    }
    for group in grouped(&arguments.files, false, &mut coverage) {
        let name = name_of(&group);
        decoder.shared.name.clone_from(&name);
        sources.push(name);
        let of_file = read_streams(&group, &packets, &mut decoder)?;
        decoder.end_input();
        coverage.merge(&of_file);
    }
    decoder.end_input();
    coverage.merge(&decoder.shared.coverage);
    let unreadable = coverage.unreadable();
    let mut found = decoder.shared.table.take_json();
    found["sources"] = json!(sources);
    found["ports"] = json!(arguments.ports);
    found["coverage"] = serde_json::to_value(&coverage)?;
    found["unreadable"] = json!(unreadable);
    found["ended"] = json!(ended.as_ref().err().map(ToString::to_string));
    print_line(found)?;
    // A report of nothing must not look like one of an idle server.
    let unreadable = unreadable.map(|why| AgentError::Named(format!("{}: {why}", sources.join(", "))));
    Ok(unreadable.map_or(ended, Err)?)
}
