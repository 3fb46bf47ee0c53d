//! Memory for a copy of one block, from the kernel itself: an allocator would keep what a burst took.

use std::io;
use std::ptr::NonNull;

use super::ring::BLOCK_BYTES;

pub struct Buffer {
    memory: NonNull<u8>,
    filled: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// # Errors
    /// The process gets no more memory.
    pub fn new() -> io::Result<Self> {
        let (access, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which nothing else knows.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), BLOCK_BYTES, access, private, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, filled: 0 })
    }

    /// Keeps a copy of a block, or of its beginning if it is no block of the ring.
    pub fn fill(&mut self, block: &[u8]) {
        self.filled = block.len().min(BLOCK_BYTES);
        // SAFETY: no more than both of them have, and they are not the same memory.
        unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), self.memory.as_ptr(), self.filled) };
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so much was written to it.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.filled) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: our mapping, of this length; no slice of it outlives this value.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK_BYTES) };
    }
}
