//! Loop devices, by their backing file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl};

use super::processes;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Loop devices with this backing file. The kernel appends a word when the file was removed.
pub fn of(backing: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let backing = backing.to_string_lossy();
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").context("/sys/block")?.flatten() {
        let text = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        let file = text.strip_suffix('\n').unwrap_or(&text);
        if file == backing || file.strip_suffix(" (deleted)") == Some(&backing) {
            found.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    Ok(found)
}

/// By ioctl instead of `losetup -d`: no program to find on the host, and the kernel's own error.
pub fn detach_all(backing: &Path) -> anyhow::Result<()> {
    const LOOP_CLR_FD: u32 = 0x4C01;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let devices = of(backing)?;
        if devices.is_empty() {
            return Ok(());
        }
        for device in &devices {
            let file = File::open(device).with_context(|| device.display().to_string())?;
            // SAFETY: LOOP_CLR_FD takes no argument.
            let cleared = unsafe { ioctl(&file, NoArg::<{ LOOP_CLR_FD as Opcode }>::new()) };
            match cleared {
                // NXIO: another process was faster. BUSY: asked again below.
                Ok(()) | Err(Errno::NXIO | Errno::BUSY) => {}
                Err(error) => return Err(error).with_context(|| device.display().to_string()),
            }
        }
        // The kernel says yes and detaches when the last one closes the device (udev looks at it, too).
        if Instant::now() > deadline {
            let names: Vec<_> = devices.iter().map(|d| d.display().to_string()).collect();
            anyhow::bail!("{}: still open in {}", names.join(", "), processes::users_of(&devices[0]));
        }
        std::thread::sleep(Duration::from_millis(if of(backing)?.is_empty() { 0 } else { 20 }));
    }
}
