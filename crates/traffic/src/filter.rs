//! Which events are wanted: by time and by what they are. One small grammar for digests and recordings.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use super::event::{Command, Event, Outcome};
use super::measures::{Measure, Unit};
use super::slow_log::time;
use base::duration::parse_duration;
use sql::Mode;

/// Statements whose class and tables are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// What `--since`, `--until` and `--filter` ask for; all of it must hold.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// From this start on, and before that one, in ns since 1970. An event without a time is in neither.
    pub since_ns: Option<u64>,
    pub until_ns: Option<u64>,
    pub filters: Vec<Filter>,
}

impl Selection {
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.since_ns.is_none() && self.until_ns.is_none() && self.filters.is_empty()
    }

    /// Whether any filter asks for the statement's class or tables, which cost a fingerprint.
    #[must_use]
    pub fn needs_class(&self) -> bool {
        self.filters.iter().any(|filter| matches!(filter.field, Field::Class | Field::Table))
    }

    /// Whether an event is in, as far as can be told without its class.
    #[must_use]
    pub fn accepts(&self, event: &Event<'_>) -> bool {
        let start_ns = event.start_ns;
        if self.since_ns.is_some_and(|since| start_ns < since)
            || self.until_ns.is_some_and(|until| start_ns >= until || start_ns == 0)
        {
            return false;
        }
        self.filters.iter().all(|filter| filter.accepts(event))
    }

    /// What of it only single calls can answer, if anything: a server's summary has none.
    #[must_use]
    pub fn needs_calls(&self) -> Option<&str> {
        use Field::{Class, Command, Database, ReadOnly, Table, Text};
        if self.since_ns.is_some() || self.until_ns.is_some() {
            return Some("--since and --until");
        }
        let is_of_statement = |field| matches!(field, Class | Table | Database | Text | Command | ReadOnly);
        self.filters.iter().find(|filter| !is_of_statement(filter.field)).map(|filter| filter.source.as_str())
    }

    /// As it was given.
    #[must_use]
    pub fn text(&self) -> String {
        self.filters.iter().map(|filter| filter.source.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Decides on whole events; remembers what statements are.
    pub fn acceptor(&self) -> impl FnMut(&Event<'_>) -> bool + '_ {
        let (mut fingerprint, mut remembered) = (Vec::new(), HashMap::new());
        move |event| {
            if !self.accepts(event) {
                return false;
            }
            if !self.needs_class() {
                return true;
            }
            let decide = |fingerprint: &mut Vec<u8>| {
                sql::fingerprint(Mode::Strict, event.text, event.is_cut, fingerprint);
                let tables = sql::tables(event.text).join(&b","[..]);
                self.accepts_class(&sql::class_id(Mode::Strict, fingerprint), &tables)
            };
            if remembered.len() >= MAX_REMEMBERED {
                remembered.clear();
            }
            *remembered.entry(xxh3_64(event.text)).or_insert_with(|| decide(&mut fingerprint))
        }
    }

    /// The rest: by the statement's id and its tables, joined by commas.
    #[must_use]
    pub fn accepts_class(&self, id: &str, tables: &[u8]) -> bool {
        self.filters.iter().all(|filter| match filter.field {
            Field::Class => filter.compares_text(id.as_bytes()),
            Field::Table => {
                let is_any = tables.split(|byte| *byte == b',').any(|table| filter.is_text(table));
                is_any == (filter.operator != Operator::IsNot)
            }
            _ => true,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Class,
    Table,
    User,
    Host,
    Database,
    Command,
    Text,
    Session,
    Error,
    ResponseNs,
    Measure(Measure),
    ReadOnly,
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "class" => Field::Class,
            "table" => Field::Table,
            "user" => Field::User,
            "host" => Field::Host,
            "database" => Field::Database,
            "command" => Field::Command,
            "text" => Field::Text,
            "session" => Field::Session,
            "error" => Field::Error,
            "response" => Field::ResponseNs,
            "read_only" => Field::ReadOnly,
            _ => return Measure::ALL.into_iter().find(|each| filter_name(*each) == name).map(Field::Measure),
        })
    }

    /// What its numbers are; `None` for text, and for what only is or is not.
    fn unit(self) -> Option<Unit> {
        match self {
            Field::ResponseNs => Some(Unit::Ns),
            Field::Measure(measure) => Some(measure.row().unit).filter(|unit| *unit != Unit::Flag),
            _ => None,
        }
    }

    fn is_flag(self) -> bool {
        self == Field::ReadOnly || matches!(self, Field::Measure(measure) if measure.row().unit == Unit::Flag)
    }
}

/// A length of time has its unit in the value, and a flag is asked for by `=yes`.
fn filter_name(measure: Measure) -> &'static str {
    let name = measure.name();
    name.strip_suffix("_ns").or_else(|| name.strip_prefix("is_")).unwrap_or(name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    Contains,
    AtLeast,
    Below,
}

/// One condition, such as `user=app`, `text~orders`, `response>=100ms`.
#[derive(Clone, Debug)]
pub struct Filter {
    /// As it was given.
    pub source: String,
    field: Field,
    operator: Operator,
    text: Vec<u8>,
    number: u64,
}

fn usage() -> String {
    let names = |is_flag| {
        let is_wanted = move |measure: &Measure| (measure.row().unit == Unit::Flag) == is_flag;
        Measure::ALL.into_iter().filter(is_wanted).map(filter_name).collect::<Vec<_>>().join(", ")
    };
    format!(
        "give FIELD OPERATOR VALUE: class, table, user, host, database, command, text, session with =, != or ~ (contains); \
         error=any or a number; read_only, {} with =yes or =no; response, {} with >= or < (response>=100ms)",
        names(true),
        names(false)
    )
}

impl std::str::FromStr for Filter {
    type Err = String;

    fn from_str(source: &str) -> Result<Self, String> {
        let operators = [
            (">=", Operator::AtLeast),
            ("!=", Operator::IsNot),
            ("<", Operator::Below),
            ("=", Operator::Is),
            ("~", Operator::Contains),
        ];
        if source.contains("$event") {
            return Err(format!("this is pt-query-digest's Perl; {}", usage()));
        }
        let found =
            operators.iter().filter_map(|(sign, operator)| Some((source.find(sign)?, *sign, *operator)));
        let (place, sign, operator) = found.min_by_key(|(place, ..)| *place).ok_or_else(usage)?;
        let (name, value) = (source[..place].trim(), source[place + sign.len()..].trim());
        let field = Field::of(name).ok_or_else(usage)?;
        let unit = field.unit();
        if unit.is_some() != matches!(operator, Operator::AtLeast | Operator::Below)
            || (field == Field::Error && operator == Operator::Contains)
            || (field.is_flag() && (operator != Operator::Is || !["yes", "no"].contains(&value)))
        {
            return Err(usage());
        }
        let number = match (unit, field) {
            (Some(Unit::Ns), _) => u64::try_from(parse_response(value)?).unwrap_or(u64::MAX),
            (Some(_), _) => value.parse().map_err(|_| usage())?,
            (None, Field::Error) if value != "any" => value.parse::<u16>().map_err(|_| usage())?.into(),
            (None, Field::Measure(_)) => u64::from(value == "yes"),
            _ => 0,
        };
        Ok(Filter { source: source.to_owned(), field, operator, text: value.as_bytes().to_vec(), number })
    }
}

/// A length of time in ns: also us, which `--interval`s never need.
fn parse_response(value: &str) -> Result<u128, String> {
    if let Some(number) = value.strip_suffix("us").and_then(|digits| digits.parse::<u32>().ok()) {
        return Ok(u128::from(number) * 1000);
    }
    parse_duration(value).map(|duration| duration.as_nanos())
}

impl Filter {
    fn accepts(&self, event: &Event<'_>) -> bool {
        match self.field {
            Field::Class | Field::Table => true,
            Field::User => self.compares_text(event.user),
            Field::Host => self.compares_text(event.host),
            Field::Database => self.compares_text(event.database),
            Field::Command => self.is_command(event.command) == (self.operator != Operator::IsNot),
            Field::Text => self.compares_text(event.text),
            Field::Session => self.compares_text(event.session.to_string().as_bytes()),
            Field::Error => {
                let is_it = match event.outcome {
                    Outcome::Error(number) => self.text == b"any" || u64::from(number) == self.number,
                    _ => false,
                };
                is_it == (self.operator != Operator::IsNot)
            }
            Field::ResponseNs => self.compares_number(event.response_ns),
            Field::ReadOnly => reads_only(event) == (self.text == b"yes"),
            Field::Measure(measure) if measure.row().unit == Unit::Flag => {
                event.measures.get(measure) == Some(self.number)
            }
            Field::Measure(measure) => self.compares_number(event.measures.get(measure)),
        }
    }

    /// `Init DB`, `InitDb` and `init_db` are one command; so are `0x1f` and its name.
    fn is_command(&self, command: Command) -> bool {
        let plain = |name: &[u8]| -> Vec<u8> {
            name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect()
        };
        let own = match command {
            Command::Other(byte) => format!("0x{byte:02x}"),
            command => format!("{command:?}"),
        };
        match self.operator {
            Operator::Contains => self.is_text(own.as_bytes()),
            _ => plain(own.as_bytes()) == plain(&self.text),
        }
    }

    fn compares_text(&self, value: &[u8]) -> bool {
        self.is_text(value) == (self.operator != Operator::IsNot)
    }

    fn is_text(&self, value: &[u8]) -> bool {
        match self.operator {
            Operator::Contains => {
                self.text.is_empty()
                    || value.windows(self.text.len()).any(|part| part.eq_ignore_ascii_case(&self.text))
            }
            _ => value == self.text,
        }
    }

    /// What is not known is neither at least nor below anything.
    fn compares_number(&self, value: Option<u64>) -> bool {
        value.is_some_and(|value| (value >= self.number) == (self.operator == Operator::AtLeast))
    }
}

/// Whether an event changes no data. Of statements a parser decides; of an execution it has the statement.
fn reads_only(event: &Event<'_>) -> bool {
    match event.command {
        Command::Query | Command::Prepare | Command::Execute | Command::BulkExecute => {
            !event.is_cut && sql::is_read_only(event.text)
        }
        Command::Other(_) => false,
        _ => true,
    }
}

/// The same, or how long ago: `1h` is an hour before now.
pub fn parse_moment_or_ago(text: &str) -> Result<u64, String> {
    let explained = |usage: String| format!("{usage}, or how long ago it was, such as 90s, 1h or 7d");
    let is_ago = text.ends_with(|last: char| last.is_ascii_lowercase());
    if !is_ago {
        return parse_moment(text).map_err(explained);
    }
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let days = |unit, days| Some((text.strip_suffix(unit)?.parse::<u32>().ok()?, days));
    let ago_ns = match days('d', 1).or_else(|| days('w', 7)) {
        Some((count, days)) => u128::from(count) * days * 86_400_000_000_000,
        None => parse_duration(text).map_err(|_| explained(USAGE.to_owned()))?.as_nanos(),
    };
    Ok(u64::try_from(now_ns.saturating_sub(ago_ns)).unwrap_or(u64::MAX))
}

const USAGE: &str = "give UTC such as 2026-11-21T09:30:00Z, or seconds since 1970";

/// A moment in ns since 1970, of seconds since 1970 or of UTC as `2026-11-21`, `2026-11-21T09:30` or with `:SS` and `Z`; and
/// whatever a log has: `2026-11-21T09:30:00.5+01:00`, `261121 09:30:00`, of which the date alone is enough.
pub fn parse_moment(text: &str) -> Result<u64, String> {
    let usage = || USAGE.to_owned();
    if let Some(moment) = as_in_logs(text) {
        return Ok(moment);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds: u64 = text.parse().map_err(|_| usage())?;
        return seconds.checked_mul(1_000_000_000).ok_or_else(usage);
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, sign| -> Result<Vec<u64>, String> {
        text.split(sign).map(|part| part.parse().map_err(|_| usage())).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let ([year, month, day], [hour, minute, ..]) = (&date[..], &time[..]) else { return Err(usage()) };
    let second = time.get(2).copied().unwrap_or(0);
    let is_valid = (1970..=2500).contains(year)
        && (1..=12).contains(month)
        && (1..=31).contains(day)
        && (*hour < 24 && *minute < 60 && second < 60 && time.len() <= 3);
    if !is_valid {
        return Err(usage());
    }
    let days = days_since_1970(*year, *month, *day);
    Ok((days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000_000)
}

/// A moment as servers write it. Seconds since 1970 have more digits than a date without separators.
fn as_in_logs(text: &str) -> Option<u64> {
    let is_date = matches!(text.len(), 6 | 8) && text.bytes().all(|byte| byte.is_ascii_digit());
    let midnight = is_date.then(|| format!("{} 00:00:00", &text[text.len() - 6..]));
    let (stamp, rest) = time::stamp(midnight.as_deref().unwrap_or(text).as_bytes())?;
    rest.is_empty().then_some(stamp.ns)
}

/// Howard Hinnant's civil calendar: years begin in March, so that the leap day is their last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::{Filter, Selection, parse_moment, parse_moment_or_ago};
    use crate::event::{Command, Event, Outcome};
    use crate::measures::Measure;

    #[test]
    fn moments() {
        assert_eq!(parse_moment("1970-01-01"), Ok(0));
        assert_eq!(parse_moment("2024-02-29T12:00:01Z"), Ok(1_709_208_001_000_000_000));
        assert_eq!(parse_moment("2026-11-21 09:30"), Ok(1_795_253_400_000_000_000));
        assert_eq!(parse_moment("1795253400"), Ok(1_795_253_400_000_000_000));
        for (text, seconds) in [
            ("2024-02-29T13:00:01.5+01:00", 1_709_208_001.5),
            ("240229 12:00:01", 1_709_208_001.0),
            ("240229", 1_709_164_800.0),
            ("20240229", 1_709_164_800.0),
        ] {
            assert_eq!(parse_moment(text), Ok((seconds * 1e9) as u64), "{text}");
        }
        for text in ["", "now", "2026-13-01", "2026-01-01T24:00", "99999999999999999999", "2026-1-1T1"] {
            assert!(parse_moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_ago() {
        let now_ns = parse_moment_or_ago("0s").unwrap();
        for (text, ago_s) in [("1h", 3600), ("7d", 604_800), ("1w", 604_800), ("90s", 90)] {
            let found_ns = parse_moment_or_ago(text).unwrap();
            assert!((found_ns + ago_s * 1_000_000_000).abs_diff(now_ns) < 60_000_000_000, "{text}");
        }
        assert_eq!(parse_moment_or_ago("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(parse_moment_or_ago("99999d"), Ok(0), "before 1970 is 1970");
        for text in ["now", "h", "yesterday", "1 hour ago"] {
            assert!(parse_moment_or_ago(text).is_err_and(|why| why.contains("1h or 7d")), "{text}");
        }
    }

    #[test]
    fn filters_hold_together() {
        let mut event = Event::new(5_000, 7, Command::Query);
        event.user = b"app";
        event.text = b"SELECT * FROM Orders";
        event.response_ns = Some(100_000_000);
        event.outcome = Outcome::Error(1213);
        let holds = |sources: &[&str]| {
            let filters = sources.iter().map(|source| source.parse::<Filter>().unwrap()).collect();
            Selection { filters, ..Selection::default() }.accepts(&event)
        };
        assert!(holds(&[
            "user=app",
            "text~orders",
            "response>=100ms",
            "error=1213",
            "error=any",
            "session=7"
        ]));
        for source in
            ["user!=app", "text~customer", "response<100ms", "error=1062", "error!=any", "rows_sent<9"]
        {
            assert!(!holds(&[source]), "{source}");
        }
        event.measures.set(Measure::LockNs, 3_000_000);
        event.measures.set(Measure::IsFullScan, 1);
        let holds = |source: &str| {
            let selection = Selection { filters: vec![source.parse().unwrap()], ..Selection::default() };
            selection.accepts(&event)
        };
        assert!(holds("lock>=3ms") && !holds("lock<3ms") && holds("lock<4ms"));
        assert!(holds("full_scan=yes") && !holds("full_scan=no") && !holds("full_join=no"));
        assert!(!holds("warnings<9") && !holds("warnings>=0"), "unknown is neither");
        for source in [
            "",
            "user",
            "user>=3",
            "rows_sent=3",
            "lock>=3",
            "lock_ns>=3ms",
            "response=3",
            "error~12",
            "error=many",
            "color=red",
        ] {
            assert!(source.parse::<Filter>().is_err(), "{source}");
        }
    }

    #[test]
    fn commands_and_what_only_reads() {
        let holds = |source: &str, command, text: &[u8]| {
            let selection = Selection { filters: vec![source.parse().unwrap()], ..Selection::default() };
            let event = Event { text, ..Event::new(1, 1, command) };
            let mut accepts = selection.acceptor();
            accepts(&event)
        };
        assert!(
            holds("command=Init DB", Command::InitDb, b"") && holds("command=init_db", Command::InitDb, b"")
        );
        assert!(
            !holds("command!=query", Command::Query, b"") && holds("command=0x1f", Command::Other(0x1f), b"")
        );
        assert!(holds("read_only=yes", Command::Query, b"select 1"));
        assert!(holds("read_only=yes", Command::Ping, b""));
        assert!(holds("read_only=no", Command::Execute, b"insert into t values (?)"));
        assert!(holds("table=t", Command::Execute, b"insert into t values (?)"));
        assert!(!holds("table=t", Command::Query, b"select * from u"));
        assert!(
            "read_only=perhaps".parse::<Filter>().is_err() && "read_only!=yes".parse::<Filter>().is_err()
        );
    }

    #[test]
    fn time_has_no_end_and_a_beginning() {
        let selection =
            Selection { since_ns: Some(10), until_ns: Some(20), filters: vec!["table!=t".parse().unwrap()] };
        let accepts = |start_ns| selection.accepts(&Event::new(start_ns, 1, Command::Ping));
        assert_eq!([0, 9, 10, 19, 20].map(accepts), [false, false, true, true, false]);
        assert!(
            selection.needs_class()
                && selection.accepts_class("", b"a,b")
                && !selection.accepts_class("", b"a,t")
        );
    }
}
