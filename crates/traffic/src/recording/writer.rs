//! Writes a recording: whole blocks only, each of them readable whatever happens to the rest.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::encode::Encoder;
use super::frame::{HEADER_BYTES, Header, Kind, MAX_BLOCK_BYTES, MAX_BLOCK_EVENTS, MAX_UNPACKED_BYTES};
use super::info::{Info, Totals};
use super::place::{self, Part};
use super::reader::Reader;
use super::source::{Entry, Source};
use super::text::Cleaner;
use super::window::Window;
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome, Sink};
use base::error::AgentError;

/// A larger event keeps its numbers and the beginning of its statement, and loses its parameters.
pub(super) const MAX_EVENT_BYTES: usize = MAX_BLOCK_BYTES - (2 << 20);
const BEGINNING_BYTES: usize = 64 << 10;
/// A session's starts are moved forward by no more than this to keep their order: a clock of whole seconds needs it.
const MAX_MOVE_NS: u64 = 2_000_000_000;
/// Sessions whose last start is remembered for that.
const MAX_SESSIONS: usize = 1 << 18;
/// Late events wait here for a block of their own.
const LATE_BYTES: usize = 4 << 20;
/// Sorting less at once is not worth while.
const SORT_BYTES: usize = 1 << 20;

/// How a recording is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Keep statements and parameters as they are, but for passwords. Without: strict fingerprints, no parameters.
    pub with_literals: bool,
    /// Write over a file that is there.
    pub force: bool,
    /// The file gets its name when it is whole, and is removed if it never is. Without: what was written is kept.
    pub only_whole: bool,
    /// What the first block says: sources, and what was done to them.
    pub info: Info,
    /// Events wait so long for earlier ones, measured in their own time; what comes later is in blocks of its own.
    pub window: Duration,
    /// And no more than so many bytes wait.
    pub window_bytes: usize,
    /// Size of a block before compression.
    pub block_bytes: usize,
    /// What is in memory is written after this time at the latest: what a crash costs.
    pub flush_after: Duration,
    pub compression_level: i32,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            with_literals: false,
            force: false,
            only_whole: false,
            info: Info::of_this_host(),
            window: Duration::from_secs(1),
            window_bytes: 16 << 20,
            block_bytes: 512 << 10,
            flush_after: Duration::from_secs(5),
            compression_level: 3,
        }
    }
}

/// A recording that is being written. Without `finish` it ends with the last whole block.
pub struct Writer {
    file: File,
    pub(super) path: PathBuf,
    /// The name that the file has until it is whole.
    part: Option<Part>,
    options: WriterOptions,
    cleaner: Cleaner,
    window: Window,
    late: Window,
    encoder: Encoder,
    /// Last start that was given to the encoder, and the latest end of all events: the recording's clock.
    written_ns: u64,
    now_ns: u64,
    starts: Starts,
    open: OpenSessions,
    entries: Vec<Entry>,
    offset: u64,
    info: Info,
    totals: Totals,
    /// The database of the last events, and how many they are.
    database: (Vec<u8>, u64),
    flushed: Instant,
    events_at_tick: u64,
    payload: Vec<u8>,
    frame: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
}

impl Writer {
    /// Creates the file, with mode 0600.
    ///
    /// # Errors
    /// The file is there and `force` is not set, or it cannot be written.
    pub fn create(path: &Path, options: &WriterOptions) -> anyhow::Result<Self> {
        if options.only_whole {
            let (file, part) = Part::create(path, options.force)?;
            return Ok(Self { part: Some(part), ..Self::begin(file, path, options, Vec::new(), 0)? });
        }
        Self::begin(place::create(path, options.force)?, path, options, Vec::new(), 0)
    }

    /// Goes on with a recording: after its last whole block, whether it was finished or its recorder was killed.
    ///
    /// # Errors
    /// The file is not a recording, or keeps literals and this one would not (or the other way round).
    pub fn append(path: &Path, options: &WriterOptions) -> anyhow::Result<Self> {
        let reader = Reader::open(path)?;
        let infos = reader.info();
        if infos.iter().any(|info| info.with_literals != options.with_literals) {
            let kept = if options.with_literals { "has no literals" } else { "has literals" };
            let reason =
                format!("{} {kept}; record with the same choice, or into another file", path.display());
            return Err(AgentError::Refused(reason).into());
        }
        let segment = infos.iter().map(|info| info.segment + 1).max().unwrap_or(0);
        let source = Source::open(path)?;
        let mut entries = source.scan(&mut Coverage::default())?;
        while entries.pop_if(|entry| matches!(entry.header.kind, Kind::Index | Kind::End)).is_some() {}
        let end = entries.last().map_or(0, Entry::end);
        let mut file = source.to_write().map_err(|error| AgentError::unwritable(path, error))?;
        file.set_len(end).with_context(|| format!("cannot write {}", path.display()))?;
        file.seek(SeekFrom::Start(end))?;
        Self::begin(file, path, options, entries, segment)
    }

    fn begin(
        file: File,
        path: &Path,
        options: &WriterOptions,
        entries: Vec<Entry>,
        segment: u32,
    ) -> anyhow::Result<Self> {
        let info =
            Info { segment, with_literals: options.with_literals, totals: None, ..options.info.clone() };
        let mut writer = Writer {
            file,
            path: path.to_owned(),
            part: None,
            options: options.clone(),
            cleaner: Cleaner::new(options.with_literals),
            window: Window::default(),
            late: Window::default(),
            encoder: Encoder::new(options.with_literals),
            written_ns: 0,
            now_ns: 0,
            starts: Starts::default(),
            open: OpenSessions::default(),
            offset: entries.last().map_or(0, Entry::end),
            entries,
            info,
            totals: Totals::default(),
            database: (Vec::new(), 0),
            flushed: Instant::now(),
            events_at_tick: 0,
            payload: Vec::new(),
            frame: Vec::new(),
            compressor: zstd::bulk::Compressor::new(options.compression_level)?,
        };
        writer.write_info()?;
        Ok(writer)
    }

    /// Start a source whose sessions may overlap those of earlier ones.
    pub fn begin_source(&mut self) {
        self.open = OpenSessions { before: self.open.most(), ..OpenSessions::default() };
    }

    /// Bytes written to the file so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Events taken so far, and what was done to them.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Call regularly, as events may pause: writes those that have waited long enough.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn tick(&mut self) -> anyhow::Result<()> {
        if self.flushed.elapsed() < self.options.flush_after {
            return Ok(());
        }
        let is_idle = self.totals.events == self.events_at_tick;
        self.events_at_tick = self.totals.events;
        self.drain(if is_idle { u64::MAX } else { self.watermark() })?;
        self.flush()
    }

    /// Writes what is left, the totals and the index, and makes the file durable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, coverage: &Coverage) -> anyhow::Result<Totals> {
        self.drain(u64::MAX)?;
        self.flush()?;
        self.totals.coverage = coverage.clone();
        self.add_database();
        self.totals.most_sessions = Some(self.open.most());
        self.info.totals = Some(self.totals.clone());
        self.write_info()?;
        let index_at = self.offset;
        let mut index = Vec::new();
        for entry in &self.entries {
            index.extend_from_slice(&entry.offset.to_le_bytes());
            index.extend_from_slice(&entry.header.encode());
        }
        // A recording of so many blocks is read by their headers.
        if index.len() <= MAX_BLOCK_BYTES {
            self.write_block(Kind::Index, 0, (0, 0), &index)?;
            self.write_block(Kind::End, 0, (index_at, 0), &[])?;
        }
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))?;
        self.part.map_or(Ok(()), Part::publish)?;
        Ok(self.totals)
    }

    /// No event that starts before this is expected any more.
    fn watermark(&self) -> u64 {
        let window_ns = u64::try_from(self.options.window.as_nanos()).unwrap_or(u64::MAX);
        self.now_ns.saturating_sub(window_ns)
    }

    pub(super) fn drain(&mut self, until_ns: u64) -> anyhow::Result<()> {
        let mut window = std::mem::take(&mut self.window);
        // Under pressure half of it goes, so that sorting is not done again for every event.
        let keep = if window.bytes() >= self.options.window_bytes {
            self.options.window_bytes / 2
        } else {
            usize::MAX
        };
        let result = window.drain(until_ns, keep, |event| self.encode_in_order(event));
        self.window = window;
        result?;
        if self.late.bytes() >= LATE_BYTES || until_ns == u64::MAX { self.write_late() } else { Ok(()) }
    }

    fn encode_in_order(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        if event.start_ns < self.written_ns {
            self.totals.late_events += 1;
            self.late.push(event);
            return Ok(());
        }
        self.written_ns = event.start_ns;
        self.encode(event)
    }

    fn encode(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let more = event.text.len() + event.parameters.len();
        if self.encoder.bytes() + more > self.options.block_bytes
            || self.encoder.unpacked_bytes() + more > MAX_UNPACKED_BYTES
            || self.encoder.events() >= MAX_BLOCK_EVENTS
        {
            self.write_events()?;
        }
        self.encoder.push(event);
        Ok(())
    }

    /// Late events in blocks of their own: sorted, and apart from those in order.
    fn write_late(&mut self) -> anyhow::Result<()> {
        if self.late.is_empty() {
            return Ok(());
        }
        self.write_events()?;
        let mut late = std::mem::take(&mut self.late);
        late.drain(u64::MAX, 0, |event| self.encode(event))?;
        self.write_events()
    }

    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.write_late()?;
        self.write_events()?;
        self.flushed = Instant::now();
        Ok(())
    }

    fn write_events(&mut self) -> anyhow::Result<()> {
        if self.encoder.events() == 0 {
            return Ok(());
        }
        let (events, span_ns) = (self.encoder.events(), self.encoder.span_ns());
        let mut payload = std::mem::take(&mut self.payload);
        self.encoder.take(&mut payload);
        let result = self.write_block(Kind::Events, events, span_ns, &payload);
        self.payload = payload;
        result
    }

    fn write_info(&mut self) -> anyhow::Result<()> {
        let json = serde_json::to_vec(&self.info)?;
        self.write_block(Kind::Info, 0, (0, 0), &json)
    }

    fn write_block(
        &mut self,
        kind: Kind,
        events: u32,
        span_ns: (u64, u64),
        raw: &[u8],
    ) -> anyhow::Result<()> {
        let sequence = self.entries.last().map_or(0, |entry| entry.header.sequence.wrapping_add(1));
        Header::frame(kind, sequence, events, span_ns, raw, &mut self.compressor, &mut self.frame)?;
        // One write a block: what a crash leaves is whole blocks and at most one torn one.
        if let Err(error) = self.file.write_all(&self.frame) {
            // A torn block in the middle would be damage: what comes next takes its place.
            let _ =
                self.file.set_len(self.offset).and_then(|()| self.file.seek(SeekFrom::Start(self.offset)));
            return Err(error).with_context(|| format!("cannot write {}", self.path.display()));
        }
        let header = self.frame.first_chunk::<HEADER_BYTES>().and_then(Header::decode);
        self.entries.push(Entry { offset: self.offset, header: header.context("a block's own header")? });
        self.offset += self.frame.len() as u64;
        Ok(())
    }
}

impl Writer {
    fn count_database(&mut self, event: &Event<'_>) {
        if event.is_state || event.database.is_empty() || matches!(event.outcome, Outcome::Error(1044 | 1049))
        {
            return;
        }
        if self.database.0 != event.database {
            self.add_database();
            self.database.0.clear();
            self.database.0.extend_from_slice(event.database);
        }
        self.database.1 += 1;
    }

    fn add_database(&mut self) {
        let count = std::mem::take(&mut self.database.1);
        if let Ok(name) = std::str::from_utf8(&self.database.0) {
            self.totals.databases.add(name, count);
        }
    }
}

impl Sink for Writer {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let mut event = event.clone();
        self.totals.events += 1;
        self.totals.state_events += u64::from(event.is_state);
        let bytes = (event.text.len() + event.parameters.len()) as u64;
        self.totals.longest_bytes = self.totals.longest_bytes.max(Some(bytes));
        self.open.follow(&event);
        self.count_database(&event);
        let parts = [event.user, event.host, event.database, event.text, event.parameters];
        if parts.iter().map(|part| part.len()).sum::<usize>() > MAX_EVENT_BYTES {
            self.totals.oversized_events += 1;
            for part in [&mut event.text, &mut event.user, &mut event.host, &mut event.database] {
                *part = &part[..part.len().min(BEGINNING_BYTES)];
            }
            event.is_cut = true;
            event.parameters = b"";
        }
        let moved_ns = self.starts.in_order(event.session, event.start_ns);
        self.totals.moved_events += u64::from(moved_ns != event.start_ns);
        event.start_ns = moved_ns;
        self.now_ns = self.now_ns.max(event.start_ns.saturating_add(event.response_ns.unwrap_or(0)));
        self.totals.redacted_events += u64::from(self.cleaner.clean(&event, &mut self.window));
        let limit = (2 * self.window.kept_bytes()).max(SORT_BYTES).min(self.options.window_bytes);
        if self.window.bytes() >= limit {
            self.drain(self.watermark())?;
            if self.flushed.elapsed() >= self.options.flush_after {
                self.flush()?;
            }
        }
        Ok(())
    }
}

/// The last start of each session. The older half of too many is forgotten.
#[derive(Default)]
struct Starts {
    recent: HashMap<u64, u64>,
    older: HashMap<u64, u64>,
}

impl Starts {
    /// The start, moved forward to that of the session's last event where a coarse clock has it a little earlier.
    fn in_order(&mut self, session: u64, start_ns: u64) -> u64 {
        let last = self.recent.get(&session).or_else(|| self.older.get(&session)).copied().unwrap_or(0);
        let moved = if start_ns < last && last - start_ns <= MAX_MOVE_NS { last } else { start_ns };
        if self.recent.len() >= MAX_SESSIONS / 2 && !self.recent.contains_key(&session) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(session, moved);
        moved
    }
}

/// How many sessions are open at once, at most: what a replay needs of connections.
#[derive(Default)]
struct OpenSessions {
    open: HashSet<u64>,
    most: u64,
    /// Of the sources before this one.
    before: u64,
}

impl OpenSessions {
    fn follow(&mut self, event: &Event<'_>) {
        match event.command {
            Command::Quit => {
                self.open.remove(&event.session);
            }
            Command::Connect if matches!(event.outcome, Outcome::Error(_)) => {}
            // No server has so many.
            _ if self.open.len() < MAX_SESSIONS => {
                self.open.insert(event.session);
                self.most = self.most.max(self.open.len() as u64);
            }
            _ => {}
        }
    }

    fn most(&self) -> u64 {
        self.before + self.most
    }
}
