//! `headrace-agent proxy`: a server's stand-in that passes every byte on and writes down what it means. For where
//! packets cannot be captured: TLS, no root, a server on another machine.
//!
//! Without options bytes go through untouched; what is encrypted is passed on, counted, and not decoded. With a
//! certificate (`--tls-cert`, `--tls-key`) encryption of clients ends here. Plugins of the login speak with the
//! server through us: mysql_native_password and ed25519 always work; caching_sha2_password and sha256_password work
//! while the server knows the account (its cache), and otherwise need a way to the server that it takes for safe
//! (`--server-tls` or `--server-socket`), since the client sends its password as it is over TLS. With `--no-tls`
//! such clients ask for the server's public key (RSA), or refuse where they are not allowed to. Accounts that must use
//! TLS need `--server-tls`. Clients that check the server's certificate see ours; those of MariaDB 11.4 that check it
//! by their password refuse it.

mod arguments;
mod descriptors;
mod events;
#[cfg(fuzzing)]
pub mod fuzzing;
mod leg;
mod login;
mod nameless;
mod shared;
mod tap;
mod worker;

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_tcp_nodelay;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

pub use self::arguments::ProxyArguments;
use self::descriptors::{Spare, is_out_of_descriptors};
use self::events::Out;
use self::login::Rules;
use self::shared::{Settings, Totals, refuse};
use self::tap::{Queue, Tap};
use self::worker::{Inbox, Worker};
use super::coverage::Coverage;
use super::guard::Ending;
use super::wire::{Decoder, WireOptions};
use base::clock::{epoch_offset_ns, now_ns, process_cpu_ns};
use base::error::AgentError;
use base::stop::StopSignal;
use engine::net::Address;
use mysql::options::{Endpoint, TlsMode};
use mysql::tls;

/// How often it is looked whether everything is still in order.
const CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

pub fn run(arguments: &ProxyArguments) -> anyhow::Result<()> {
    let settings = Arc::new(settings(arguments)?);
    let max_sessions = descriptors::sessions(arguments.max_sessions)?;
    let stop = StopSignal::install()?;
    let out = Out::open(arguments)?;
    let listener = listen(&arguments.listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    warn_of_local_accounts(address, &settings.server);
    base::output::print_line(json!({"kind": "listening", "address": address.to_string()}))?;
    io::stdout().flush()?;
    let began = Instant::now();
    let (totals, queue) = (Arc::new(Totals::default()), Arc::new(Queue::default()));
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
        .clamp(1, 256);
    let (sender, batches) = channel();
    let mut inboxes = Vec::new();
    let mut workers = Vec::new();
    for _ in 0..threads {
        let tap = Tap::new(sender.clone(), queue.clone(), arguments.queue_mib << 20);
        let inbox = Arc::new(Inbox::new()?);
        let worker = Worker::new(inbox.clone(), settings.clone(), totals.clone(), tap)?;
        workers.push(std::thread::spawn(move || worker.run()));
        inboxes.push(inbox);
    }
    drop(sender);
    let options =
        WireOptions { checksum: arguments.checksums, name: "proxy".to_owned(), ..WireOptions::default() };
    let decoder = Decoder::with_options(out, options);
    let shared = queue.clone();
    let decoding = std::thread::spawn(move || decode(&batches, &shared, decoder));
    accept(&listener, &stop, &inboxes, &totals, max_sessions)?;
    drop(listener);
    let grace_ns = u64::try_from(arguments.grace.as_nanos()).unwrap_or(u64::MAX);
    totals.stop_ns.store(now_ns().saturating_add(grace_ns).max(1), Relaxed);
    inboxes.iter().for_each(|inbox| inbox.wake());
    for worker in workers {
        worker.join().map_err(|_| anyhow!("a thread of the proxy panicked"))??;
    }
    let decoded = decoded(decoding, &queue);
    let coverage = decoded.as_ref().ok();
    print_summary(&totals, &queue, began.elapsed(), coverage)?;
    decoded.map(drop)
}

fn listen(address: &str) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address).map_err(|error| {
        let said = format!("cannot listen on {address}: {error}");
        match error.kind() {
            io::ErrorKind::AddrInUse => AgentError::Busy(said),
            // A port below 1024 without the capability.
            io::ErrorKind::PermissionDenied => AgentError::NotReady(said),
            _ => AgentError::Named(said),
        }
    })
}

/// Beside its server, the proxy's clients come from `localhost`, wherever they are.
fn warn_of_local_accounts(listening: SocketAddr, server: &Address) {
    let is_beside = match server {
        Address::Unix(_) => true,
        Address::Tcp(address) => address.ip().is_loopback(),
    };
    if is_beside && !listening.ip().is_loopback() {
        eprintln!(
            "headrace-agent: the server takes clients of {listening} for local ones: accounts of localhost are open to \
             the network by their password, and those without a password to everybody"
        );
    }
}

/// What the decoder saw. It may have a backlog, so it gets time as long as it makes progress.
fn decoded(decoding: JoinHandle<anyhow::Result<(Coverage, Out)>>, queue: &Queue) -> anyhow::Result<Coverage> {
    let mut ending = Ending::default();
    while !decoding.is_finished() {
        if ending.is_stuck(&queue.pulse) {
            // The thread ends with the process; the file ends with a whole block.
            return Err(anyhow!("the decoder did not end; please report the traffic that did this"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut coverage, out) = decoding.join().map_err(|_| anyhow!("the decoder panicked"))??;
    coverage.gaps = queue.gaps.load(Relaxed);
    coverage.gap_bytes = queue.gap_bytes.load(Relaxed);
    out.finish(&mut coverage)?;
    Ok(coverage)
}

/// Accepts connections until it is asked to stop.
fn accept(
    listener: &TcpListener,
    stop: &StopSignal,
    inboxes: &[Arc<Inbox>],
    totals: &Totals,
    most: usize,
) -> anyhow::Result<()> {
    let mut turn = 0;
    let mut spare = Spare::new();
    loop {
        let mut files = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        let _ = poll(&mut files, Some(&CHECK));
        if stop.is_set() {
            return Ok(());
        }
        loop {
            let (socket, client) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_out_of_descriptors(&error) && spare.refuse(listener) => {
                    totals.refused.fetch_add(1, Relaxed);
                    continue;
                }
                Err(_) => {
                    // A client that left immediately, or no memory. Open sessions must continue.
                    std::thread::sleep(Duration::from_millis(10));
                    break;
                }
            };
            if totals.active.fetch_add(1, Relaxed) >= most {
                totals.active.fetch_sub(1, Relaxed);
                totals.refused.fetch_add(1, Relaxed);
                refuse(&socket);
                continue;
            }
            let _ = set_tcp_nodelay(&socket, true);
            descriptors::keep_alive(&socket);
            inboxes[turn % inboxes.len()].put(OwnedFd::from(socket), client);
            turn += 1;
        }
    }
}

fn decode(
    batches: &Receiver<Vec<u8>>,
    queue: &Queue,
    mut decoder: Decoder<Out>,
) -> anyhow::Result<(Coverage, Out)> {
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let result = tap::drain(batches, queue, &mut decoder, nowhere, Out::tick);
    if let Err(error) = result {
        // Traffic continues; the caller should know immediately.
        eprintln!("headrace-agent: recording has stopped: {error:#}");
        return Err(error);
    }
    decoder.finish_with_sink()
}

fn settings(arguments: &ProxyArguments) -> anyhow::Result<Settings> {
    let endpoint = match (&arguments.server_socket, &arguments.server) {
        (Some(path), _) => {
            nameless::check(path)?;
            Endpoint::Socket(path.clone())
        }
        (None, Some(server)) => server_endpoint(server)?,
        (None, None) => return Err(AgentError::Input("no server was named".to_owned()).into()),
    };
    let server_tls = match arguments.server_tls {
        TlsMode::Disabled => None,
        TlsMode::Preferred => {
            let message = "--server-tls is disabled, required, verify-ca or verify-identity";
            return Err(AgentError::Input(message.to_owned()).into());
        }
        mode => Some(tls::config(mode, arguments.server_tls_ca.as_deref())?),
    };
    let client_tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(Arc::new(server_config(certificate, key)?)),
        _ => None,
    };
    let rules = Rules {
        ends_tls: client_tls.is_some(),
        hides_tls: arguments.no_tls,
        server_tls: server_tls.is_some(),
    };
    let server = Address::found(&endpoint)?;
    let server_name = tls::server_name(&endpoint)?;
    Ok(Settings { server, server_name, rules, client_tls, server_tls, offset_ns: epoch_offset_ns() })
}

fn server_endpoint(server: &str) -> anyhow::Result<Endpoint> {
    let bad = || AgentError::Input(format!("--server {server:?} is not HOST:PORT"));
    let (host, port) = server.rsplit_once(':').ok_or_else(bad)?;
    let port = port.parse().map_err(|_| bad())?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Endpoint::Tcp { host, port })
}

fn server_config(certificate: &Path, key: &Path) -> anyhow::Result<ServerConfig> {
    let unusable = |path: &Path, why: &dyn std::fmt::Display| {
        AgentError::Named(format!("cannot use {}: {why}", path.display()))
    };
    let opened = |path: &Path| File::open(path).map_err(|error| unusable(path, &error));
    let chain: Vec<_> = CertificateDer::pem_reader_iter(opened(certificate)?)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_reader(opened(key)?).map_err(|error| unusable(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| unusable(certificate, &error))?;
    Ok(config)
}

fn print_summary(
    totals: &Totals,
    queue: &Queue,
    elapsed: Duration,
    coverage: Option<&Coverage>,
) -> anyhow::Result<()> {
    let line = json!({
        "kind": "summary",
        "seconds": elapsed.as_secs_f64(),
        "cpu_s": process_cpu_ns() as f64 / 1e9,
        "sessions": totals.sessions.load(Relaxed),
        "refused": totals.refused.load(Relaxed),
        "unreachable": totals.unreachable.load(Relaxed),
        "client_bytes": totals.bytes[0].load(Relaxed),
        "server_bytes": totals.bytes[1].load(Relaxed),
        "gaps": queue.gaps.load(Relaxed),
        "gap_bytes": queue.gap_bytes.load(Relaxed),
        "coverage": coverage,
    });
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("cannot write the summary")
}
