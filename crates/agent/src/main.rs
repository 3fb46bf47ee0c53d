//! `headrace-agent`: the hands of headrace. Arguments and exit codes; each capability is a crate.

use std::error::Error;

use base::{error, histogram, output};
use clap::{Parser, Subcommand};
use host::{ladder, packets, stacks};

/// Reads a MySQL host, samples it, changes its settings safely and drives load. JSON in, JSON lines out.
#[derive(Parser)]
#[command(name = "headrace-agent", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print one JSON object: how this host is configured
    Facts(host::facts::FactsArguments),
    /// Append raw counters of this host (and its server) every interval, as JSON lines
    Sample(Box<host::sample::SampleArguments>),
    /// Measure this machine's latency ladder, from a cache to a commit, as JSON lines
    Ladder(Box<ladder::LadderArguments>),
    /// Measure how many packets per second an interface carries, as JSON lines
    #[command(subcommand)]
    Packets(packets::PacketsCommand),
    /// Where a process spends its time, as folded stacks
    Stacks(stacks::StacksArguments),
    /// Draw folded stacks as a flame graph (SVG)
    Flamegraph(stacks::FlamegraphArguments),
    /// Print what a server executes now and which statements took the most time, as JSON
    Statements(host::server::statements::StatementsArguments),
    /// Print how often each latency of a statement occurred since the server started, as JSON
    Histograms(host::server::histograms::HistogramsArguments),
    /// Print the plan of a statement that runs now, or of a digest, as JSON
    Explain(host::server::explain::ExplainArguments),
    /// Print size, columns and indexes of named tables, as JSON lines
    Tables(host::server::tables::TablesArguments),
    /// Play a recording again on a server of yours, and compare the answers
    Replay(Box<traffic::replay::ReplayArguments>),
    /// Drive load: check, load the data, run, verify, clean
    #[command(subcommand)]
    Drive(drive::DriveCommand),
    /// Print the query class of each statement on standard input, as JSON lines
    Fingerprint(sql::command::FingerprintArguments),
    /// Record traffic: captures and logs into one file that digest and replay read
    Record(Box<traffic::recording::record::RecordArguments>),
    /// Look into recordings, and make others of them
    #[command(subcommand)]
    Recording(Box<traffic::recording::commands::RecordingCommand>),
    /// Pass every byte of clients on to a server, and record what they mean
    Proxy(Box<traffic::proxy::ProxyArguments>),
    /// The journal of changes: hold the lock, apply, record, roll back, show
    #[command(subcommand)]
    Journal(settings::JournalCommand),
    /// Run a program that ends when standard input does, or brings nothing for as long as its lease
    Leased(settings::leased::LeasedArguments),
    /// Print a plain file of a folder where others may write, as JSON; refuse links, pipes, devices
    File(settings::plain::FileArguments),
    /// Sum up traffic by query class, as JSON lines or as a table
    Digest(Box<traffic::digest::command::DigestArguments>),
    /// Sum up what clients ask of memcached, by command and pattern of key, as JSON
    Memcached(traffic::memcached::command::MemcachedArguments),
    /// Make a disk as it may be after its power failed, from a log of its writes
    PowerCut(host::power_cut::PowerCutArguments),
    /// Print what a file of traffic holds, one JSON line an event
    #[command(hide = true)]
    Events(traffic::events::EventsArguments),
    /// Print bucket, lowest and highest value for each number of ns on standard input
    #[command(hide = true)]
    Buckets,
}

fn main() -> std::process::ExitCode {
    output::survive_file_limits();
    let result = match Arguments::parse().command {
        Command::Facts(arguments) => host::facts::run(&arguments),
        Command::Sample(arguments) => host::sample::run(&arguments, &host::samplers()),
        Command::Ladder(arguments) => ladder::run(&arguments),
        Command::Packets(command) => packets::run(&command),
        Command::Stacks(arguments) => stacks::run(&arguments),
        Command::Flamegraph(arguments) => stacks::draw(&arguments),
        Command::Statements(arguments) => host::server::statements::run(&arguments),
        Command::Histograms(arguments) => host::server::histograms::run(&arguments),
        Command::Explain(arguments) => host::server::explain::run(&arguments),
        Command::Tables(arguments) => host::server::tables::run(&arguments),
        Command::Replay(arguments) => traffic::replay::run(&arguments),
        Command::Drive(command) => drive::run(&command),
        Command::Fingerprint(arguments) => sql::command::run(&arguments),
        Command::Record(arguments) => traffic::recording::record::run(&arguments),
        Command::Recording(command) => traffic::recording::commands::run(&command),
        Command::Proxy(arguments) => traffic::proxy::run(&arguments),
        Command::Journal(command) => settings::run(&command),
        Command::Leased(arguments) => settings::leased::run(&arguments),
        Command::File(arguments) => settings::plain::run(&arguments),
        Command::Digest(arguments) => traffic::digest::command::run(&arguments),
        Command::Memcached(arguments) => traffic::memcached::command::run(&arguments),
        Command::PowerCut(arguments) => host::power_cut::run(&arguments),
        Command::Events(arguments) => traffic::events::run(&arguments),
        Command::Buckets => histogram::print_buckets(std::io::stdin().lock(), std::io::stdout().lock()),
    };
    let of_server = |cause: &(dyn Error + 'static)| cause.is::<mysql::Error>().then_some(error::UNREACHABLE);
    error::exit_code(result, of_server)
}
