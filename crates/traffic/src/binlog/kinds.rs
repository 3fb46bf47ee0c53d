//! Kinds of events of MySQL's and MariaDB's binary logs, by the byte in their header.

pub const QUERY: u8 = 2;
pub const STOP: u8 = 3;
pub const ROTATE: u8 = 4;
pub const INTVAR: u8 = 5;
pub const RAND: u8 = 13;
pub const USER_VAR: u8 = 14;
pub const FORMAT_DESCRIPTION: u8 = 15;
pub const XID: u8 = 16;
pub const EXECUTE_LOAD_QUERY: u8 = 18;
pub const TABLE_MAP: u8 = 19;
pub const INCIDENT: u8 = 26;
pub const ROWS_QUERY: u8 = 29;
pub const GTID: u8 = 33;
pub const ANONYMOUS_GTID: u8 = 34;
pub const PREVIOUS_GTIDS: u8 = 35;
pub const XA_PREPARE: u8 = 38;
pub const PARTIAL_UPDATE_ROWS: u8 = 39;
pub const TRANSACTION_PAYLOAD: u8 = 40;
pub const GTID_TAGGED: u8 = 42;
pub const MARIADB_ANNOTATE_ROWS: u8 = 160;
pub const MARIADB_GTID: u8 = 162;
pub const MARIADB_GTID_LIST: u8 = 163;
pub const MARIADB_START_ENCRYPTION: u8 = 164;
pub const MARIADB_QUERY_COMPRESSED: u8 = 165;

/// A header with any other byte is damage.
const NAMES: [(u8, &str); 60] = [
    (1, "Start_v3"),
    (QUERY, "Query"),
    (STOP, "Stop"),
    (ROTATE, "Rotate"),
    (INTVAR, "Intvar"),
    (6, "Load"),
    (7, "Slave"),
    (8, "Create_file"),
    (9, "Append_block"),
    (10, "Exec_load"),
    (11, "Delete_file"),
    (12, "New_load"),
    (RAND, "RAND"),
    (USER_VAR, "User_var"),
    (FORMAT_DESCRIPTION, "Format_desc"),
    (XID, "Xid"),
    (17, "Begin_load_query"),
    (EXECUTE_LOAD_QUERY, "Execute_load_query"),
    (TABLE_MAP, "Table_map"),
    (20, "Pre_ga_write_rows"),
    (21, "Pre_ga_update_rows"),
    (22, "Pre_ga_delete_rows"),
    (23, "Write_rows_v1"),
    (24, "Update_rows_v1"),
    (25, "Delete_rows_v1"),
    (INCIDENT, "Incident"),
    (27, "Heartbeat"),
    (28, "Ignorable"),
    (ROWS_QUERY, "Rows_query"),
    (30, "Write_rows"),
    (31, "Update_rows"),
    (32, "Delete_rows"),
    (GTID, "Gtid"),
    (ANONYMOUS_GTID, "Anonymous_Gtid"),
    (PREVIOUS_GTIDS, "Previous_gtids"),
    (36, "Transaction_context"),
    (37, "View_change"),
    (XA_PREPARE, "XA_prepare"),
    (PARTIAL_UPDATE_ROWS, "Update_rows_partial"),
    (TRANSACTION_PAYLOAD, "Transaction_payload"),
    (41, "Heartbeat_v2"),
    (GTID_TAGGED, "Gtid_tagged"),
    (MARIADB_ANNOTATE_ROWS, "Annotate_rows"),
    (161, "Binlog_checkpoint"),
    (MARIADB_GTID, "Gtid"),
    (MARIADB_GTID_LIST, "Gtid_list"),
    (MARIADB_START_ENCRYPTION, "Start_encryption"),
    (MARIADB_QUERY_COMPRESSED, "Query_compressed"),
    (166, "Write_rows_compressed_v1"),
    (167, "Update_rows_compressed_v1"),
    (168, "Delete_rows_compressed_v1"),
    (169, "Write_rows_compressed"),
    (170, "Update_rows_compressed"),
    (171, "Delete_rows_compressed"),
    (43, "Kind_43"),
    (44, "Kind_44"),
    (45, "Kind_45"),
    (46, "Kind_46"),
    (172, "Kind_172"),
    (173, "Kind_173"),
];

/// By byte: every header of every log is looked up.
const BY_KIND: [Option<&str>; 256] = {
    let mut names = [None; 256];
    let mut place = 0;
    while place < NAMES.len() {
        names[NAMES[place].0 as usize] = Some(NAMES[place].1);
        place += 1;
    }
    names
};

/// The name of a kind, as tools of the servers print it where they do; None for a byte that no server writes. The next
/// few that servers may add have a number for a name: they are counted, not read.
#[inline]
#[must_use]
pub fn name(kind: u8) -> Option<&'static str> {
    BY_KIND[usize::from(kind)]
}

/// Whether events of the kind change rows.
#[must_use]
pub fn changes_rows(kind: u8) -> bool {
    matches!(kind, 23..=25 | 30..=32 | PARTIAL_UPDATE_ROWS | 166..=171)
}
