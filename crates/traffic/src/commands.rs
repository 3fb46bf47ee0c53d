//! Names of the protocol's commands as servers write them into their logs.

use super::event::Command;

/// By the byte of the protocol.
#[rustfmt::skip]
const NAMES: [&str; 0x21] = [
    "Sleep", "Quit", "Init DB", "Query", "Field List", "Create DB", "Drop DB", "Refresh",
    "Shutdown", "Statistics", "Processlist", "Connect", "Kill", "Debug", "Ping", "Time",
    "Delayed insert", "Change user", "Binlog Dump", "Table Dump", "Connect Out", "Register Slave",
    "Prepare", "Execute", "Long Data", "Close stmt", "Reset stmt", "Set option", "Fetch", "Daemon",
    "Binlog Dump GTID", "Reset Connection", "clone",
];
/// What newer servers renamed.
const RENAMED: [(&str, u8); 2] = [("Register Replica", 0x15), ("Reset connection", 0x1f)];
/// COM_PROCESS_KILL.
pub const PROCESS_KILL: u8 = 0x0c;
/// For an unknown name: the byte of the servers' "Error", which is not a command.
const UNKNOWN: u8 = 0xff;

/// The command of a name.
#[must_use]
pub fn by_name(name: &[u8]) -> Command {
    let index = NAMES.iter().position(|known| known.as_bytes() == name);
    let renamed = || RENAMED.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, byte)| *byte);
    by_byte(index.and_then(|index| u8::try_from(index).ok()).or_else(renamed).unwrap_or(UNKNOWN))
}

/// Whether a server writes this name.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    by_name(name) != Command::Other(UNKNOWN)
}

/// The command of a byte of the protocol.
#[must_use]
pub fn by_byte(byte: u8) -> Command {
    match byte {
        0x01 => Command::Quit,
        0x02 => Command::InitDb,
        0x03 => Command::Query,
        0x0b => Command::Connect,
        0x0e => Command::Ping,
        0x11 => Command::ChangeUser,
        0x16 => Command::Prepare,
        0x17 => Command::Execute,
        0x19 => Command::Close,
        0x1a => Command::ResetStatement,
        0x1c => Command::Fetch,
        0x1f => Command::ResetConnection,
        0xfa => Command::BulkExecute,
        other => Command::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bytes() {
        assert_eq!(by_name(b"Close stmt"), Command::Close);
        assert_eq!(by_name(b"Reset Connection"), Command::ResetConnection);
        assert_eq!(by_name(b"Statistics"), Command::Other(0x09));
        assert_eq!(by_name(b"Register Replica"), Command::Other(0x15));
        assert_eq!(by_name(b"no such"), Command::Other(0xff));
    }
}
