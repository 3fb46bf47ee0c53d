//! When the kernel received a reply, by its own stamp (SO_TIMESTAMPNS, socket(7)). A driver whose core was idle or busy with
//! other work sees the reply later, and that delay is not the server's.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};

use base::clock::{epoch_offset_ns, epoch_offset_within};

/// A reading of both clocks that takes longer was interrupted: the previous offset is kept.
const CLOSE_NS: u64 = 1_000;

/// Translates stamps, which are times of day, to the driver's clock.
pub struct Stamps {
    offset_ns: i64,
}

impl Stamps {
    pub fn new() -> Self {
        Self { offset_ns: epoch_offset_ns() }
    }

    /// Reads the offset again, because the time of day may have been adjusted.
    pub fn follow(&mut self) {
        self.offset_ns = epoch_offset_within(CLOSE_NS).unwrap_or(self.offset_ns);
    }

    /// Receives without waiting: the number of bytes, and when the last of them arrived. None if the kernel did not say:
    /// a unix socket has no stamps.
    pub fn receive(&self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // As aligned as a control message has to be.
        let mut control = [0_u64; 8];
        // SAFETY: all of its fields may be zero.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the header names one buffer and one control buffer, which both outlive the call.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has filled `control` and set its length.
        let message = unsafe { libc::CMSG_FIRSTHDR(&raw const header).as_ref() };
        let stamp =
            message.filter(|m| m.cmsg_level == libc::SOL_SOCKET && m.cmsg_type == libc::SCM_TIMESTAMPNS);
        let arrived = stamp.map(|message| {
            // SAFETY: a message of this type holds a timespec.
            let time = unsafe { libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned() };
            (time.tv_sec * 1_000_000_000 + time.tv_nsec - self.offset_ns).max(0).cast_unsigned()
        });
        Ok((count, arrived))
    }
}

/// Asks the kernel to stamp what this socket receives. If it refuses, there are no stamps.
pub fn ask(socket: &OwnedFd) {
    let on: libc::c_int = 1;
    // SAFETY: the option is an int, which outlives the call.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}
