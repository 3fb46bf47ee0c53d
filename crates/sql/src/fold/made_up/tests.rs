use super::Place::{Alias, Column, Object, Partition};
use super::{Place, fold_name};

fn folded(name: &str, place: Place) -> Option<String> {
    let mut out = Vec::new();
    fold_name(name.as_bytes(), place, &mut out).then(|| String::from_utf8(out).unwrap())
}

const MADE_UP: &[(Place, &[(&str, &str)])] = &[
    (
        Object,
        &[
            ("search_tmp_5cc0108165e221_57009269", "search_tmp_?"),
            ("tmp_64b0c1d2e3f4", "tmp_?"),
            ("orders_2024_01", "orders_?"),
            ("orders_2024_01_archive", "orders_?_archive"),
            ("shard_0017", "shard_?"),
            ("t_123", "t_?"),
            ("t1", "t?"),
            ("s3", "s?"),
            ("h2", "h?"),
            ("sbtest12", "sbtest?"),
            ("p2024w07_eu", "?_eu"),
            ("tmp_550e8400-e29b-41d4-a716-446655440000", "tmp_?"),
            ("tmp_550e8400_e29b_41d4_a716_446655440000_x", "tmp_?_x"),
            ("sess_k3j9x0qz", "sess_?"),
            ("2024_orders", "?_orders"),
            ("20240101", "?"),
            ("caf\u{e9}_2024", "caf\u{e9}_?"),
            ("tmp_a3f9", "tmp_?"),
            ("idx_4f2a", "idx_?"),
            ("idx_5cc0", "idx_?"),
            ("job_x7k2", "job_?"),
            ("fk_rails_1e3f2ab9c8", "fk_rails_?"),
            ("FKh4k9q2x8m7l1", "?"),
            ("proc_20240101", "proc_?"),
            ("v_17", "v_?"),
            ("wp_12_posts", "wp_?_posts"),
            ("md5_cache_20240101", "md5_cache_?"),
            ("events_v2_2024_05", "events_v2_?"),
            ("stats_1h_20240501", "stats_1h_?"),
            ("t0_", "t?_"),
            ("user0_", "user?_"),
            ("_0", "_?"),
            ("Extent1", "Extent?"),
        ],
    ),
    (Partition, &[("p20240101", "p?"), ("p0", "p?"), ("p95", "p?"), ("p_7d", "p_?d"), ("q3", "q?")]),
    (
        Alias,
        &[
            ("id1_0_0_", "id?_"),
            ("col_0_0_", "col_?_"),
            ("t1_r0", "t?_r?"),
            ("c17", "c?"),
            ("anon_1", "anon_?"),
            ("_3", "_?"),
            ("sclr_12", "sclr_?"),
        ],
    ),
    (
        Column,
        &[
            ("cf_10023", "cf_?"),
            ("field_1234", "field_?"),
            ("UF_CRM_1588772", "UF_CRM_?"),
            ("d20240101", "d?"),
            ("col_0_0_", "col_?_"),
            ("h_3fa9c2d1", "h_?"),
            ("x_a3f9", "x_?"),
        ],
    ),
];

#[rustfmt::skip]
const CHOSEN: &[&str] = &[
    "orders", "facade", "deadbeef", "tmp_?", "a-b", "", "utf8mb4", "utf8mb3", "utf8mb4_0900_ai_ci",
    "latin1_swedish_ci", "sha256", "file_sha256", "sha256_hash", "emailsha256", "md5", "md5sum", "password_md5",
    "int4", "float8", "ipv6", "ipv4_address", "inet6", "s3_objects", "s3_bucket", "oauth2", "oauth2_tokens",
    "oauth_2_clients", "crc32", "base64_body", "x509_certs", "mp3_files", "h264_level", "k8s_nodes",
    "i18n_texts", "l10n", "b2b_customers", "p2p_links", "ec2_instances", "neo4j_nodes", "web3_wallets",
    "2fa_codes", "iso_3166", "iso_8601_date", "iso3166_countries", "rfc_822_address", "utf_16", "sha_512",
    "http_404_pages", "last_30_days", "last_7_days", "top_10_products", "stats_24h", "ohlc_5m", "metrics_1h",
    "users_v2", "api_v1_keys", "latency_p95", "p99_ms", "sales_q1", "1st_party", "2nd_address", "covid_19_cases",
    "covid19_tests", "argon2id_hash", "pbkdf2_rounds", "office365_users", "tls13_only", "uuid4", "ean13",
    "isbn_13", "pm25_values", "co2_ppm", "log10_value", "tier1_customers", "level3_support", "address2_history",
];

#[test]
fn what_a_program_made_up_is_folded() {
    for (place, names) in MADE_UP {
        for (name, expected) in *names {
            assert_eq!(folded(name, *place).as_deref(), Some(*expected), "{name} at {place:?}");
        }
    }
    assert!(MADE_UP.iter().map(|(_, names)| names.len()).sum::<usize>() >= 40);
}

#[test]
fn what_a_person_wrote_stays() {
    assert!(CHOSEN.len() >= 60);
    for name in CHOSEN {
        for place in [Object, Column] {
            assert_eq!(folded(name, place), None, "{name} at {place:?}");
        }
    }
    for name in [
        "address1",
        "address_2",
        "phone2",
        "line3",
        "c1",
        "col17",
        "k",
        "price_24",
        "home2",
        "field12",
        "option_5",
    ] {
        assert_eq!(folded(name, Column), None, "{name} as a column");
    }
    for name in ["address1", "phone2", "street2", "total1"] {
        assert_eq!(folded(name, Alias), None, "{name} as an alias");
    }
}
