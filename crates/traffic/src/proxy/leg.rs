//! One socket of a connection through the proxy, encrypted or not.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::Connection;

use engine::net::send_now;

/// Plain bytes that wait for a handshake of TLS.
const MOST_WAITING: usize = 256 * 1024;

pub struct Leg {
    pub fd: OwnedFd,
    tls: Option<Box<Connection>>,
    /// What the socket has not taken yet, from `taken` on.
    unsent: Vec<u8>,
    taken: usize,
    /// What epoll watches for; None while it does not watch at all.
    pub watched: Option<EventFlags>,
}

/// What a socket gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes of the buffer, as they are meant.
    Plain(usize),
    /// They are in the buffer for decrypted bytes.
    Decrypted,
    Nothing,
    Ended,
}

impl Leg {
    pub fn new(fd: OwnedFd) -> Self {
        Leg { fd, tls: None, unsent: Vec::new(), taken: 0, watched: None }
    }

    pub fn is_blocked(&self) -> bool {
        self.taken < self.unsent.len()
    }

    /// Encrypts from here on; `bytes` have come already.
    pub fn encrypt(&mut self, tls: Connection, bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        let mut tls = Box::new(tls);
        tls.set_buffer_limit(Some(MOST_WAITING));
        self.tls = Some(tls);
        self.decrypt(bytes, plain)?;
        self.flush()
    }

    pub fn receive(&mut self, buffer: &mut [u8], plain: &mut Vec<u8>) -> io::Result<Received> {
        let count = match recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(Received::Ended),
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
        };
        if self.tls.is_none() {
            return Ok(Received::Plain(count));
        }
        plain.clear();
        self.decrypt(&buffer[..count], plain)?;
        // The handshake may have something to say, or what waited for it can go.
        self.flush()?;
        Ok(Received::Decrypted)
    }

    fn decrypt(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while !bytes.is_empty() {
            if tls.read_tls(&mut bytes)? == 0 {
                return Ok(());
            }
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // Why is told to the other side, too, as far as that goes.
                    let _ = self.flush();
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            let from = plain.len();
            plain.resize(from + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut plain[from..])?;
        }
        Ok(())
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            let mut rest = bytes;
            while !rest.is_empty() {
                let count = tls.writer().write(rest)?;
                rest = &rest[count..];
                while tls.wants_write() {
                    tls.write_tls(&mut self.unsent)?;
                }
                if count == 0 {
                    return Err(io::Error::other("too much waits for the handshake of TLS"));
                }
            }
            return self.flush();
        }
        if self.is_blocked() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let count = send_now(&self.fd, bytes)?;
        self.unsent.extend_from_slice(&bytes[count..]);
        Ok(())
    }

    /// Sends what waits, as far as the socket takes it.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.unsent)?;
            }
        }
        if self.is_blocked() {
            self.taken += send_now(&self.fd, &self.unsent[self.taken..])?;
        }
        if !self.is_blocked() {
            self.unsent.clear();
            self.unsent.shrink_to(4096);
            self.taken = 0;
        }
        Ok(())
    }

    /// Says that nothing comes after what was sent.
    pub fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        // Whoever is gone already needs no farewell.
        let _ = self.flush();
    }
}
