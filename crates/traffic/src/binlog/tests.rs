//! Real logs of MariaDB 10.11, MySQL 8.0 and 9.7, whole, cut at every byte, damaged and hostile.

use std::path::PathBuf;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::frames::HEADER_BYTES;
use super::transaction::{End, Log, LogEnd, Transaction};
use crate::coverage::Coverage;
use crate::event::{Event, Sink};
use crate::measures::Measure;

/// What a log came to.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    /// Text of the class (of row events) or of the statement, rows, bytes.
    events: Vec<(String, Option<u64>, u64)>,
    /// Number of the GTID's text, statements, rows, bytes.
    transactions: Vec<(String, u64, Option<u64>, u64)>,
    unfinished: usize,
    ends: Vec<LogEnd>,
}

impl Sink for Found {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let text = String::from_utf8_lossy(event.text).into_owned();
        let bytes = event.measures.get(Measure::EventBytes).unwrap();
        self.events.push((text, event.measures.get(Measure::RowsAffected), bytes));
        Ok(())
    }

    fn transaction(&mut self, found: &Transaction<'_>) -> anyhow::Result<()> {
        if found.end == End::Unfinished {
            self.unfinished += 1;
        } else {
            self.transactions.push((found.gtid.to_string(), found.statements, found.rows, found.bytes));
        }
        Ok(())
    }

    fn log(&mut self, log: &Log) -> anyhow::Result<()> {
        self.ends.push(log.end.clone());
        Ok(())
    }
}

fn case(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/binlog");
    std::fs::read(folder.join(name)).unwrap()
}

fn read(bytes: &[u8]) -> (Found, Coverage) {
    let mut found = Found::default();
    let coverage = super::read(bytes, "a log", &mut found).unwrap();
    (found, coverage)
}

const WHOLE: [&str; 7] = [
    "mariadb-row.000001",
    "mariadb-row-in-use.000002",
    "mariadb-statement.000001",
    "mariadb-mixed-compressed.000001",
    "mysql80-compressed.000001",
    "mysql97-tagged.000001",
    "mysql97-compressed.000001",
];

fn rows_of(found: &Found, class: &str) -> u64 {
    found.events.iter().filter(|(text, ..)| text == class).filter_map(|(_, rows, _)| *rows).sum()
}

#[test]
fn a_log_behind_one_that_is_cut_off_is_read_whole() {
    // The first has no checksums, which would tell.
    for name in ["mariadb-mixed-compressed.000001", "mariadb-row.000001"] {
        let log = case(name);
        let whole = read(&log).0.events;
        for cut in (300..log.len()).step_by(83) {
            let (found, coverage) = read(&[&log[..cut], &log[..]].concat());
            assert!(found.events.ends_with(&whole), "{name} cut at {cut}: {coverage:?}");
        }
    }
}

#[test]
fn rows_are_those_that_were_changed() {
    // What tests/cases/binlog/README.md says that the servers were told.
    for name in ["mariadb-row.000001", "mysql80-compressed.000001"] {
        let (found, coverage) = read(&case(name));
        assert_eq!(
            (coverage.damaged, coverage.skipped_bytes, found.unfinished),
            (0, 0, 0),
            "{name}: {coverage:?}"
        );
        let rows = [
            ("INSERT INTO shop.orders (rows)", 3 + 2 + 1 + 5),
            ("INSERT INTO shop.log_lines (rows)", 4),
            ("UPDATE shop.orders (rows)", 2 + 2),
            ("UPDATE shop.log_lines (rows)", 4 + 2),
            ("DELETE FROM shop.orders (rows)", 1),
            ("DELETE FROM shop.log_lines (rows)", 2),
        ];
        for (class, count) in rows {
            assert_eq!(rows_of(&found, class), count, "{name}: {class}");
        }
        assert_eq!(found.transactions.len(), 11, "{name}");
        assert!(
            found.transactions.iter().any(|(_, statements, rows, _)| (*statements, *rows) == (5, Some(9)))
        );
        assert!(matches!(&found.ends[..], [LogEnd::Rotated(next)] if next == "binlog.000002"));
    }
}

#[test]
fn every_log_is_read_whole() {
    for name in WHOLE {
        let (found, coverage) = read(&case(name));
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{name}: {coverage:?}");
        assert_eq!(coverage.bytes, case(name).len() as u64, "{name}");
        assert_eq!(coverage.events, found.events.len() as u64);
        assert!(coverage.places.is_empty() && found.unfinished == 0, "{name}: {:?}", coverage.places);
        assert!(
            found.events.iter().all(|(text, rows, _)| rows.is_some() == text.ends_with(" (rows)")),
            "{name}"
        );
    }
    assert_eq!(read(&case("mariadb-row-in-use.000002")).0.ends, [LogEnd::InUse]);
}

#[test]
fn servers_of_today_have_tags_partial_documents_and_compressed_transactions() {
    let (found, _) = read(&case("mysql97-tagged.000001"));
    assert_eq!(rows_of(&found, "UPDATE shop.orders (rows)"), 2);
    assert_eq!(rows_of(&found, "INSERT INTO shop.copy (rows)"), 4);
    assert!(
        found.transactions.iter().any(|(gtid, ..)| gtid.ends_with(":nightly:7")),
        "{:?}",
        found.transactions
    );
    let (packed, _) = read(&case("mysql97-compressed.000001"));
    let rows =
        |found: &Found| found.events.iter().map(|(text, rows, _)| (text.clone(), *rows)).collect::<Vec<_>>();
    // The second log of the other one has the last statement but one.
    assert_eq!(rows(&packed)[..14], rows(&found)[..14]);
}

#[test]
fn encrypted_logs_are_named_and_not_read() {
    let mysql = [&super::ENCRYPTED_MAGIC[..], &[0; 600]].concat();
    for bytes in [case("mariadb-encrypted.000002"), mysql] {
        let error = super::read(&bytes[..], "a log", &mut Found::default()).unwrap_err();
        assert!(error.to_string().contains("a log is an encrypted binary log"), "{error}");
    }
}

#[test]
fn a_log_that_is_cut_anywhere_gives_what_is_whole() {
    for name in WHOLE {
        let bytes = case(name);
        let (whole, _) = read(&bytes);
        // In small logs at every byte, in larger ones wherever a few events may end.
        for end in (4..bytes.len()).step_by(bytes.len() / 300 + 1) {
            let (found, coverage) = read(&bytes[..end]);
            let whole_part = &whole.transactions[..found.transactions.len()];
            assert_eq!(found.transactions, whole_part, "{name} cut at {end}");
            assert!(found.unfinished <= 1, "{name} cut at {end}");
            assert_eq!(coverage.bytes, end as u64, "{name} cut at {end}");
        }
    }
}

#[test]
fn a_piece_from_anywhere_on_has_every_transaction_behind_it() {
    for name in WHOLE {
        let bytes = case(name);
        let (whole, _) = read(&bytes);
        for begin in (1..bytes.len() / 2).step_by(29) {
            assert!(super::is_piece(&bytes[begin..]), "{name} from {begin}");
            let (found, _) = read(&bytes[begin..]);
            // The first may have lost its beginning; rows of tables defined before are not counted.
            let behind = found.transactions.len().saturating_sub(1);
            let tail = &whole.transactions[whole.transactions.len() - behind..];
            assert_eq!(&found.transactions[found.transactions.len() - behind..], tail, "{name} from {begin}");
            assert!(found.unfinished <= 1, "{name} from {begin}");
        }
    }
}

#[test]
fn a_changed_byte_is_noticed_and_costs_one_transaction() {
    for name in ["mariadb-row.000001", "mysql97-tagged.000001"] {
        let bytes = case(name);
        let (whole, _) = read(&bytes);
        for at in (4..bytes.len()).step_by(31) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            let mut found = Found::default();
            let Ok(coverage) = super::read(&damaged[..], "a log", &mut found) else { continue };
            assert!(coverage.damaged >= 1, "{name} at {at}");
            let kept = found.transactions.iter().filter(|one| whole.transactions.contains(one)).count();
            assert!(
                kept + 2 >= whole.transactions.len(),
                "{name} at {at}: {kept} of {}",
                whole.transactions.len()
            );
        }
    }
}

#[test]
fn missing_events_are_noticed() {
    let bytes = case("mariadb-row.000001");
    let (whole, _) = read(&bytes);
    // The second transaction is taken out, whole.
    let header = |at: usize| u32::from_le_bytes(bytes[at + 9..at + 13].try_into().unwrap()) as usize;
    let mut starts = vec![4];
    while starts[starts.len() - 1] < bytes.len() {
        starts.push(starts[starts.len() - 1] + header(starts[starts.len() - 1]));
    }
    let gtids: Vec<_> = starts.iter().filter(|at| bytes.get(*at + 4) == Some(&162)).collect();
    let cut = [&bytes[..*gtids[1]], &bytes[*gtids[2]..]].concat();
    let (found, coverage) = read(&cut);
    assert_eq!(found.transactions.len() + 1, whole.transactions.len());
    assert_eq!(coverage.damaged, 1);
    assert!(coverage.places[0].reason.contains("are missing"), "{:?}", coverage.places);
}

#[test]
fn logs_in_sequence_are_several_logs() {
    let (first, second) = (case("mysql97-tagged.000001"), case("mysql97-tagged.000002"));
    let (found, coverage) = read(&[first, second].concat());
    assert_eq!((found.ends.len(), coverage.damaged), (2, 0), "{coverage:?}");
    assert_eq!(found.transactions.len(), 13);
}

#[test]
fn a_length_of_a_gigabyte_allocates_nothing() {
    let mut bytes = case("mariadb-row.000001");
    // Of the event behind the description.
    let second = 4 + u32::from_le_bytes(bytes[13..17].try_into().unwrap()) as usize;
    bytes[second + 9..second + 13].copy_from_slice(&0x4000_0000_u32.to_le_bytes());
    let mut frames = super::frames::Frames::new(&bytes[..]);
    while !matches!(frames.next().unwrap(), super::frames::Frame::End | super::frames::Frame::Cut { .. }) {}
    assert!(frames.room_bytes() <= 1 << 20);
    let (found, coverage) = read(&bytes);
    assert!(coverage.damaged >= 1 && found.transactions.len() >= 9, "{coverage:?}");
}

#[test]
fn a_statement_beyond_64_mib_is_counted_and_cut() {
    let mut body = vec![0; 13];
    body[0] = 7;
    body.push(0);
    body.resize(70 << 20, b'x');
    let length = (HEADER_BYTES + body.len()) as u32;
    let mut bytes = [&super::MAGIC[..], &[1, 0, 0, 0, 2, 1, 0, 0, 0]].concat();
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&(length + 4).to_le_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&body);
    let (found, _) = read(&bytes);
    let lengths: Vec<_> =
        found.events.iter().map(|(text, _, bytes)| (text.len() < 1 << 20, *bytes)).collect();
    assert_eq!(lengths, [(true, u64::from(length))]);
}

proptest! {
    /// Nothing in a log makes a reader panic or run away.
    #[test]
    fn any_bytes_behind_a_header_are_read(
        kind in any::<u8>(), body in proptest::collection::vec(any::<u8>(), 0..300), name in 0_usize..7, at in any::<u16>(),
    ) {
        let case = case(WHOLE[name]);
        let mut event = vec![1, 2, 3, 4, kind, 1, 0, 0, 0];
        event.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_le_bytes());
        event.extend_from_slice(&[0, 0, 0, 0, 0x20, 0]);
        event.extend_from_slice(&body);
        let at = usize::from(at) % case.len();
        // Without the description nothing has to have a checksum.
        for log in [[&super::MAGIC[..], &event].concat(), [&case[..at], &event, &case[at..]].concat()] {
            let mut found = Found::default();
            let size = log.len() as u64;
            if let Ok(coverage) = super::read(&log[..], "a log", &mut found) {
                prop_assert!(coverage.skipped_bytes <= size, "{coverage:?}");
                prop_assert_eq!(coverage.bytes, size);
            }
        }
    }

    #[test]
    fn noise_is_read_to_its_end(noise in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let log = [&super::MAGIC[..], &noise].concat();
        let mut found = Found::default();
        if let Ok(coverage) = super::read(&log[..], "a log", &mut found) {
            prop_assert_eq!(coverage.bytes, log.len() as u64);
        }
    }
}

/// What mysqlbinlog printed of a case.
fn text(name: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let packed = case(&format!("{name}.txt.gz"));
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut text).unwrap();
    text
}

fn printed(name: &str) -> (Found, Coverage) {
    read_text(&text(name))
}

fn read_text(text: &[u8]) -> (Found, Coverage) {
    let mut found = Found::default();
    let coverage = super::read_text(text, "a text", &mut found).unwrap();
    assert_eq!(coverage.bytes, text.len() as u64);
    (found, coverage)
}

#[test]
fn what_mysqlbinlog_prints_comes_to_the_same() {
    for name in ["mariadb-row.000001", "mariadb-mixed-compressed.000001", "mysql97-tagged.000001"] {
        let (log, _) = read(&case(name));
        for form in ["plain", "v", "rows"] {
            if name.starts_with("mariadb-mixed") && form == "plain" {
                continue;
            }
            let (text, coverage) = printed(&format!("{name}.{form}"));
            assert_eq!(coverage.damaged, 0, "{name} {form}: {coverage:?}");
            assert_eq!(text.ends, log.ends, "{name} {form}");
            // In text, compressed events have no size but that in the log.
            let is_same_size = !name.contains("compressed");
            let events = |found: &Found| {
                let size = |bytes: u64| if is_same_size { bytes } else { 0 };
                found
                    .events
                    .iter()
                    .map(|(text, rows, bytes)| (text.clone(), *rows, size(*bytes)))
                    .collect::<Vec<_>>()
            };
            assert_eq!(events(&text), events(&log), "{name} {form}");
            if is_same_size {
                assert_eq!(text.transactions, log.transactions, "{name} {form}");
            }
        }
    }
}

/// `--hexdump` writes the bytes of an event before it says what it is, each of the programs in its own way.
#[test]
fn bytes_of_events_in_text_change_nothing() {
    let (log, _) = read(&case("mariadb-row.000001"));
    let of_mariadb = text("mariadb-row.000001.hex");
    let of_mysql = String::from_utf8_lossy(&of_mariadb).replace("# Event: \t", "# \t");
    for text in [&of_mariadb[..], of_mysql.as_bytes()] {
        let mut found = Found::default();
        let coverage = super::read_text(text, "a text", &mut found).unwrap();
        assert_eq!((found, coverage.damaged), (log.clone(), 0));
    }
}

#[test]
fn compressed_transactions_in_text_have_all_their_rows() {
    let (log, _) = read(&case("mysql97-compressed.000001"));
    let rows =
        |found: &Found| found.events.iter().map(|(text, rows, _)| (text.clone(), *rows)).collect::<Vec<_>>();
    for form in ["v", "rows"] {
        let (text, coverage) = printed(&format!("mysql97-compressed.000001.{form}"));
        assert_eq!(rows(&text), rows(&log), "{form}");
        let notes: Vec<_> = coverage.places.iter().filter(|place| place.reason.contains("0 bytes")).collect();
        assert_eq!(notes.len(), usize::from(form == "rows"), "{coverage:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_to_its_end(
        lines in proptest::collection::vec(0_usize..12, 0..60), noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        const LINES: [&str; 12] = [
            "#261128 13:03:37 server id 7  end_log_pos 454 CRC32 0xe0d99d27 \tQuery\tthread_id=5\texec_time=0\n",
            "#261128 13:03:37 server id 7  end_log_pos 999999999999 \tGTID 0-7-1\n",
            "#261128 13:03:37 server id 7  end_log_pos 500 \tTable_map: `a`.`b` mapped to number 3\n",
            "#261128 13:03:37 server id 7  end_log_pos 600 \tUpdate_rows: table id 3 flags: STMT_END_F\n",
            "### UPDATE `a`.`b`\n",
            "BINLOG '\n",
            "KdEKaw8HAAAA/AAAAAAB\n",
            "'/*!*/;\n",
            "SET TIMESTAMP=1795871017.5/*!*/;\n",
            "select 1\n/*!*/;\n",
            "#261128 13:03:37 server id 7  end_log_pos 700 \tXid = 1\nCOMMIT/*!*/;\n",
            "# at 5\n",
        ];
        let mut text: Vec<u8> = lines.iter().flat_map(|line| LINES[*line].bytes()).collect();
        text.extend_from_slice(&noise);
        let coverage = super::read_text(&text[..], "a text", &mut Found::default()).unwrap();
        prop_assert_eq!(coverage.bytes, text.len() as u64);
    }
}

/// MySQL prints the heads of some events even so: there they are all that is left of the log.
#[test]
fn the_short_form_has_no_events_and_says_so() {
    let short: &[u8] =
        b"DELIMITER /*!*/;\nSET @@SESSION.GTID_NEXT= 'AUTOMATIC'/*!*/;\nSET TIMESTAMP=1796092909/*!*/;\n\
        INSERT INTO t VALUES (1)\n/*!*/;\n\
        #261201  2:41:49 server id 3  end_log_pos 17221 CRC32 0x52f4b1b6 \tXA PREPARE X'78',X'62',1\n\
        XA PREPARE X'78',X'62',1\n/*!*/;\nSET TIMESTAMP=1796092910/*!*/;\nDROP TABLE t\n/*!*/;\n";
    let (found, coverage) = read_text(short);
    assert_eq!((found.events.len(), coverage.damaged), (0, 1));
    assert!(coverage.unreadable().unwrap().contains("2 statements without times"), "{coverage:?}");
    for name in ["mysql97-tagged.000001.v", "mariadb-row.000001.plain", "mariadb-row.000001.hex"] {
        assert_eq!(printed(name).1.damaged, 0, "{name}");
    }
}

#[test]
fn rows_that_a_text_leaves_out_are_said_to_be() {
    let whole = String::from_utf8(text("mariadb-row.000001.rows")).unwrap();
    let bare: Vec<_> = whole.split_inclusive('\n').filter(|line| !line.starts_with("###")).collect();
    let (found, coverage) = read_text(bare.concat().as_bytes());
    assert!(found.events.iter().all(|(text, rows, _)| !text.ends_with("(rows)") || rows.is_none()));
    assert!(coverage.places.iter().any(|place| place.reason.contains("with --verbose")), "{coverage:?}");
}

struct XaEnds(Vec<End>);

impl Sink for XaEnds {
    fn event(&mut self, _: &Event<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn transaction(&mut self, found: &Transaction<'_>) -> anyhow::Result<()> {
        self.0.push(found.end);
        Ok(())
    }
}

#[test]
fn how_a_transaction_of_xa_ended_is_told() {
    let of = |head: &str, statement: &str| {
        let text = format!(
            "# at 4\n#261201 12:31:46 server id 1  end_log_pos 100 CRC32 0x1 \tQuery\tthread_id=1\texec_time=0\terror_code=0\n\
             SET TIMESTAMP=1796128306/*!*/;\nXA START X'78',X'',1\n/*!*/;\n# at 100\n\
             #261201 12:31:46 server id 1  end_log_pos 150 CRC32 0x2 \t{head}\n{statement}\n/*!*/;\n"
        );
        let mut ends = XaEnds(Vec::new());
        super::read_text(text.as_bytes(), "a text", &mut ends).unwrap();
        ends.0
    };
    let (prepared, committed) = ("XA PREPARE X'78',X'',1", "XA COMMIT X'78',X'',1 ONE PHASE");
    // MySQL has the statement in the head, MariaDB the name.
    assert_eq!(of(prepared, prepared), [End::Prepared]);
    assert_eq!(of("XID = X'78',X'',1", prepared), [End::Prepared]);
    assert_eq!(of(committed, committed), [End::Committed]);
    assert_eq!([End::of_xa(false), End::of_xa(true)], [End::Prepared, End::Committed]);
}
