//! Compressed devices in memory.

use std::path::Path;

use anyhow::Context;

use super::busy::put;

/// The number of a `zramN`.
pub fn number(device: &str) -> Option<u32> {
    device.strip_prefix("zram")?.parse().ok()
}

/// Reset and remove it; it may be gone already.
pub fn remove(device: &str) -> anyhow::Result<()> {
    let number = number(device).context("not a zram device")?;
    let folder = Path::new("/sys/block").join(device);
    if !folder.exists() {
        return Ok(());
    }
    put(&folder.join("reset"), "1")?;
    put(Path::new("/sys/class/zram-control/hot_remove"), &number.to_string())
}
