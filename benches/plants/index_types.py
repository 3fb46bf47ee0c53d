"""Columns whose types and collations do not match what they are compared with, for `benches/indexes.py`."""

from __future__ import annotations

from benches.plants.index_case import NUMBERS, case

SCHEMA = (
    "CREATE DATABASE types DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "USE types",
    NUMBERS,
    # accounts.number is text, moves.account a number, and moves.reference has another character set.
    "CREATE TABLE accounts (id INT PRIMARY KEY, number VARCHAR(20), name VARCHAR(40) COLLATE utf8mb4_bin, opened"
    " VARCHAR(10), balance DECIMAL(12,2), token BINARY(16), details JSON, lower_name VARCHAR(40) AS (LOWER(name))"
    " VIRTUAL)",
    "INSERT INTO accounts (id, number, name, opened, balance, token, details) SELECT n, 100000 + n,"
    " CONCAT('Name', n),"
    " DATE_FORMAT('2020-01-01' + INTERVAL n % 2000 DAY, '%Y-%m-%d'), n % 5000 / 10, UNHEX(LEFT(SHA2(n, 256), 32)),"
    " CONCAT('{\"n\": ', n, '}') FROM n WHERE n < 100000",
    "CREATE TABLE moves (id INT PRIMARY KEY, account BIGINT, booked DATE, at TIMESTAMP, amount INT, reference"
    " VARCHAR(30) CHARACTER SET latin1, label VARCHAR(40) COLLATE utf8mb4_unicode_ci)",
    "INSERT INTO moves SELECT n, 100000 + n * 7 % 100000, '2024-01-01' + INTERVAL n % 700 DAY, '2024-01-01' +"
    " INTERVAL n MINUTE, n % 1009, CONCAT('r', n), CONCAT('Name', n % 90000) FROM n WHERE n < 300000",
    "CREATE TABLE texts (id INT PRIMARY KEY, long_text TEXT, short_text VARCHAR(500), code CHAR(8), KEY k_prefix"
    " (short_text(20)), KEY k_longer (short_text(40)))",
    "INSERT INTO texts SELECT n, CONCAT('long ', n), CONCAT('short ', n), CONCAT('c', n % 50000) FROM n WHERE n"
    " < 100000",
    "ANALYZE TABLE accounts, moves, texts",
)
REDUNDANT = frozenset({"k_prefix"})

CASES = (
    case("type: text by text", "SELECT * FROM accounts WHERE number = '100077'", "accounts(number)"),
    case("type: number by text", "SELECT COUNT(*) FROM moves WHERE account = '100077'", "moves(account)"),
    case("type: number by decimal", "SELECT COUNT(*) FROM moves WHERE account = 100077.0", "moves(account)"),
    case("type: decimal by number", "SELECT COUNT(*) FROM accounts WHERE balance = 77", "accounts(balance)"),
    case("type: date by text", "SELECT SUM(amount) FROM moves WHERE booked = '2024-03-05'", "moves(booked)"),
    case("type: timestamp by text", "SELECT * FROM moves WHERE at BETWEEN '2024-03-05' AND '2024-03-05 01:00'",
         "moves(at)"),
    case("type: text as date", "SELECT COUNT(*) FROM accounts WHERE opened = '2021-05-05'", "accounts(opened)"),
    case("type: binary", "SELECT id FROM accounts WHERE token = UNHEX(LEFT(SHA2('77', 256), 32))",
         "accounts(token)"),
    case("type: latin1 by literal", "SELECT * FROM moves WHERE reference = 'r77'", "moves(reference)"),
    case("type: generated", "SELECT id FROM accounts WHERE lower_name = 'name77'", "accounts(lower_name)"),
    case("type: char", "SELECT id FROM texts WHERE code = 'c77'", "texts(code)"),
    case("type: own collation", "SELECT id FROM accounts WHERE name = 'Name77'", "accounts(name)"),
    case("type: join of both numbers", "SELECT m.amount FROM accounts a JOIN moves m ON m.account = a.id + 100000"
         " WHERE a.id = 77", "moves(account)"),
    case("type: like on the start", "SELECT id FROM accounts WHERE number LIKE '10007%'", "accounts(number)"),
    case("type: between of the value's function", "SELECT COUNT(*) FROM moves WHERE booked >="
         " DATE_SUB('2024-03-05', INTERVAL 1 DAY) AND booked < DATE('2024-03-05')", "moves(booked)"),
    case("decoy: text by number", "SELECT * FROM accounts WHERE number = 100077"),
    case("decoy: text by numbers", "SELECT * FROM accounts WHERE number IN (100077, 100078)"),
    case("decoy: text between numbers", "SELECT COUNT(*) FROM accounts WHERE number BETWEEN 100077 AND 100079"),
    case("decoy: join text and number", "SELECT COUNT(*) FROM accounts a JOIN moves m ON a.number = m.account"
         " WHERE m.id < 20"),
    case("collations: the binary side", "SELECT COUNT(*) FROM moves m JOIN accounts a ON a.name = m.label"
         " WHERE m.id < 20", "accounts(name)"),
    case("decoy: cast of the column", "SELECT COUNT(*) FROM moves WHERE CAST(account AS CHAR) = '100077'"),
    case("decoy: convert of the column", "SELECT COUNT(*) FROM moves WHERE CONVERT(reference USING utf8mb4) ="
         " 'r77'"),
    case("decoy: collate of the column", "SELECT COUNT(*) FROM accounts WHERE name COLLATE utf8mb4_general_ci ="
         " 'name77'"),
    case("decoy: year", "SELECT SUM(amount) FROM moves WHERE YEAR(booked) = 2024 AND MONTH(booked) = 3"),
    case("decoy: date of a timestamp", "SELECT COUNT(*) FROM moves WHERE DATE(at) = '2024-03-05'"),
    case("decoy: if null", "SELECT COUNT(*) FROM accounts WHERE IFNULL(number, '') = '100077'"),
    case("decoy: trim", "SELECT COUNT(*) FROM accounts WHERE TRIM(number) = '100077'"),
    case("decoy: concat", "SELECT COUNT(*) FROM accounts WHERE CONCAT(number, name) = '100077Name77'"),
    case("decoy: substring", "SELECT COUNT(*) FROM accounts WHERE LEFT(number, 5) = '10007'"),
    case("decoy: json path", "SELECT COUNT(*) FROM accounts WHERE JSON_EXTRACT(details, '$.n') = 77"),
    case("decoy: regular expression", "SELECT COUNT(*) FROM accounts WHERE number REGEXP '^10007'"),
    case("decoy: wildcard", "SELECT COUNT(*) FROM accounts WHERE number LIKE '_00077'"),
    case("decoy: not like", "SELECT COUNT(*) FROM accounts WHERE number NOT LIKE '1000%'"),
    case("decoy: not null", "SELECT COUNT(*) FROM accounts WHERE number IS NOT NULL"),
    case("decoy: long text", "SELECT id FROM texts WHERE long_text = 'long 77'"),
    case("decoy: prefix serves", "SELECT id FROM texts WHERE short_text = 'short 77'"),
    case("decoy: minus", "SELECT COUNT(*) FROM moves WHERE account - 100000 = 77"),
    case("decoy: or of two types", "SELECT COUNT(*) FROM moves WHERE account = 100077 OR reference = 'r77'"),
    case("decoy: wide range of text", "SELECT SUM(balance) FROM accounts WHERE number > '1'"),
)  # fmt: skip
