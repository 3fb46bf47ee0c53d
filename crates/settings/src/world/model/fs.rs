//! What `std::fs` offers, as far as this crate uses it: on the model where there is one, else on the real machine.

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::kernel::path_in;
use super::machine::{Call, Machine, call, is_model, on};

#[derive(Debug)]
pub enum File {
    Real(std::fs::File),
    Model(Handle),
}

#[derive(Debug)]
pub struct Handle {
    pub id: u64,
    what: What,
    path: PathBuf,
    at: usize,
    append: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Node(usize),
    /// A file of the kernel, by its path without the root.
    Kernel(String),
    KernelFolder,
}

fn find(machine: &Machine, path: &Path) -> io::Result<What> {
    if let Some(text) = path_in(path) {
        if machine.kernel.text(text).is_some() {
            return Ok(What::Kernel(text.to_owned()));
        }
        return if machine.kernel.is_folder(text) {
            Ok(What::KernelFolder)
        } else {
            Err(Errno::NOENT.into())
        };
    }
    machine.disk.find(path).map(What::Node).ok_or_else(|| Errno::NOENT.into())
}

/// A call on the model's machine; only where there is one.
fn ask<R>(kind: Call, path: &Path, work: impl FnOnce(&mut Machine) -> io::Result<R>) -> io::Result<R> {
    call(kind, path)?;
    on(work).unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

impl File {
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    pub fn set_len(&self, length: u64) -> io::Result<()> {
        match self {
            File::Real(file) => file.set_len(length),
            File::Model(handle) => ask(Call::Cut, &handle.path, |machine| match &handle.what {
                What::Node(node) => {
                    machine.disk.nodes[*node].now.resize(length as usize, 0);
                    Ok(())
                }
                _ => Err(Errno::INVAL.into()),
            }),
        }
    }

    pub fn sync_all(&self) -> io::Result<()> {
        match self {
            File::Real(file) => file.sync_all(),
            File::Model(handle) => ask(Call::Sync, &handle.path, |machine| {
                if let What::Node(node) = handle.what {
                    machine.disk.sync(node);
                }
                Ok(())
            }),
        }
    }

    pub fn sync_data(&self) -> io::Result<()> {
        match self {
            File::Real(file) => file.sync_data(),
            File::Model(_) => self.sync_all(),
        }
    }
}

impl Handle {
    pub fn node(&self) -> usize {
        match self.what {
            What::Node(node) => node,
            _ => usize::MAX,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        on(|machine| machine.locks.retain(|(_, handle, _)| *handle != self.id));
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let handle = match self {
            File::Real(file) => return file.read(buffer),
            File::Model(handle) => handle,
        };
        let all = ask(Call::Read, &handle.path, |machine| match &handle.what {
            What::Node(node) if machine.disk.nodes[*node].is_folder => Err(Errno::ISDIR.into()),
            What::Node(node) => Ok(machine.disk.nodes[*node].now.clone()),
            What::Kernel(path) => {
                machine.kernel.text(path).map(String::into_bytes).ok_or_else(|| Errno::NODEV.into())
            }
            What::KernelFolder => Err(Errno::ISDIR.into()),
        })?;
        let rest = all.get(handle.at..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        handle.at += count;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let handle = match self {
            File::Real(file) => return file.write(bytes),
            File::Model(handle) => handle,
        };
        let node = match &handle.what {
            What::Node(node) => *node,
            What::Kernel(path) => {
                let text = String::from_utf8_lossy(bytes);
                ask(Call::Set, &handle.path, |machine| Ok(machine.kernel.set(path, &text)?))?;
                return Ok(bytes.len());
            }
            What::KernelFolder => return Err(Errno::BADF.into()),
        };
        let put = |count: usize| {
            on(|machine| {
                let now = &mut machine.disk.nodes[node].now;
                let at = if handle.append { now.len() } else { handle.at };
                now.resize(now.len().max(at + count), 0);
                now[at..at + count].copy_from_slice(&bytes[..count]);
                handle.at = at + count;
            });
        };
        let path = handle.path.clone();
        // Whoever is killed or refused in a write may have written a part of it.
        let part = Torn(on(|machine| machine.chance.below(bytes.len())), put);
        call(Call::Write, &path)?;
        part.whole(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a part where it is dropped before it is whole.
struct Torn<F: FnMut(usize)>(Option<usize>, F);

impl<F: FnMut(usize)> Torn<F> {
    fn whole(mut self, length: usize) {
        self.0 = Some(length);
    }
}

impl<F: FnMut(usize)> Drop for Torn<F> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            (self.1)(count);
        }
    }
}

impl Seek for File {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        match (self, place) {
            (File::Real(file), place) => file.seek(place),
            (File::Model(handle), SeekFrom::Start(at)) => {
                handle.at = at as usize;
                Ok(at)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

#[derive(Clone, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    mode: u32,
}

impl OpenOptions {
    pub fn new() -> OpenOptions {
        OpenOptions { mode: 0o666, ..OpenOptions::default() }
    }

    pub fn read(&mut self, value: bool) -> &mut Self {
        self.read = value;
        self
    }

    pub fn write(&mut self, value: bool) -> &mut Self {
        self.write = value;
        self
    }

    pub fn append(&mut self, value: bool) -> &mut Self {
        self.append = value;
        self
    }

    pub fn create(&mut self, value: bool) -> &mut Self {
        self.create = value;
        self
    }

    pub fn create_new(&mut self, value: bool) -> &mut Self {
        self.create_new = value;
        self
    }

    pub fn truncate(&mut self, value: bool) -> &mut Self {
        self.truncate = value;
        self
    }

    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        if !is_model() {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = std::fs::OpenOptions::new();
            options.read(self.read).write(self.write).append(self.append).create(self.create);
            options.create_new(self.create_new).truncate(self.truncate).mode(self.mode);
            return options.open(path).map(File::Real);
        }
        let creates = self.create || self.create_new;
        let is_new = on(|machine| find(machine, path).is_err()) == Some(true) && creates;
        ask(if is_new { Call::Create } else { Call::Open }, path, |machine| {
            let what = match find(machine, path) {
                Ok(_) if self.create_new => return Err(Errno::EXIST.into()),
                Err(_) if is_new => {
                    let folder = path.parent().unwrap_or(Path::new("/"));
                    machine.disk.find(folder).ok_or(Errno::NOENT)?;
                    What::Node(machine.disk.add(path, false, self.mode))
                }
                found => found?,
            };
            if let (What::Node(node), true) = (&what, self.truncate) {
                machine.disk.nodes[*node].now.clear();
            }
            let (id, path) = (machine.handle(), path.to_owned());
            Ok(File::Model(Handle { id, what, path, at: 0, append: self.append }))
        })
    }
}

pub trait OpenOptionsExt {
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }
}

#[derive(Default)]
pub struct DirBuilder {
    mode: u32,
}

impl DirBuilder {
    pub fn new() -> DirBuilder {
        DirBuilder { mode: 0o777 }
    }

    pub fn create(&self, path: &Path) -> io::Result<()> {
        if !is_model() {
            use std::os::unix::fs::DirBuilderExt;
            return std::fs::DirBuilder::new().mode(self.mode).create(path);
        }
        ask(Call::MakeFolder, path, |machine| {
            if machine.disk.find(path).is_some() {
                return Err(Errno::EXIST.into());
            }
            machine.disk.find(path.parent().unwrap_or(path)).ok_or(Errno::NOENT)?;
            machine.disk.add(path, true, self.mode);
            Ok(())
        })
    }
}

pub trait DirBuilderExt {
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }
}

pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().create(path.as_ref())
}

pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    if metadata(path).is_ok() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), create_dir_all)?;
    create_dir(path)
}

/// Of a file or directory, as far as it is asked for.
pub struct Metadata {
    is_folder: bool,
    mode: u32,
    uid: u32,
}

impl Metadata {
    fn of(real: &std::fs::Metadata) -> Metadata {
        use std::os::unix::fs::MetadataExt;
        Metadata { is_folder: real.is_dir(), mode: real.mode(), uid: real.uid() }
    }

    fn of_model(machine: &Machine, what: &What) -> Metadata {
        let (is_folder, mode) = match what {
            What::Node(node) => (machine.disk.nodes[*node].is_folder, machine.disk.nodes[*node].mode),
            What::Kernel(_) => (false, 0o644),
            What::KernelFolder => (true, 0o755),
        };
        Metadata { is_folder, mode, uid: rustix::process::geteuid().as_raw() }
    }

    pub fn is_dir(&self) -> bool {
        self.is_folder
    }

    pub fn is_file(&self) -> bool {
        !self.is_folder
    }

    pub fn permissions(&self) -> &Metadata {
        self
    }

    pub fn readonly(&self) -> bool {
        self.mode & 0o222 == 0
    }
}

pub trait MetadataExt {
    fn mode(&self) -> u32;
    fn uid(&self) -> u32;
}

impl MetadataExt for Metadata {
    fn mode(&self) -> u32 {
        self.mode
    }

    fn uid(&self) -> u32 {
        self.uid
    }
}

pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    if !is_model() {
        return std::fs::metadata(path).map(|real| Metadata::of(&real));
    }
    ask(Call::Look, path, |machine| Ok(Metadata::of_model(machine, &find(machine, path)?)))
}

pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    if is_model() { metadata(path) } else { std::fs::symlink_metadata(path).map(|real| Metadata::of(&real)) }
}

pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    match metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The model has no links.
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    if is_model() { metadata(path).map(|_| path.to_owned()) } else { std::fs::canonicalize(path) }
}

pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

pub struct DirEntry {
    path: PathBuf,
}

impl DirEntry {
    pub fn metadata(&self) -> io::Result<Metadata> {
        symlink_metadata(&self.path)
    }

    pub fn file_name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }
}

pub fn read_dir(path: impl AsRef<Path>) -> io::Result<std::vec::IntoIter<io::Result<DirEntry>>> {
    let path = path.as_ref();
    let entry = |path: PathBuf| Ok(DirEntry { path });
    let entries: Vec<io::Result<DirEntry>> = if is_model() {
        ask(Call::Open, path, |machine| match find(machine, path)? {
            What::KernelFolder => {
                let names = machine.kernel.names(path_in(path).unwrap_or_default());
                Ok(names.iter().map(|name| entry(path.join(name))).collect())
            }
            _ => Err(Errno::NOTDIR.into()),
        })?
    } else {
        std::fs::read_dir(path)?.map(|found| found.and_then(|found| entry(found.path()))).collect()
    };
    Ok(entries.into_iter())
}

pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if !is_model() {
        return std::fs::rename(from, to);
    }
    ask(Call::Rename, to, |machine| Ok(machine.disk.rename(from, to)?))
}

pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    if !is_model() {
        return std::fs::remove_file(path);
    }
    ask(Call::Remove, path, |machine| {
        find(machine, path)?;
        machine.disk.remove(path);
        Ok(())
    })
}

pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    if !is_model() {
        return std::fs::remove_dir(path);
    }
    ask(Call::Remove, path, |machine| {
        find(machine, path)?;
        if machine.disk.has_entries(path) {
            return Err(Errno::NOTEMPTY.into());
        }
        machine.disk.remove(path);
        Ok(())
    })
}
