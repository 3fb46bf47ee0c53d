//! Files of the kernel that act, and are busy while udev looks at the device.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Write a file of the kernel that acts, again and again while it is busy.
pub fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let written =
            OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(text.as_bytes()));
        match written {
            Ok(()) => return Ok(()),
            // udev looks at a device that changes, and lets go of it again.
            Err(e) if e.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
}
