use std::io;

/// What happened on a connection; `Net::bytes` has what was received.
#[derive(Debug)]
pub enum Happened {
    Connected,
    Received,
    Closed,
    Broken(io::Error),
}
