use super::*;
use Measure::{
    IsFullJoin, IsFullScan, LockNs, PagesRead, ResponseBytes, RowLockNs, RowsAffected, RowsExamined,
    RowsSent, SortMergePasses, TmpDiskTables, TmpTables,
};

fn of(text: &str) -> (Header<'_>, &str) {
    let (header, body) = parse(text.as_bytes(), true).unwrap();
    (header, &text[body..])
}

#[test]
fn mysql_8_with_log_slow_extra() {
    let (header, rest) = of("# Time: 2024-01-31T12:00:00.500000Z\n\
        # User@Host: root[root] @ localhost []  Id:    10\n\
        # Query_time: 0.250000  Lock_time: 0.000002 Rows_sent: 1  Rows_examined: 2 Thread_id: 10 Errno: 1062 \
        Killed: 0 Bytes_received: 0 Bytes_sent: 57 Read_first: 1 Sort_merge_passes: 3 Created_tmp_disk_tables: 1 \
        Created_tmp_tables: 2 Count_hit_tmp_table_size: 0  \
        Start: 2024-01-31T12:00:00.250001Z End: 2024-01-31T12:00:00.500001Z\n\
        use shop;\nSET timestamp=1706702400;\nselect 1;\n");
    assert_eq!((header.query_ns, header.measures.get(LockNs)), (Some(250_000_000), Some(2_000)));
    assert_eq!(
        (
            header.measures.get(RowsSent),
            header.measures.get(RowsExamined),
            header.measures.get(ResponseBytes)
        ),
        (Some(1), Some(2), Some(57))
    );
    let tables = [TmpTables, TmpDiskTables, SortMergePasses].map(|measure| header.measures.get(measure));
    assert_eq!(tables, [Some(2), Some(1), Some(3)]);
    assert_eq!((header.errno, header.thread), (Some(1062), Some(10)));
    assert_eq!(header.start.unwrap().ns, 1_706_702_400_250_001_000);
    assert_eq!(
        (header.used.map(Name::to_vec).as_deref(), header.timestamp_ns),
        (Some(&b"shop"[..]), Some(1_706_702_400_000_000_000))
    );
    assert_eq!(rest, "select 1;\n");
}

#[test]
fn mariadb_with_plans() {
    let (header, rest) = of("# User@Host: a[a] @ localhost []\n# Thread_id: 7  Schema:   QC_hit: No\n\
        # Query_time: 1.000001  Lock_time: 0.5  Rows_sent: 3  Rows_examined: 4\n\
        # Rows_affected: 5  Bytes_sent: 6\n# Stored_routine: db.`p`\n\
        # Pages_accessed: 184  Pages_read: 95  Pages_prefetched: 0  Pages_updated: 0  Old_rows_read: 0\n\
        # Pages_read_time: 17.0204  Engine_time: 248.1297\n\
        # Full_scan: Yes  Full_join: No  Tmp_table: No  Tmp_table_on_disk: No\n#\n\
        # explain: id\tselect_type\n# explain: 1\tSIMPLE Rows_sent: 99\n#\n\
        SET last_insert_id=4,insert_id=5,timestamp=1706702400;\n# administrator command: Prepare;\n");
    assert_eq!((header.thread, header.schema), (Some(7), Some(&b""[..])));
    assert_eq!((header.query_ns, header.measures.get(LockNs)), (Some(1_000_001_000), Some(500_000_000)));
    assert_eq!(
        (
            header.measures.get(RowsSent),
            header.measures.get(RowsAffected),
            header.measures.get(ResponseBytes)
        ),
        (Some(3), Some(5), Some(6))
    );
    let plan = [IsFullScan, IsFullJoin, PagesRead].map(|measure| header.measures.get(measure));
    assert_eq!(plan, [Some(1), Some(0), Some(95)]);
    assert_eq!(header.timestamp_ns, Some(1_706_702_400_000_000_000));
    assert_eq!(rest, "# administrator command: Prepare;\n");
}

#[test]
fn what_clients_choose_is_no_field() {
    let (header, rest) = of("# User@Host: a[a] @ localhost []\n# Thread_id: 7  Schema: d  QC_hit: No\n\
        # Query_time: 1.5  Lock_time: 0.5  Rows_sent: 3  Rows_examined: 4\n# Rows_affected: 1  Bytes_sent: 50\n\
        # Stored_routine: d.p Query_time: 99 Rows_sent: 77\n# Warnings\n\
        # Warning         1366 Incorrect integer value: 'x Query_time: 99 Rows_sent: 77 ' for column `d`.`t`.`a` at row 1\n\
        SET timestamp=1706702400;\nselect 1;\n");
    let rows = [RowsSent, RowsExamined, RowsAffected].map(|measure| header.measures.get(measure));
    assert_eq!((header.query_ns, rows), (Some(1_500_000_000), [Some(3), Some(4), Some(1)]));
    assert_eq!((rest, header.schema), ("select 1;\n", Some(&b"d"[..])));
}

#[test]
fn percona_server() {
    let (header, rest) = of("# Time: 140507 18:14:18.123456\n# User@Host: a[a] @  [10.0.0.1]  Id:    10\n\
        # Schema: my shop  Last_errno: 1265  Killed: 0\n\
        # Query_time: 2.0  Lock_time: 0.000000  Rows_sent: 0  Rows_examined: 0  Rows_affected: 1  Rows_read: 0\n\
        # Bytes_sent: 11  Tmp_tables: 4  Tmp_disk_tables: 0  Tmp_table_sizes: 9\n# InnoDB_trx_id: 1A2B\n\
        # QC_Hit: No  Full_scan: No  Full_join: No  Tmp_table: No  Tmp_table_on_disk: No\n\
        #   InnoDB_IO_r_ops: 6  InnoDB_IO_r_bytes: 98304  InnoDB_IO_r_wait: 0.000000\n\
        #   InnoDB_rec_lock_wait: 0.000025  InnoDB_queue_wait: 0.000000\n#   InnoDB_pages_distinct: 9\n\
        # No InnoDB statistics available for this query\n# Log_slow_rate_type: query  Log_slow_rate_limit: 10\n\
        SET timestamp=1399486458.5;\n");
    assert_eq!(
        (header.schema, header.errno, header.measures.get(ResponseBytes)),
        (Some(&b"my shop"[..]), None, Some(11))
    );
    assert_eq!(
        (header.measures.get(RowsAffected), header.timestamp_ns),
        (Some(1), Some(1_399_486_458_500_000_000))
    );
    let tables = [TmpTables, TmpDiskTables, SortMergePasses].map(|measure| header.measures.get(measure));
    assert_eq!(tables, [Some(4), Some(0), None]);
    let innodb = [IsFullScan, RowLockNs, PagesRead].map(|measure| header.measures.get(measure));
    assert_eq!(innodb, [Some(0), Some(25_000), Some(6)]);
    assert_eq!((rest, header.last), ("", Some(&b"SET timestamp=1399486458.5"[..])));
}

#[test]
fn hostile_names_of_schemas() {
    let schema = |text| of(text).0.schema;
    assert_eq!(
        schema("# Thread_id: 7  Schema: x  Rows_sent: 9  QC_hit: No\n"),
        Some(&b"x  Rows_sent: 9"[..])
    );
    assert_eq!(
        schema("# Schema: x  Last_errno: 0  Killed: 0  QC_hit: No\n"),
        Some(&b"x  Last_errno: 0  Killed: 0"[..])
    );
    let (header, rest) = of("# Query_time: 1  Lock_time: 0\nuse a\nb;\nSET timestamp=1;\nx;\n");
    assert_eq!((header.used.map(Name::to_vec).as_deref(), rest), (Some(&b"a\nb"[..]), "x;\n"));
}

#[test]
fn settings_of_clients_are_statements() {
    for statement in
        ["SET timestamp=1, a=2;\n", "SET NAMES utf8;\n", "SET insert_id=x;\n", "SET timestamp=1 ;\n"]
    {
        // Without one of the server, that is how somebody's copy has it.
        if !statement.contains("1 ;") {
            let text = format!("# Query_time: 1  Lock_time: 0\n{statement}");
            assert_eq!(of(&text).1, statement);
        }
        let text = format!("# Query_time: 1  Lock_time: 0\nSET timestamp=5;\n{statement}");
        assert_eq!(of(&text).1, statement);
    }
}

#[test]
fn numbers_that_are_none() {
    let header =
        of("# Query_time: 18446744073709.550781  Lock_time: x Rows_sent: 99999999999999999999999\n").0;
    assert_eq!(header.query_ns.and_then(duration), None);
    assert_eq!((header.measures.get(LockNs), header.measures.get(RowsSent)), (None, None));
}
