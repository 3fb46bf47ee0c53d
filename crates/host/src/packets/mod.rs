//! `packets`: how many small packets per second an interface carries, and what it costs which core.
//!
//! A client sends requests, a server answers each with a reply of the size that the request asks for. `run` measures
//! one round between two hosts, `pair` between two network namespaces of its own. Counters are printed raw, as they
//! were before and after each step on both ends.

mod batch;
mod client;
mod ends;
mod interrupt;
mod message;
mod output;
mod pair;
mod server;
mod spec;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum PacketsCommand {
    /// Answer the requests of one client that knows the token; SPEC on standard input
    Serve,
    /// Measure one round against `serve` on another host; SPEC on standard input
    Run,
    /// Measure one round between two network namespaces that exist only meanwhile; SPEC on standard input
    Pair,
}

/// Reads the SPEC, and prints JSON lines.
pub fn run(command: &PacketsCommand) -> anyhow::Result<()> {
    match command {
        PacketsCommand::Serve => server::serve(&spec::read()?),
        PacketsCommand::Run => client::run(&spec::read()?),
        PacketsCommand::Pair => pair::run(spec::read()?),
    }
}
