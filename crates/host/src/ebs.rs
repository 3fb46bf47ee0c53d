//! How long Amazon held a volume back, by the limit that was reached: the volume's or the instance's.
//!
//! Nothing in /proc or /sys says it: the device only looks slow. Volumes of the block store on Nitro instances answer
//! with a log page of the vendor's (0xD0), which root may ask for; so do the disks of newer instances, which only the
//! instance has limits for. Times are in microseconds since the volume was attached.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::sample::sampler::{Host, Kind, Sample};
use super::sample::values::Values;

pub const EBS: Kind = Kind::host(
    "ebs",
    "us for which a volume of Amazon's block store, or an instance's own disk, was held back, by limit: \
     `volume_iops_us`, `volume_bytes_us`, `instance_iops_us`, `instance_bytes_us`; `queue`; nothing without such a \
     volume (NVMe log page 0xD0, for root)",
    |host: &Host| {
        Box::new(Volumes {
            is_live: host.root.as_os_str() == "/",
            controllers: host.root.join("sys/class/nvme"),
            devices: PathBuf::from("/dev"),
        })
    },
)
.every(2);

/// What a model is called, and what its page begins with.
const STORE: (&str, u32) = ("Amazon Elastic Block Store", 0x3c23_b510);
const LOCAL: (&str, u32) = ("Amazon EC2 NVMe Instance Storage", 0xec2c_0d7e);
const COLUMNS: [&str; 5] =
    ["volume_iops_us", "volume_bytes_us", "instance_iops_us", "instance_bytes_us", "queue"];
/// Where the first of them is: after a mark, a reserved word, and six counters of operations, bytes and times.
const FIRST: usize = 56;
const PAGE_BYTES: usize = 4096;
/// linux/nvme_ioctl.h: _IOWR('N', 0x41, struct nvme_admin_cmd); the command Get Log Page of NVMe.
const ADMIN: u32 = 0xc048_4e41;
const GET_LOG_PAGE: u8 = 0x02;
const LOG_PAGE: u32 = 0xd0;

/// struct `nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

struct Volumes {
    is_live: bool,
    controllers: PathBuf,
    devices: PathBuf,
}

impl Sample for Volumes {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let volumes = volumes(&self.controllers);
        if volumes.is_empty() {
            return Ok(());
        }
        if !self.is_live {
            let message = "a saved host has no log pages of its volumes";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message).into());
        }
        let mut rows = Vec::new();
        for (controller, (model, mark)) in volumes {
            match log_page(&self.devices.join(&controller)) {
                Ok(page) => rows.push((format!("{controller}n1"), numbers(&page, mark)?)),
                // Disks of older instances have no such page.
                Err(error) if model == LOCAL.0 && error.kind() == io::ErrorKind::Other => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("cannot read log page 0xD0 of /dev/{controller}, which only root may")
                    });
                }
            }
        }
        values.table(&COLUMNS, &rows);
        Ok(())
    }
}

/// Controllers of such volumes, `nvme1`, and what they are.
fn volumes(controllers: &Path) -> Vec<(String, (&'static str, u32))> {
    let mut found: Vec<_> = fs::read_dir(controllers)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let model = fs::read_to_string(entry.path().join("model")).ok()?;
            let kind = [STORE, LOCAL].into_iter().find(|(name, _)| *name == model.trim())?;
            Some((entry.file_name().into_string().ok()?, kind))
        })
        .collect();
    found.sort();
    found
}

fn numbers(page: &[u8; PAGE_BYTES], expected: u32) -> anyhow::Result<[u64; COLUMNS.len()]> {
    let mark = u32::from_le_bytes(page[..4].try_into()?);
    ensure!(mark == expected, "the log page begins with {mark:#x}, not with {expected:#x}");
    let mut numbers = [0; COLUMNS.len()];
    for (number, bytes) in numbers.iter_mut().zip(page[FIRST..].chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into()?);
    }
    Ok(numbers)
}

fn log_page(device: &Path) -> io::Result<[u8; PAGE_BYTES]> {
    let file = File::open(device)?;
    let mut page = [0_u8; PAGE_BYTES];
    let words = u32::try_from(PAGE_BYTES / 4 - 1).unwrap_or_default();
    let mut command = Command {
        opcode: GET_LOG_PAGE,
        namespace: 1,
        address: page.as_mut_ptr() as u64,
        data_bytes: 4 * (words + 1),
        words_10_15: [LOG_PAGE | words << 16, 0, 0, 0, 0, 0],
        timeout_ms: 1000,
        ..Command::default()
    };
    // SAFETY: the command names memory of as many bytes as it says; both outlive the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN as _, &raw mut command) };
    match result {
        0 => Ok(page),
        status if status > 0 => Err(io::Error::other(format!("the device answers with status {status:#x}"))),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        COLUMNS, Command, EBS, FIRST, LOCAL, PAGE_BYTES, STORE, Volumes, log_page, numbers, volumes,
    };
    use crate::sample::sampler::Sample;
    use crate::sample::values::Values;
    use std::fs;

    fn page() -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        page[..4].copy_from_slice(&STORE.1.to_le_bytes());
        for number in 0..11_u64 {
            let at = 8 + 8 * usize::try_from(number).unwrap();
            page[at..at + 8].copy_from_slice(&(100 + number).to_le_bytes());
        }
        page
    }

    #[test]
    fn times_come_after_the_six_counters() {
        assert_eq!(numbers(&page(), STORE.1).unwrap(), [106, 107, 108, 109, 110]);
        assert_eq!(COLUMNS.len() * 8 + FIRST, 96);
        assert_eq!(size_of::<Command>(), 72);
        let error = numbers(&[7; PAGE_BYTES], STORE.1).unwrap_err().to_string();
        assert!(error.contains("not with 0x3c23b510"), "{error}");
        // A page of the other kind has its times elsewhere, for all that is known.
        assert!(numbers(&page(), LOCAL.1).is_err());
    }

    fn host(model: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, model) in [("nvme0", "Samsung PM9A3"), ("nvme1", model)] {
            let folder = root.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("model"), format!("{model}              \n")).unwrap();
        }
        root
    }

    #[test]
    fn only_volumes_of_amazon_are_asked() {
        let root = host("Amazon Elastic Block Store");
        assert_eq!(volumes(root.path()), [("nvme1".to_owned(), STORE)]);
        assert_eq!(volumes(host(LOCAL.0).path()), [("nvme1".to_owned(), LOCAL)]);
        assert!(volumes(host("Amazon EC2 NVMe").path()).is_empty());
        assert!(volumes(&root.path().join("none")).is_empty());
    }

    #[test]
    fn a_volume_that_cannot_be_asked_is_an_error_and_none_is_nothing() {
        let root = host("Amazon Elastic Block Store");
        let mut volumes =
            Volumes { is_live: true, controllers: root.path().to_owned(), devices: root.path().join("dev") };
        let error = volumes.sample(&mut Values::default()).unwrap_err().to_string();
        assert!(error.contains("log page 0xD0 of /dev/nvme1"), "{error}");
        volumes.is_live = false;
        assert!(volumes.sample(&mut Values::default()).is_err());
        volumes.controllers = root.path().join("none");
        volumes.sample(&mut Values::default()).unwrap();
        // A file that is no device.
        assert!(log_page(&root.path().join("nvme0/model")).is_err());
        assert_eq!(EBS.name, "ebs");
    }
}
