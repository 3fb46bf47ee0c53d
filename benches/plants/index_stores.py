"""Tables as a film store, a monitoring system, a data warehouse and a catalogue of attributes have them.

For `benches/indexes.py`: what each case lacks, or what has to be said of it, was written down before any was run.
"""

from __future__ import annotations

from benches.plants.index_case import NUMBERS, Case, case

SCHEMA = (
    "CREATE DATABASE stores DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "USE stores",
    NUMBERS,
    # A film store.
    "CREATE TABLE film (film_id SMALLINT UNSIGNED PRIMARY KEY, title VARCHAR(128), release_year YEAR, language_id"
    " TINYINT, length SMALLINT, rating ENUM('G','PG','R'), rate DECIMAL(4,2), KEY idx_title (title))",
    "INSERT INTO film SELECT n, CONCAT('FILM ', n % 4001), 1990 + n % 30, n % 6, 40 + n % 150, 1 + n % 3, n % 7"
    " FROM n"
    " WHERE n < 20000",
    "CREATE TABLE film_actor (actor_id SMALLINT UNSIGNED, film_id SMALLINT UNSIGNED, last_update TIMESTAMP,"
    " PRIMARY KEY (actor_id, film_id))",
    "INSERT INTO film_actor SELECT n % 3001, n % 19997, '2024-01-01' FROM n WHERE n < 100000",
    "CREATE TABLE inventory (inventory_id INT PRIMARY KEY, film_id SMALLINT UNSIGNED, store_id TINYINT)",
    "INSERT INTO inventory SELECT n, n % 20000, n % 2 FROM n WHERE n < 60000",
    "CREATE TABLE rental (rental_id INT PRIMARY KEY, rental_date DATETIME, inventory_id INT, customer_id SMALLINT"
    " UNSIGNED, return_date DATETIME, staff_id TINYINT, note VARCHAR(80), UNIQUE KEY u_rental (rental_date,"
    " inventory_id, customer_id), KEY idx_customer (customer_id))",
    "INSERT INTO rental SELECT n, '2023-01-01' + INTERVAL n * 7 MINUTE, n * 31 % 60000, n * 17 % 6007, IF(n % 401"
    " = 0, NULL, '2023-01-03' + INTERVAL n * 7 MINUTE), n % 2, REPEAT('r', 50) FROM n WHERE n < 200000",
    "CREATE TABLE payment (payment_id INT PRIMARY KEY, customer_id SMALLINT UNSIGNED, rental_id INT, amount"
    " DECIMAL(5,2), payment_date DATETIME, method VARCHAR(12), note VARCHAR(60), CONSTRAINT fk_rental FOREIGN KEY"
    " (rental_id) REFERENCES rental (rental_id))",
    "INSERT INTO payment SELECT n, n * 17 % 6007, n, n % 1000 / 100, '2023-01-01' + INTERVAL n * 7 MINUTE,"
    " CONCAT('m', n % 4), REPEAT('p', 40) FROM n WHERE n < 200000",
    # A monitoring system.
    "CREATE TABLE history_uint (itemid BIGINT UNSIGNED, clock INT, value BIGINT UNSIGNED, ns INT)",
    "INSERT INTO history_uint SELECT n % 2003, 1700000000 + n, n % 997, n FROM n WHERE n < 250000",
    "CREATE TABLE events (eventid BIGINT UNSIGNED PRIMARY KEY, source INT, object INT, objectid BIGINT UNSIGNED,"
    " clock INT, value INT, name VARCHAR(255), severity INT, KEY events_2 (source, object, clock))",
    "INSERT INTO events SELECT n, 0, n % 2, n * 13 % 9001, 1700000000 + n * 7, n % 2, CONCAT('problem ', n), n % 6"
    " FROM n WHERE n < 150000",
    "CREATE TABLE problem (eventid BIGINT UNSIGNED PRIMARY KEY, objectid BIGINT UNSIGNED, r_clock INT, r_eventid"
    " BIGINT UNSIGNED, severity INT)",
    "INSERT INTO problem SELECT n, n * 13 % 9001, IF(n % 997 = 0, 0, 1700000000 + n), IF(n % 997 = 0, NULL, n +"
    " 1),"
    " n % 6 FROM n WHERE n < 100000",
    # A warehouse.
    "CREATE TABLE lineitem (l_orderkey INT, l_linenumber INT, l_partkey INT, l_suppkey INT, l_quantity"
    " DECIMAL(15,2),"
    " l_price DECIMAL(15,2), l_returnflag CHAR(1), l_shipdate DATE, l_receiptdate DATE, l_shipmode CHAR(10),"
    " l_comment VARCHAR(44), PRIMARY KEY (l_orderkey, l_linenumber))",
    "INSERT INTO lineitem SELECT n DIV 4, n % 4, n * 37 % 20011, n * 11 % 1009, 1 + n % 50, n % 9999, CHAR(65 +"
    " n %"
    " 3), '1992-01-01' + INTERVAL n * 7 % 2500 DAY, '1992-01-15' + INTERVAL n * 7 % 2500 DAY, CONCAT('MODE', n"
    " % 7),"
    " REPEAT('c', 30) FROM n WHERE n < 300000",
    "CREATE TABLE orders (o_orderkey INT PRIMARY KEY, o_custkey INT, o_status CHAR(1), o_date DATE, o_priority"
    " CHAR(15), o_clerk CHAR(15))",
    "INSERT INTO orders SELECT n, n * 19 % 10007, CHAR(65 + n % 3), '1992-01-01' + INTERVAL n * 7 % 2400 DAY,"
    " CONCAT(n % 5, '-PRIO'), CONCAT('Clerk#', n % 1000) FROM n WHERE n < 75000",
    "CREATE TABLE part (p_partkey INT PRIMARY KEY, p_brand CHAR(10), p_container CHAR(10), p_size INT, p_name"
    " VARCHAR(55))",
    "INSERT INTO part SELECT n, CONCAT('Brand#', n % 25), CONCAT('BOX', n % 40), n % 50, CONCAT('part ', n) FROM n"
    " WHERE n < 20011",
    # Attributes and addresses.
    "CREATE TABLE entity_varchar (value_id INT PRIMARY KEY, attribute_id SMALLINT UNSIGNED, store_id SMALLINT"
    " UNSIGNED, entity_id INT UNSIGNED, value VARCHAR(255), UNIQUE KEY u_entity (entity_id, attribute_id,"
    " store_id))",
    "INSERT INTO entity_varchar SELECT n, n % 40, 0, n DIV 40, CONCAT('value ', n % 30011) FROM n WHERE n <"
    " 240000",
    "CREATE TABLE visits (id INT PRIMARY KEY, session_key VARCHAR(64) CHARACTER SET utf8mb3 COLLATE"
    " utf8mb3_general_ci, country VARCHAR(2), url VARCHAR(2000), at DATETIME(6), user_id INT, device JSON,"
    " device_id"
    " VARCHAR(40) AS (JSON_UNQUOTE(JSON_EXTRACT(device, '$.id'))) VIRTUAL, gone TINYINT NOT NULL, KEY k_url"
    " (url(30)))",
    "INSERT INTO visits (id, session_key, country, url, at, user_id, device, gone) SELECT n, CONCAT('s', n * 7 %"
    " 50021), CHAR(65 + n % 20, 65), CONCAT('https://www.example.com/catalogue/page/', n), '2025-01-01' +"
    " INTERVAL n"
    ' SECOND, n * 13 % 20011, CONCAT(\'{"id": "d\', n % 30011, \'", "os": "o\', n % 5003, \'"}\'), n % 499 = 0'
    " FROM n WHERE n < 120000",
    "CREATE TABLE sessions (id INT PRIMARY KEY, session_key VARCHAR(64), started DATETIME, agent VARCHAR(200))",
    "INSERT INTO sessions SELECT n, CONCAT('s', n), '2025-01-01' + INTERVAL n SECOND, REPEAT('a', 100) FROM n"
    " WHERE n"
    " < 50021",
    "CREATE TABLE log_days (id BIGINT, day DATE, host INT, level TINYINT, message VARCHAR(100), PRIMARY KEY (id,"
    " day)) PARTITION BY RANGE COLUMNS (day) (PARTITION a VALUES LESS THAN ('2025-02-01'), PARTITION b VALUES LESS"
    " THAN ('2025-03-01'), PARTITION c VALUES LESS THAN (MAXVALUE))",
    "INSERT INTO log_days SELECT n, '2025-01-01' + INTERVAL n % 90 DAY, n * 7 % 4001, n % 8, REPEAT('m', 60)"
    " FROM n"
    " WHERE n < 150000",
    "ANALYZE TABLE film, film_actor, inventory, rental, payment, history_uint, events, problem, lineitem, orders,"
    " part, entity_varchar, visits, sessions, log_days",
)
REDUNDANT = frozenset[str]()


def says(name: str, text: str, words: str, *lacks: str) -> Case:
    return Case(name, ((text, 1),), lacks, words)


CASES = (
    case("store: second of a composite key", "SELECT actor_id FROM film_actor WHERE film_id = 77",
         "film_actor(film_id)", "film_actor(film_id,actor_id)"),
    case("store: not returned", "SELECT rental_id, customer_id FROM rental WHERE return_date IS NULL",
         "rental(return_date)"),
    case("store: three tables", "SELECT r.rental_id, f.title FROM film f JOIN inventory i ON i.film_id = f.film_id"
         " JOIN rental r ON r.inventory_id = i.inventory_id WHERE f.title = 'FILM 77'", "inventory(film_id)",
         "rental(inventory_id)"),
    case("store: newest of a customer", "SELECT payment_id, amount FROM payment WHERE customer_id = 77 ORDER BY"
         " payment_date DESC LIMIT 5", "payment(customer_id,payment_date)"),
    case("store: sum by covering", "SELECT SUM(amount) FROM payment WHERE customer_id = 77",
         "payment(customer_id)", "payment(customer_id,amount)"),
    case("store: overdue", "SELECT COUNT(*) FROM rental WHERE return_date IS NULL AND rental_date < '2025-01-01'",
         "rental(return_date,rental_date)", "rental(return_date)"),
    case("store: per customer in a time", "SELECT customer_id, SUM(amount) FROM payment WHERE payment_date >="
         " '2023-06-01' AND payment_date < '2023-06-02' GROUP BY customer_id", "payment(payment_date)",
         "payment(payment_date,customer_id)"),
    case("store: order down and up alike", "SELECT film_id FROM film ORDER BY release_year DESC, film_id DESC"
         " LIMIT"
         " 20", "film(release_year)", "film(release_year,film_id)"),
    case("decoy store: served by the foreign key", "SELECT amount FROM payment WHERE rental_id = 77"),
    case("decoy store: title served", "SELECT film_id FROM film WHERE title = 'FILM 9' AND rating = 'PG'"),
    case("decoy store: first of a unique key", "SELECT rental_id FROM rental WHERE rental_date = '2023-01-01"
         " 07:00'"
         " AND inventory_id = 9"),
    case("decoy store: four methods", "SELECT AVG(amount) FROM payment WHERE method = 'm2'"),
    case("decoy store: average over all", "SELECT AVG(rate) FROM film WHERE length > 60"),
    says("decoy store: or over two", "SELECT payment_id FROM payment WHERE amount = 9.99 OR payment_date ="
         " '2023-06-01'", "OR over several"),
    says("decoy store: ends with", "SELECT COUNT(*) FROM film WHERE title LIKE '%77'", "wildcard"),
    case("store: change by a range", "UPDATE payment SET note = 'x' WHERE payment_date BETWEEN '2023-06-01' AND"
         " '2023-06-01 02:00'", "payment(payment_date)"),
    case("store: delete old", "DELETE FROM payment WHERE payment_date < '2023-01-01 01:00'",
         "payment(payment_date)"),
    case("monitor: last values", "SELECT clock, value FROM history_uint WHERE itemid = 77 AND clock > 1700100000"
         " ORDER BY clock DESC LIMIT 2", "history_uint(itemid,clock)"),
    case("monitor: housekeeping", "DELETE FROM history_uint WHERE itemid = 77 AND clock < 1700001000",
         "history_uint(itemid,clock)"),
    case("monitor: of one trigger", "SELECT eventid, value FROM events WHERE source = 0 AND object = 0 AND"
         " objectid ="
         " 78 ORDER BY eventid DESC LIMIT 1", "events(source,object,objectid)", "events(objectid,source,object)",
         "events(objectid,object,source)", "events(object,source,objectid)", "events(source,objectid,object)",
         "events(object,objectid,source)", "events(objectid)",
         "events(source,object,objectid,eventid)", "events(objectid,source,object,eventid)"),
    case("monitor: open ones", "SELECT eventid FROM problem WHERE r_eventid IS NULL AND severity = 3",
         "problem(r_eventid,severity)", "problem(severity,r_eventid)", "problem(r_eventid)"),
    case("monitor: joined to its end", "SELECT p.eventid, e.name FROM problem p JOIN events e ON e.eventid ="
         " p.eventid WHERE p.objectid = 78", "problem(objectid)"),
    case("decoy monitor: begun by the composite", "SELECT COUNT(*) FROM events WHERE source = 0 AND object = 1 AND"
         " clock > 1701040000"),
    case("decoy monitor: by the primary key", "SELECT name FROM events WHERE eventid IN (5, 77, 1009)"),
    says("decoy monitor: time from a function", "SELECT COUNT(*) FROM history_uint WHERE FROM_UNIXTIME(clock) >"
         " '2023-11-17'", "FROM_UNIXTIME|applied to the column"),
    case("warehouse: parts sold", "SELECT SUM(l_price) FROM lineitem WHERE l_partkey = 77", "lineitem(l_partkey)"),
    case("warehouse: small quantity of a brand", "SELECT SUM(l.l_price) FROM lineitem l JOIN part p ON"
         " p.p_partkey ="
         " l.l_partkey WHERE p.p_brand = 'Brand#7' AND p.p_container = 'BOX7' AND l.l_quantity < 3",
         "lineitem(l_partkey,l_quantity)", "lineitem(l_partkey)", "part(p_brand,p_container)",
         "part(p_container,p_brand)"),
    case("warehouse: orders of a customer in time", "SELECT o_orderkey FROM orders WHERE o_custkey = 77 AND o_date"
         " >= '1993-01-01'", "orders(o_custkey,o_date)"),
    case("warehouse: three tables", "SELECT o.o_date, SUM(l.l_price) FROM orders o JOIN lineitem l ON"
         " l.l_orderkey ="
         " o.o_orderkey JOIN part p ON p.p_partkey = l.l_partkey WHERE o.o_custkey = 77 AND p.p_size > 5 GROUP BY"
         " o.o_date", "orders(o_custkey)", "orders(o_custkey,o_date)"),
    case("warehouse: a day shipped", "SELECT l_shipmode, COUNT(*) FROM lineitem WHERE l_shipdate = '1995-03-05'"
         " GROUP"
         " BY l_shipmode", "lineitem(l_shipdate)", "lineitem(l_shipdate,l_shipmode)"),
    case("decoy warehouse: pricing summary", "SELECT l_returnflag, SUM(l_price) FROM lineitem WHERE l_shipdate <="
         " '1998-09-02' GROUP BY l_returnflag"),
    says("decoy warehouse: two columns of a row", "SELECT COUNT(*) FROM lineitem WHERE l_shipdate = l_receiptdate",
         "same row"),
    case("decoy warehouse: lines of an order", "SELECT l_linenumber FROM lineitem WHERE l_orderkey = 77 AND"
         " l_quantity"
         " > 5"),
    case("decoy warehouse: range of two columns", "SELECT COUNT(*) FROM lineitem WHERE l_shipdate <"
         " l_receiptdate"),
    case("attributes: by value", "SELECT entity_id FROM entity_varchar WHERE attribute_id = 7 AND value ="
         " 'value 77'",
         "entity_varchar(attribute_id,value)", "entity_varchar(value,attribute_id)"),
    case("attributes: join to itself", "SELECT a.entity_id FROM entity_varchar a JOIN entity_varchar b ON"
         " b.entity_id ="
         " a.entity_id AND b.attribute_id = 9 WHERE a.attribute_id = 7 AND a.value = 'value 7' AND b.value LIKE"
         " 'value 1%'", "entity_varchar(attribute_id,value)", "entity_varchar(value,attribute_id)"),
    case("decoy attributes: all of one entity", "SELECT attribute_id, value FROM entity_varchar WHERE entity_id"
         " = 77"
         " AND store_id = 0"),
    case("visits: mb4 beside mb3", "SELECT s.started FROM visits v JOIN sessions s ON s.session_key ="
         " v.session_key"
         " WHERE v.id = 77", "sessions(session_key)"),
    case("visits: mb3 by a literal", "SELECT id FROM visits WHERE session_key = 's77'", "visits(session_key)"),
    case("visits: generated of json", "SELECT id FROM visits WHERE device_id = 'd77'", "visits(device_id)"),
    case("visits: newest of a user", "SELECT MAX(at) FROM visits WHERE user_id = 77", "visits(user_id,at)",
         "visits(user_id)"),
    case("visits: few are gone", "SELECT id FROM visits WHERE gone = 1", "visits(gone)"),
    case("visits: next page", "SELECT id, at FROM visits WHERE at < '2025-01-01 05:00' ORDER BY at DESC, id"
         " DESC LIMIT"
         " 20", "visits(at)", "visits(at,id)"),
    case("visits: one a user", "SELECT COUNT(DISTINCT user_id) FROM visits", "visits(user_id)"),
    says("decoy visits: a short prefix", "SELECT id FROM visits WHERE url ="
         " 'https://www.example.com/catalogue/page/77'", "its first 30 characters"),
    says("decoy visits: json path", "SELECT id FROM visits WHERE JSON_UNQUOTE(JSON_EXTRACT(device, '$.os')) ="
         " 'o77'",
         "expression|JSON|applied"),
    case("days: one host of one month", "SELECT COUNT(*) FROM log_days WHERE host = 77 AND day >= '2025-02-01'"
         " AND day"
         " < '2025-03-01'", "log_days(host,day)", "log_days(host)"),
    case("decoy days: pruned", "SELECT COUNT(message) FROM log_days WHERE day < '2025-02-01'"),
    case("decoy days: one level", "SELECT COUNT(message) FROM log_days WHERE level = 3"),
)  # fmt: skip
