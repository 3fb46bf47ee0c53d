"""A shop, for `benches/indexes.py`."""

from __future__ import annotations

from benches.plants.index_case import NUMBERS, Case, case

SCHEMA = (
    "CREATE DATABASE shop DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "USE shop",
    NUMBERS,
    "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer_id INT NOT NULL, status ENUM('new','paid'),"
    " code VARCHAR(20), created DATETIME, total INT, shop SMALLINT, flag TINYINT(1), kind VARCHAR(10),"
    " note VARCHAR(60), KEY k_shop_created (shop, created))",
    "INSERT INTO orders SELECT n + 1, n * 7919 % 20011, 1 + (n % 2), CONCAT('c', n * 31 % 150001),"
    " '2025-01-01' + INTERVAL n * 13 % 500000 MINUTE, n * 17 % 9973, n % 300, n % 2, CONCAT('k', n % 3),"
    " REPEAT('x', 40) FROM n WHERE n < 200000",
    "CREATE TABLE customers (id INT PRIMARY KEY, email VARCHAR(60), country CHAR(2), city VARCHAR(30), born DATE,"
    " code_bin VARCHAR(20) COLLATE utf8mb4_bin, level INT, KEY k_city (city), KEY k_city_country (city, country))",
    "INSERT INTO customers SELECT n, CONCAT('u', n, '@example.com'), CHAR(65 + n % 20, 65 + n % 7),"
    " CONCAT('city', n % 2000), '1950-01-01' + INTERVAL n * 11 % 20000 DAY, CONCAT('c', n), n % 50 FROM n"
    " WHERE n < 100000",
    "CREATE TABLE items (id INT PRIMARY KEY, order_id INT, product_id INT, qty INT, price INT, sku VARCHAR(20),"
    " KEY k_order (order_id), KEY k_order_id (order_id, id))",
    "INSERT INTO items SELECT n, n % 200000, n * 101 % 30011, n % 9, n % 1000, CONCAT('s', n % 60000) FROM n",
    "CREATE TABLE countries (code CHAR(2) PRIMARY KEY, name VARCHAR(30), region VARCHAR(20))",
    "INSERT INTO countries SELECT CHAR(65 + n % 20, 65 + n DIV 20), CONCAT('land', n), CONCAT('r', n % 5) FROM n"
    " WHERE n < 200",
    "CREATE TABLE log (id INT PRIMARY KEY AUTO_INCREMENT, at DATETIME, user_id INT, action VARCHAR(20))",
    "INSERT INTO log (at, user_id, action) SELECT NOW(), n * 7 % 3001, 'view' FROM n WHERE n < 3000",
    "ANALYZE TABLE orders, customers, items, countries, log",
)
#: `k_city` begins `k_city_country`, and InnoDB appends the primary key to `k_order`.
REDUNDANT = frozenset({"k_city", "k_order_id"})


CASES = (
    case("single: equality", "SELECT * FROM orders WHERE customer_id = 77", "orders(customer_id)"),
    case("single: text", "SELECT * FROM customers WHERE email = 'u77@example.com'", "customers(email)"),
    case("single: list", "SELECT * FROM orders WHERE code IN ('c5', 'c31', 'c62')", "orders(code)"),
    case("single: null", "SELECT * FROM orders WHERE code IS NULL", "orders(code)"),
    case("single: narrow range", "SELECT * FROM customers WHERE born BETWEEN '1980-01-01' AND '1980-01-05'",
         "customers(born)"),
    case("single: prefix", "SELECT * FROM customers WHERE email LIKE 'u777@%'", "customers(email)"),
    case("single: or of one column", "SELECT * FROM orders WHERE customer_id = 5 OR customer_id = 9",
         "orders(customer_id)"),
    case("single: count", "SELECT COUNT(*) FROM items WHERE sku = 's55'", "items(sku)"),
    case("single: subquery", "SELECT COUNT(*) FROM (SELECT id FROM items WHERE product_id = 101) x",
         "items(product_id)"),
    case("single: cte", "WITH x AS (SELECT * FROM items WHERE product_id = 101) SELECT COUNT(*) FROM x",
         "items(product_id)"),
    case("single: union", "SELECT id FROM orders WHERE customer_id = 5"
         " UNION ALL SELECT id FROM customers WHERE id = 5",
         "orders(customer_id)"),
    case("single: function on the value", "SELECT * FROM orders WHERE code = CONCAT('c', 31)", "orders(code)"),
    case("single: not only", "SELECT * FROM orders WHERE customer_id = 77 AND total <> 5", "orders(customer_id)"),
    case("composite: two equal", "SELECT * FROM items WHERE product_id = 101 AND sku = 's1'",
         "items(product_id,sku)", "items(sku,product_id)"),
    case("composite: equal and range",
         "SELECT * FROM orders WHERE customer_id = 77 AND created > '2025-11-01'", "orders(customer_id,created)"),
    case("composite: equal and prefix", "SELECT * FROM orders WHERE customer_id = 77 AND code LIKE 'c1%'",
         "orders(customer_id,code)"),
    case("composite: level and born", "SELECT * FROM customers WHERE level = 7 AND born > '2004-01-01'",
         "customers(level,born)"),
    case("composite: row", "SELECT * FROM items WHERE (product_id, qty) = (101, 1)",
         "items(product_id,qty)", "items(qty,product_id)"),
    case("order: limit", "SELECT id, total FROM orders ORDER BY created DESC LIMIT 10", "orders(created)"),
    case("order: equal and limit",
         "SELECT id FROM orders WHERE customer_id = 77 ORDER BY created LIMIT 3", "orders(customer_id,created)"),
    case("order: two columns", "SELECT id FROM customers ORDER BY level, born LIMIT 5", "customers(level,born)"),
    case("order: filter with little left", "SELECT * FROM items WHERE qty = 5 ORDER BY price LIMIT 10",
         "items(qty,price)"),
    case("order: max", "SELECT MAX(created) FROM orders WHERE customer_id = 77", "orders(customer_id,created)",
         "orders(customer_id)"),
    case("group: filtered", "SELECT sku, COUNT(*) FROM items WHERE product_id = 101 GROUP BY sku",
         "items(product_id,sku)", "items(product_id)"),
    case("group: all", "SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id", "orders(customer_id)"),
    case("group: distinct", "SELECT DISTINCT product_id FROM items", "items(product_id)"),
    case("covering: sum", "SELECT SUM(total) FROM orders WHERE customer_id BETWEEN 100 AND 400",
         "orders(customer_id)", "orders(customer_id,total)"),
    case("join: child", "SELECT c.email, o.total FROM customers c JOIN orders o ON o.customer_id = c.id"
         " WHERE c.id = 9",
         "orders(customer_id)"),
    case("join: left", "SELECT c.id, o.id FROM customers c LEFT JOIN orders o ON o.customer_id = c.id"
         " WHERE c.city = 'city5'", "orders(customer_id)"),
    case("join: exists", "SELECT id FROM customers c WHERE c.city = 'city7' AND EXISTS"
         " (SELECT 1 FROM orders o WHERE o.customer_id = c.id)", "orders(customer_id)"),
    case("join: both sides", "SELECT o.id FROM orders o JOIN items i ON i.order_id = o.id"
         " WHERE o.customer_id = 77",
         "orders(customer_id)"),
    case("join: with range", "SELECT o.id FROM customers c JOIN orders o ON o.customer_id = c.id"
         " WHERE c.city = 'city5' AND o.created > '2025-12-01'", "orders(customer_id,created)"),
    case("join: in", "SELECT id FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE city = 'city5')",
         "orders(customer_id)"),
    case("change: update", "UPDATE orders SET note = 'y' WHERE code = 'c31'", "orders(code)"),
    case("change: delete", "DELETE FROM items WHERE sku = 'none'", "items(sku)"),
    case("change: update by range", "UPDATE customers SET level = 3 WHERE born = '1980-01-05'", "customers(born)"),
    case("change: insert select", "INSERT INTO log (at, user_id, action) SELECT created, id, 'x' FROM orders"
         " WHERE customer_id = 77", "orders(customer_id)"),
    case("change: update join", "UPDATE orders o JOIN customers c ON o.customer_id = c.id SET o.note = 'z'"
         " WHERE c.id = 12", "orders(customer_id)"),
    Case("shared: one for two", (("SELECT * FROM orders WHERE customer_id = 5", 1),
                                 ("SELECT * FROM orders WHERE customer_id = 6 AND code = 'c1'", 1)),
         ("orders(customer_id,code)",)),
    case("decoy: enum", "SELECT SUM(total) FROM orders WHERE status = 'paid'"),
    case("decoy: flag", "SELECT SUM(total) FROM orders WHERE flag = 1"),
    case("decoy: three values", "SELECT SUM(total) FROM orders WHERE kind = 'k1'"),
    case("decoy: wide range", "SELECT SUM(total) FROM orders WHERE total > 500"),
    case("decoy: tiny", "SELECT * FROM countries WHERE name = 'land7'"),
    case("decoy: tiny group", "SELECT region, COUNT(*) FROM countries GROUP BY region"),
    case("decoy: or over two", "SELECT * FROM orders WHERE customer_id = 5 OR code = 'c31'"),
    case("decoy: or of ranges", "SELECT * FROM items WHERE price > 998 OR product_id < 2"),
    case("decoy: date()", "SELECT COUNT(*) FROM orders WHERE DATE(created) = '2025-06-01'"),
    case("decoy: lower()", "SELECT * FROM customers WHERE LOWER(email) = 'u5@example.com'"),
    case("decoy: sum", "SELECT * FROM orders WHERE total + 1 = 77"),
    case("decoy: cast", "SELECT COUNT(*) FROM orders WHERE code = 31"),
    case("decoy: wildcard", "SELECT COUNT(*) FROM customers WHERE email LIKE '%777@example.com'"),
    # Both vendors compare with the binary collation, so they can use the index of that side (EXPLAIN).
    case("collations: the binary side",
         "SELECT COUNT(*) FROM orders o JOIN customers c ON o.code = c.code_bin WHERE o.id < 20",
         "customers(code_bin)"),
    case("decoy: primary key", "SELECT * FROM orders WHERE id = 5"),
    case("decoy: served", "SELECT * FROM orders WHERE shop = 7 AND created > '2025-12-01'"),
    case("decoy: served by the first", "SELECT COUNT(*) FROM items WHERE order_id = 77"),
    case("decoy: served, unselective rest", "SELECT SUM(total) FROM orders WHERE shop = 7 AND flag = 1"),
    case("decoy: all rows", "SELECT SUM(total) FROM orders"),
    case("decoy: not equal", "SELECT COUNT(*) FROM orders WHERE customer_id <> 5"),
    case("decoy: not in", "SELECT COUNT(*) FROM orders WHERE customer_id NOT IN (1, 2)"),
    case("decoy: order by rand", "SELECT id FROM customers ORDER BY RAND() LIMIT 3"),
    case("decoy: mixed order", "SELECT id FROM orders ORDER BY created DESC, total ASC LIMIT 5"),
    case("decoy: having", "SELECT shop, SUM(total) s FROM orders GROUP BY shop HAVING s > 100"),
    case("decoy: insert", "INSERT INTO log (at, user_id, action) VALUES (NOW(), 5, 'view')"),
    Case("hot: written more than read", (("INSERT INTO log (at, user_id, action) VALUES (NOW(), 5, 'view')", 1500),
                                         ("SELECT COUNT(*) FROM log WHERE user_id = 7", 1))),
)  # fmt: skip
