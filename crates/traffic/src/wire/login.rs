//! The client's side of a login.

use mysql_common::constants::CapabilityFlags as Flags;

use mysql::Error;
use mysql::reader::Reader;

/// What the client says of itself. A request for TLS ends before the user.
#[derive(Debug)]
pub struct Hello<'a> {
    pub flags: Flags,
    pub user: &'a [u8],
    pub database: &'a [u8],
}

/// Bytes of a request for TLS, and of what is before the user of a login.
const FIXED: usize = 32;

impl<'a> Hello<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader { payload, at: 0 };
        let low = u16::from_le_bytes(reader.array()?);
        if !Flags::from_bits_retain(low.into()).contains(Flags::CLIENT_PROTOCOL_41) {
            return Err(Error::Malformed("a login older than MySQL 4.1"));
        }
        let high = u16::from_le_bytes(reader.array()?);
        let flags = Flags::from_bits_retain(u32::from(high) << 16 | u32::from(low));
        // Size, collation, and a filler that MariaDB's clients use for flags of their own: what those change shows
        // in the packets themselves.
        reader.take(FIXED - 4)?;
        let mut hello = Hello { flags, user: b"", database: b"" };
        if hello.asks_for_tls(payload.len()) {
            return Ok(hello);
        }
        hello.user = reader.until_nul()?;
        if flags.contains(Flags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA) {
            reader.text()?;
        } else {
            take_password(&mut reader, flags)?;
        }
        // Some clients claim a database and send none.
        if flags.contains(Flags::CLIENT_CONNECT_WITH_DB) && !reader.rest().is_empty() {
            hello.database = reader.until_nul()?;
        }
        Ok(hello)
    }

    pub fn asks_for_tls(&self, length: usize) -> bool {
        self.flags.contains(Flags::CLIENT_SSL) && length == FIXED
    }
}

fn take_password(reader: &mut Reader<'_>, flags: Flags) -> Result<(), Error> {
    if flags.contains(Flags::CLIENT_SECURE_CONNECTION) {
        let [length] = reader.array()?;
        reader.take(length.into())?;
    } else {
        reader.until_nul()?;
    }
    Ok(())
}

/// User and database of a COM_CHANGE_USER, without its first byte.
pub fn parse_change_user(payload: &[u8], flags: Flags) -> Result<(&[u8], &[u8]), Error> {
    let mut reader = Reader { payload, at: 0 };
    let user = reader.until_nul()?;
    take_password(&mut reader, flags | Flags::CLIENT_SECURE_CONNECTION)?;
    Ok((user, reader.until_nul()?))
}
