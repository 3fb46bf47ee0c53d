//! `drive`: an accurate and cheap load driver.

mod check;
pub mod digits;
#[cfg(fuzzing)]
pub mod fuzzing;
mod load;
mod memcached;
mod mix;
mod mysql_client;
mod needs;
mod oltp;
mod reply;
mod run;
pub mod script;
mod spec;
mod sql;
mod tpcc;

use std::path::PathBuf;
use std::time::Duration;

use base::error::AgentError;
use clap::{Args, Subcommand};
use engine::net::Address;
use mysql::{Options, ServerArguments};

use self::memcached::Memcached;
use self::memcached::client::MemcachedClient;
use self::mysql_client::MysqlClient;
use self::run::Load;
use self::spec::{Spec, WorkloadSpec};

/// The blocking client's read timeout: statements that load or check data may take long.
const STATEMENT_LIMIT: Duration = Duration::from_secs(3600);

#[derive(Subcommand)]
pub enum DriveCommand {
    /// Create and fill the tables of a SPEC, or store its items
    Load(Box<CommonArguments>),
    /// Say which limits of this host and of the server a SPEC needs, and what raises those that are too low
    Check(Box<CommonArguments>),
    /// Check the tables of a TPC-C SPEC: print its twelve consistency conditions as one JSON array
    Verify(Box<CommonArguments>),
    /// Drop the tables of a SPEC, or delete its items
    Clean(Box<CommonArguments>),
    /// Drive the load of a SPEC and write what came back, as JSON lines
    Run(Box<RunArguments>),
}

#[derive(Args)]
pub struct RunArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Write to this file instead of standard output, compressed if it ends in .zst
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Args)]
pub struct CommonArguments {
    /// JSON file that says what to drive; - is standard input
    spec: PathBuf,
    /// Show how far it is on standard error, also where that is not a terminal
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    server: ServerArguments,
}

impl CommonArguments {
    fn options(&self) -> anyhow::Result<Options> {
        let options = self.server.options(STATEMENT_LIMIT)?;
        let missing = || AgentError::Input("no server: give --mysql-socket or --mysql-host".to_owned());
        Ok(options.ok_or_else(missing)?)
    }
}

pub fn run(command: &DriveCommand) -> anyhow::Result<()> {
    match command {
        DriveCommand::Load(arguments) => {
            let spec = Spec::read(&arguments.spec)?;
            match &spec.workload {
                WorkloadSpec::Memcached(options) => memcached::load::run(options, arguments.progress),
                _ => load::run(&spec, &arguments.options()?, arguments.progress),
            }
        }
        DriveCommand::Check(arguments) => check::run(&Spec::read(&arguments.spec)?, &arguments.options()?),
        DriveCommand::Verify(arguments) => verify(&Spec::read(&arguments.spec)?, &arguments.options()?),
        DriveCommand::Clean(arguments) => {
            let spec = Spec::read(&arguments.spec)?;
            match &spec.workload {
                WorkloadSpec::Memcached(options) => memcached::load::clean(options),
                _ => load::clean(&spec, &arguments.options()?),
            }
        }
        DriveCommand::Run(arguments) => drive(arguments),
    }
}

fn verify(spec: &Spec, options: &Options) -> anyhow::Result<()> {
    let WorkloadSpec::Tpcc(workload) = &spec.workload else {
        let message = "only a SPEC of the kind tpcc has consistency conditions";
        return Err(AgentError::Input(message.to_owned()).into());
    };
    base::output::print_line(serde_json::to_string(&tpcc::consistency::run(options, workload)?)?)?;
    Ok(())
}

fn drive(arguments: &RunArguments) -> anyhow::Result<()> {
    let spec = Spec::read(&arguments.common.spec)?;
    if let WorkloadSpec::Memcached(options) = &spec.workload {
        let workload = Memcached::new(options)?;
        let load = Load {
            spec: &spec,
            address: options.address()?,
            operations: workload.operations(),
            make: |_| MemcachedClient::new(&workload),
            needs: &|_| None,
        };
        return run::run(&load, arguments.output.as_deref(), arguments.common.progress);
    }
    let workload = spec.workload.on_mysql()?;
    let options = arguments.common.options()?;
    let address = Address::found(&options.endpoint)?;
    let load = Load {
        spec: &spec,
        needs: &|stop| needs::of(&spec, &*workload, &options, &address, stop),
        address: address.clone(),
        operations: workload.operations().to_vec(),
        make: |number| MysqlClient::new(&options, workload.clone(), number, spec.connections),
    };
    run::run(&load, arguments.output.as_deref(), arguments.common.progress)
}
