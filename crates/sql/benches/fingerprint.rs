//! What a fingerprint costs (target: well over 500 MB/s of SQL), beside what else is done with every statement.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sql::{Mode, class_id, fingerprint, redact};

/// The statements of sysbench's oltp_read_write, one transaction.
fn sysbench() -> Vec<String> {
    let c = "68487932199-96439406143-93774651418-41631865787-96406072701-20604855487-25459966574-28203206787-41238978918-19503783441";
    let pad = "22195207048-70116052123-74140395089-76317954521-98694025897";
    let mut statements: Vec<String> =
        (0..10).map(|n| format!("SELECT c FROM sbtest1 WHERE id={}", 50_234 - n * 3571)).collect();
    statements.extend([
        "BEGIN".to_owned(),
        "SELECT c FROM sbtest1 WHERE id BETWEEN 50196 AND 50295".to_owned(),
        "SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN 50196 AND 50295".to_owned(),
        "SELECT c FROM sbtest1 WHERE id BETWEEN 50196 AND 50295 ORDER BY c".to_owned(),
        "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 50196 AND 50295 ORDER BY c".to_owned(),
        "UPDATE sbtest1 SET k=k+1 WHERE id=49917".to_owned(),
        format!("UPDATE sbtest1 SET c='{c}' WHERE id=50217"),
        "DELETE FROM sbtest1 WHERE id=50021".to_owned(),
        format!("INSERT INTO sbtest1 (id, k, c, pad) VALUES (50021, 41866, '{c}', '{pad}')"),
        "COMMIT".to_owned(),
    ]);
    statements
}

/// Statements as an application's mapper writes them.
fn mapper() -> Vec<String> {
    let columns: Vec<String> = (0..12).map(|n| format!("`u0_`.`column_{n}` AS `column_{n}_{n}`")).collect();
    let ids: Vec<String> = (0..40).map(|n| (1_000_000 + n * 7919).to_string()).collect();
    vec![
        format!(
            "SELECT {} FROM `users` `u0_` LEFT JOIN `orders` `o1_` ON `u0_`.`id` = `o1_`.`user_id` WHERE `u0_`.`id` IN ({}) AND \
             (`o1_`.`state` = 'paid' OR `o1_`.`total` >= 12.50) ORDER BY `o1_`.`created_at` DESC LIMIT 25",
            columns.join(", "),
            ids.join(", ")
        ),
        "INSERT INTO `events` (`user_id`, `kind`, `payload`, `created_at`) VALUES (1, 'it''s', '{\"a\": 1}', '2026-01-01 10:00:00'), \
         (2, 'b', '{\"a\": 2}', '2026-01-01 10:00:01'), (3, 'c', NULL, '2026-01-01 10:00:02')"
            .to_owned(),
        "update `carts` set `updated_at` = now(), `total` = `total` + 17.5 where `id` = 918273 and `deleted_at` is null"
            .to_owned(),
    ]
}

fn fingerprints(criterion: &mut Criterion) {
    let blob = vec![format!("INSERT INTO t (id, b) VALUES (1, '{}')", "lorem ipsum ".repeat(10_000))];
    for (name, statements) in [("sysbench", sysbench()), ("mapper", mapper()), ("120 kB insert", blob)] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(statements.iter().map(|text| text.len() as u64).sum()));
        let mut out = Vec::with_capacity(1 << 20);
        for (what, mode) in [("strict", Mode::Strict), ("pt", Mode::Pt)] {
            group.bench_function(what, |bencher| {
                bencher.iter(|| {
                    for text in &statements {
                        fingerprint(mode, black_box(text.as_bytes()), false, &mut out);
                        black_box(&out);
                    }
                });
            });
        }
        group.bench_function("redact", |bencher| {
            bencher.iter(|| {
                for text in &statements {
                    black_box(redact(black_box(text.as_bytes()), &mut out));
                }
            });
        });
        group.finish();
    }
    criterion.bench_function("id of a class", |bencher| {
        bencher.iter(|| class_id(Mode::Strict, black_box(b"select c from sbtest1 where id = ?")));
    });
}

criterion_group!(benches, fingerprints);
criterion_main!(benches);
