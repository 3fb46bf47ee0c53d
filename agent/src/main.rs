//! `headrace-agent`: the hands of headrace. Arguments only; each capability is a module.

mod error;
mod histogram;
mod host;
mod mysql;
mod settings;

use clap::{Parser, Subcommand};

/// Reads a MySQL host, samples it and changes its settings safely. JSON in, JSON lines out.
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
    /// The journal of changes: hold the lock, apply, record, roll back, show
    #[command(subcommand)]
    Journal(settings::JournalCommand),
    /// Print bucket, lowest and highest value for each number of ns on standard input
    #[command(hide = true)]
    Buckets,
}

fn main() -> std::process::ExitCode {
    let result = match Arguments::parse().command {
        Command::Facts(arguments) => host::facts::run(&arguments),
        Command::Sample(arguments) => host::sample::run(&arguments),
        Command::Journal(command) => settings::run(&command),
        Command::Buckets => histogram::print_buckets(std::io::stdin().lock(), std::io::stdout().lock()),
    };
    error::exit_code(result)
}
