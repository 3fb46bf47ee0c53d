"""Statements in many forms, for `benches/indexes.py`: subqueries, windows, partitions, expressions, row values.

What each lacks was written down before any of them was run.
"""

from __future__ import annotations

from benches.plants.index_case import NUMBERS, case

SCHEMA = (
    "CREATE DATABASE forms DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "USE forms",
    NUMBERS,
    # MariaDB skips what stands in comments for MySQL 8.0.13: an index of an expression.
    "CREATE TABLE people (id INT PRIMARY KEY, email VARCHAR(80), country CHAR(2), phone VARCHAR(20), born DATE,"
    " joined DATETIME, score INT, level INT, width INT, height INT, area INT AS (width * height) STORED,"
    " profile JSON, city VARCHAR(30) AS (JSON_UNQUOTE(JSON_EXTRACT(profile, '$.city'))) VIRTUAL, bio TEXT,"
    " notes TEXT, filler VARCHAR(200), KEY k_city (city), KEY k_bio (bio(20)), KEY k_level (level DESC, height)"
    " /*!80013 , KEY k_lower ((LOWER(email))) */)",
    "INSERT INTO people (id, email, country, phone, born, joined, score, level, width, height, profile, bio,"
    " notes, filler) SELECT n, CONCAT('U', n, '@Example.com'), CONCAT(CHAR(97 + n % 26), CHAR(97 + n DIV 26 %"
    " 26)), 49000000 + n, '1950-01-01' + INTERVAL n % 20000 DAY, '2020-01-01' + INTERVAL n * 13 % 2000000 MINUTE,"
    ' n * 7 % 40009, n % 5003, n % 211, n % 307, CONCAT(\'{"city": "city\', n % 9001, \'", "plan": "p\', n %'
    " 4001, '\"}'), CONCAT('bio of ', n), CONCAT('note ', n), REPEAT('f', 150) FROM n WHERE n < 120000",
    "CREATE TABLE logins (id INT PRIMARY KEY, person INT, at DATETIME, ip VARCHAR(20), tenant INT, kind INT,"
    " code VARCHAR(20) COLLATE utf8mb4_bin, filler VARCHAR(100), KEY k_tenant (tenant))",
    "INSERT INTO logins SELECT n, n * 11 % 90001, '2024-01-01' + INTERVAL n * 7 % 900000 MINUTE, CONCAT('10.0.',"
    " n % 20011), n % 997, n % 11, CONCAT('c', n % 70001), REPEAT('f', 60) FROM n WHERE n < 250000",
    "CREATE TABLE codes (id INT PRIMARY KEY, code VARCHAR(20), weight INT)",
    "INSERT INTO codes SELECT n, CONCAT('c', n), n % 1009 FROM n WHERE n < 60000",
    "CREATE TABLE nodes (id INT PRIMARY KEY, parent INT, name VARCHAR(30), filler VARCHAR(100))",
    "INSERT INTO nodes SELECT n, n DIV 4, CONCAT('node', n), REPEAT('f', 60) FROM n WHERE n < 100000",
    "CREATE TABLE measures (id INT, day DATE, sensor INT, value INT, filler VARCHAR(60), PRIMARY KEY (id, day))"
    " PARTITION BY RANGE (YEAR(day)) (PARTITION p3 VALUES LESS THAN (2024), PARTITION p4 VALUES LESS THAN (2025),"
    " PARTITION p5 VALUES LESS THAN MAXVALUE)",
    "INSERT INTO measures SELECT n, '2023-01-01' + INTERVAL n % 1095 DAY, n * 3 % 5003, n % 100, REPEAT('f', 40)"
    " FROM n WHERE n < 200000",
    "ANALYZE TABLE people, logins, codes, nodes, measures",
)
REDUNDANT = frozenset[str]()

CASES = (
    case("form: generated", "SELECT id FROM people WHERE area = 7770", "people(area)"),
    case("form: partitioned", "SELECT SUM(value) FROM measures WHERE sensor = 77", "measures(sensor)"),
    case("form: partitioned, with the day", "SELECT SUM(value) FROM measures WHERE sensor = 77 AND day BETWEEN"
         " '2024-03-01' AND '2024-06-01'", "measures(sensor,day)", "measures(sensor)"),
    case("form: order up where the index goes down", "SELECT id FROM people ORDER BY level, height LIMIT 10",
         "people(level,height)"),
    case("form: collation of the other side", "SELECT l.id FROM codes c JOIN logins l ON l.code = c.code COLLATE"
         " utf8mb4_bin WHERE c.id = 77", "logins(code)"),
    case("form: date by number", "SELECT COUNT(*) FROM people WHERE born = 19770305", "people(born)"),
    case("form: list and order", "SELECT id FROM logins WHERE person IN (5, 9, 77) ORDER BY at DESC LIMIT 10",
         "logins(person)", "logins(person,at)"),
    case("form: rollup", "SELECT kind, tenant, COUNT(*) FROM logins GROUP BY kind, tenant WITH ROLLUP",
         "logins(kind,tenant)"),
    case("form: join of two collations, from the other side", "SELECT l.id FROM codes c JOIN logins l ON l.code ="
         " c.code WHERE c.id = 77", "logins(code)"),
    case("form: seek by alternatives", "SELECT id FROM people WHERE score > 40000 OR (score = 40000 AND id > 7)"
         " ORDER BY score, id LIMIT 10", "people(score)", "people(score,id)"),
    case("form: window of some", "SELECT * FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY at DESC)"
         " AS r FROM logins WHERE ip = '10.0.77') t WHERE r <= 2", "logins(ip)"),
    case("form: recursive", "WITH RECURSIVE t AS (SELECT id FROM nodes WHERE id = 77 UNION ALL SELECT n.id FROM"
         " nodes n JOIN t ON n.parent = t.id) SELECT COUNT(*) FROM t", "nodes(parent)"),
    case("form: two of one table expression", "WITH seen AS (SELECT person, at FROM logins WHERE ip = '10.0.77')"
         " SELECT a.person FROM seen a JOIN seen b ON a.person = b.person AND a.at < b.at", "logins(ip)"),
    case("form: derived with groups", "SELECT p.email, x.n FROM people p JOIN (SELECT person, COUNT(*) AS n FROM"
         " logins WHERE ip = '10.0.77' GROUP BY person) x ON x.person = p.id", "logins(ip,person)", "logins(ip)"),
    case("form: condition outside of the derived", "SELECT * FROM (SELECT person, COUNT(*) AS n FROM logins GROUP"
         " BY person) x WHERE x.person = 77", "logins(person)"),
    case("form: first of each group", "SELECT p.id FROM people p JOIN (SELECT country, MAX(score) AS top FROM"
         " people GROUP BY country) x ON x.country = p.country AND x.top = p.score", "people(country,score)",
         "people(score,country)"),
    case("form: delete with a join", "DELETE l FROM logins l JOIN codes c ON c.id = l.person WHERE c.code = 'c77'",
         "logins(person)", "codes(code)"),
    case("form: update with a derived table", "UPDATE codes c JOIN (SELECT person, COUNT(*) AS n FROM logins WHERE"
         " ip = '10.0.78' GROUP BY person) x ON x.person = c.id SET c.weight = x.n", "logins(ip)",
         "logins(ip,person)"),
    case("form: delete in", "DELETE FROM codes WHERE id < 60 AND id IN (SELECT person FROM logins WHERE ip ="
         " '10.0.79')", "logins(ip)"),
    case("form: union", "SELECT id FROM people WHERE phone = '49000077' UNION SELECT person FROM logins WHERE ip"
         " = '10.0.77' ORDER BY 1 LIMIT 10", "people(phone)", "logins(ip)"),
    case("form: not exists", "SELECT COUNT(*) FROM people p WHERE p.id < 90 AND NOT EXISTS (SELECT 1 FROM logins"
         " l WHERE l.person = p.id AND l.kind = 3)", "logins(person,kind)", "logins(kind,person)",
         "logins(person)"),
    case("form: none joined", "SELECT c.id FROM codes c LEFT JOIN logins l ON l.person = c.id WHERE l.id IS NULL"
         " AND c.id < 90", "logins(person)"),
    case("form: row values", "SELECT id FROM logins WHERE (person, kind) IN ((77, 3), (88, 4))",
         "logins(person,kind)", "logins(kind,person)"),
    case("form: row value", "SELECT id FROM logins WHERE (person, ip) = (77, '10.0.7')", "logins(person,ip)",
         "logins(ip,person)"),
    case("form: seek by row", "SELECT id FROM people WHERE (score, id) > (100, 7) ORDER BY score, id LIMIT 10",
         "people(score)", "people(score,id)"),
    case("form: equal to the greatest", "SELECT id FROM people WHERE score = (SELECT MAX(score) FROM people)",
         "people(score)"),
    case("form: greatest of all", "SELECT MAX(joined) FROM people", "people(joined)"),
    case("form: tenant first", "SELECT id FROM logins WHERE tenant = 7 AND ip = '10.0.77' AND at > '2024-02-01'",
         "logins(tenant,ip,at)", "logins(ip,tenant,at)"),
    case("form: of alternatives with one column in all", "SELECT id FROM logins WHERE (person = 7 AND kind = 3) OR"
         " (person = 9 AND kind = 4)", "logins(person,kind)", "logins(kind,person)", "logins(person)"),
    case("form: natural", "SELECT COUNT(*) FROM codes NATURAL JOIN (SELECT 'c77' AS code) x", "codes(code)"),
    case("decoy: json path that a generated column has", "SELECT id FROM people WHERE JSON_UNQUOTE(JSON_EXTRACT("
         "profile, '$.city')) = 'city77'"),
    case("decoy: json path alone", "SELECT COUNT(*) FROM people WHERE JSON_UNQUOTE(JSON_EXTRACT(profile,"
         " '$.plan')) = 'p77'"),
    case("decoy: expression", "SELECT id FROM people WHERE LOWER(email) = 'u77@example.com'"),
    case("decoy: whole partition", "SELECT SUM(value) FROM measures WHERE day BETWEEN '2024-01-01' AND"
         " '2024-12-31'"),
    case("decoy: order as the index goes", "SELECT id FROM people ORDER BY level DESC, height LIMIT 10"),
    case("decoy: prefix of a text", "SELECT id FROM people WHERE bio = 'bio of 77'"),
    case("decoy: text without an index", "SELECT id FROM people WHERE notes = 'note 77'"),
    case("decoy: collation of this side", "SELECT l.id FROM codes c JOIN logins l ON l.code = c.code WHERE l.id <"
         " 50"),
    case("decoy: text by one number of two", "SELECT id FROM people WHERE phone IN ('49000077', 49000078)"),
    case("decoy: date like", "SELECT COUNT(*) FROM people WHERE joined LIKE '2021-03-05%'"),
    case("decoy: number like", "SELECT COUNT(*) FROM people WHERE score LIKE '777%'"),
    case("decoy: window of all", "SELECT id, RANK() OVER (ORDER BY score DESC) AS r FROM people LIMIT 10"),
    case("decoy: tenant and the primary key", "SELECT id FROM logins WHERE tenant = 7 AND id > 5000 ORDER BY id"
         " LIMIT 20"),
    case("decoy: or of two tables", "SELECT COUNT(*) FROM codes c JOIN logins l ON l.id = c.id WHERE c.weight ="
         " 77 OR l.kind = 3"),
    case("decoy: negation", "SELECT COUNT(*) FROM people WHERE NOT (score = 77)"),
    case("decoy: between of columns", "SELECT COUNT(*) FROM people WHERE 77 BETWEEN width AND height"),
    case("decoy: one column by another", "SELECT COUNT(*) FROM people WHERE width = height"),
)  # fmt: skip
