"""Statements as frameworks and people write them, for `benches/indexes.py`: Rails, Django, Hibernate, Laravel,
WordPress, Magento, and reports by hand.

What each lacks, and what has to be said of it, was written down before any of them was run.
"""

from __future__ import annotations

from benches.plants.index_case import NUMBERS, Case, case

SCHEMA = (
    "CREATE DATABASE press DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "CREATE DATABASE press_archive DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "USE press",
    NUMBERS,
    "CREATE TABLE users (id BIGINT PRIMARY KEY AUTO_INCREMENT, email VARCHAR(255), external_id VARCHAR(32),"
    " account_id INT, type VARCHAR(30), reset_token VARCHAR(64), created_at DATETIME(6), deleted_at DATETIME,"
    " tags VARCHAR(60), filler VARCHAR(100))",
    "INSERT INTO users SELECT n + 1, CONCAT('u', n, '@example.com'), n * 3, n * 7919 % 9001, IF(n % 50, 'person',"
    " 'bot'), CONCAT('tok', n), '2024-01-01' + INTERVAL n * 13 % 700000 MINUTE, IF(n % 9, NULL, '2025-01-01'),"
    " CONCAT(n % 97, ',', n % 89), REPEAT('f', 60) FROM n WHERE n < 120000",
    "CREATE TABLE `groups` (id BIGINT PRIMARY KEY, name VARCHAR(60))",
    "INSERT INTO `groups` SELECT n, CONCAT('g', n) FROM n WHERE n < 4000",
    "CREATE TABLE memberships (id BIGINT PRIMARY KEY, user_id BIGINT, group_id BIGINT, role VARCHAR(20),"
    " created_at DATETIME, filler VARCHAR(60))",
    "INSERT INTO memberships SELECT n, n * 31 % 120001, n * 17 % 4001, CONCAT('r', n % 401), '2024-01-01' +"
    " INTERVAL n * 7 % 700000 MINUTE, REPEAT('f', 40) FROM n WHERE n < 250000",
    "CREATE TABLE taggings (id BIGINT PRIMARY KEY, taggable_type VARCHAR(40), taggable_id BIGINT, tag_id INT)",
    "INSERT INTO taggings SELECT n, ELT(1 + n % 3, 'Post', 'User', 'Page'), n DIV 3, n % 501 FROM n WHERE n <"
    " 200000",
    "CREATE TABLE wp_posts (ID BIGINT UNSIGNED PRIMARY KEY, post_author BIGINT UNSIGNED, post_date DATETIME,"
    " post_status VARCHAR(20), post_type VARCHAR(20), post_name VARCHAR(200), post_parent BIGINT UNSIGNED,"
    " menu_order INT, post_title TEXT, filler VARCHAR(100), KEY post_name (post_name(191)),"
    " KEY type_status_date (post_type, post_status, post_date, ID))",
    "INSERT INTO wp_posts SELECT n, n % 211, '2020-01-01' + INTERVAL n * 7 % 2000000 MINUTE, IF(n % 10, 'publish',"
    " 'draft'), ELT(1 + n % 4, 'post', 'attachment', 'product', 'revision'), CONCAT('post-', n), n DIV 9, n % 20,"
    " CONCAT('title ', n), REPEAT('f', 60) FROM n WHERE n < 90000",
    "CREATE TABLE wp_postmeta (meta_id BIGINT UNSIGNED PRIMARY KEY, post_id BIGINT UNSIGNED, meta_key"
    " VARCHAR(255), meta_value LONGTEXT, KEY post_id (post_id), KEY meta_key (meta_key(191)))",
    "INSERT INTO wp_postmeta SELECT n, n DIV 3, ELT(1 + n % 3, '_price', '_sku', '_thumb'), n % 30011 FROM n WHERE"
    " n < 200000",
    "CREATE TABLE sales_order (entity_id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT, increment_id VARCHAR(50),"
    " customer_email VARCHAR(128), store_id SMALLINT UNSIGNED, status VARCHAR(32), grand_total DECIMAL(20,4),"
    " created_at TIMESTAMP NULL, updated_at TIMESTAMP NULL, quote_id INT, filler VARCHAR(100))",
    "INSERT INTO sales_order SELECT n + 1, LPAD(n, 9, '0'), CONCAT('u', n * 3 % 120000, '@example.com'), n % 41,"
    " ELT(1 + n * 13 % 97 MOD 4, 'complete', 'pending', 'holded', 'closed'), n * 7 % 100003, '2025-01-01"
    " 00:00:00' + INTERVAL n * 13 % 300000 MINUTE, '2025-01-01 04:00:00' + INTERVAL n * 17 % 300000 MINUTE, n *"
    " 11 % 150001, REPEAT('f', 60) FROM n WHERE n < 200000",
    "CREATE TABLE lines_of (order_id INT UNSIGNED, line_no INT, qty INT, PRIMARY KEY (order_id, line_no))",
    "INSERT INTO lines_of SELECT n DIV 2, n % 2, n % 9 FROM n WHERE n < 100000",
    "CREATE TABLE product_int (value_id INT PRIMARY KEY, attribute_id SMALLINT, store_id SMALLINT, entity_id INT,"
    " value INT, UNIQUE KEY eas (entity_id, attribute_id, store_id))",
    "INSERT INTO product_int SELECT n, 90 + n % 10, 0, n DIV 10, n * 7 % 50021 FROM n WHERE n < 200000",
    "CREATE TABLE jobs (id BIGINT PRIMARY KEY AUTO_INCREMENT, queue VARCHAR(60), payload LONGTEXT, attempts"
    " TINYINT, reserved_at INT UNSIGNED, available_at INT UNSIGNED)",
    "INSERT INTO jobs SELECT n + 1, CONCAT('q', n % 2003), REPEAT('p', 80), 0, IF(n % 7, 1700000000, NULL),"
    " 1700000000 FROM n WHERE n < 60000",
    "CREATE TABLE counters (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(60), hits INT, UNIQUE KEY (name))",
    "INSERT INTO counters (name, hits) SELECT CONCAT('n', n), 0 FROM n WHERE n < 20000",
    "CREATE TABLE archive (id INT UNSIGNED PRIMARY KEY, total DECIMAL(20,4))",
    "CREATE TABLE `order` (id INT PRIMARY KEY, `key` VARCHAR(20), `group` INT, `a b` INT, filler VARCHAR(60))",
    "INSERT INTO `order` SELECT n, CONCAT('k', n), n % 9001, n * 3 % 8009, REPEAT('f', 40) FROM n WHERE n < 80000",
    "CREATE TABLE press_archive.old_orders (id INT PRIMARY KEY, ref VARCHAR(20), user_id BIGINT, filler"
    " VARCHAR(60))",
    "INSERT INTO press_archive.old_orders SELECT n, CONCAT('r', n), n % 120000 + 1, REPEAT('f', 40) FROM n WHERE"
    " n < 90000",
    "CREATE VIEW active AS SELECT * FROM users WHERE deleted_at IS NULL",
    "CREATE TABLE events (id BIGINT, tenant_id INT, happened DATETIME, kind VARCHAR(20), filler VARCHAR(60),"
    " PRIMARY KEY (id, happened)) PARTITION BY RANGE COLUMNS (happened) (PARTITION p1 VALUES LESS THAN"
    " ('2025-01-01'), PARTITION p2 VALUES LESS THAN ('2025-07-01'), PARTITION p3 VALUES LESS THAN (MAXVALUE))",
    "INSERT INTO events SELECT n, n % 503, '2024-06-01' + INTERVAL n * 13 % 700000 MINUTE, CONCAT('k', n % 5003),"
    " REPEAT('f', 40) FROM n WHERE n < 200000",
    "CREATE TABLE legacy (id INT PRIMARY KEY, email VARCHAR(255) CHARACTER SET latin1, KEY k_email (email))",
    "INSERT INTO legacy SELECT n, CONCAT('u', n, '@example.com') FROM n WHERE n < 60000",
    "CREATE TABLE pages (id INT PRIMARY KEY, url VARCHAR(700), title TEXT, filler VARCHAR(100), KEY k_url"
    " (url(10)), FULLTEXT KEY f_title (title))",
    "INSERT INTO pages SELECT n, CONCAT('https://example.com/', n), CONCAT('word', n % 1009, ' of it'),"
    " REPEAT('f', 60) FROM n WHERE n < 60000",
    "CREATE TABLE children (id INT PRIMARY KEY, parent_id BIGINT, name VARCHAR(40), CONSTRAINT fk_parent FOREIGN"
    " KEY (parent_id) REFERENCES `groups` (id))",
    "INSERT INTO children SELECT n, n % 4000, CONCAT('c', n) FROM n WHERE n < 60000",
    # MariaDB has no ->>, no index of an expression, and no index of the members of an array.
    "CREATE TABLE docs (id INT PRIMARY KEY, doc JSON, sku VARCHAR(40) AS (JSON_UNQUOTE(JSON_EXTRACT(doc,"
    " '$.sku'))) STORED, filler VARCHAR(60), KEY k_sku (sku) /*!80017 , KEY k_number ((CAST(doc->>'$.n' AS"
    " UNSIGNED))) */) CHARACTER SET utf8mb4",
    "INSERT INTO docs (id, doc, filler) SELECT n, CONCAT('{\"sku\": \"s', n, '\", \"n\": ', n % 9001, ',"
    " \"email\": \"d', n, '@x.com\", \"tags\": [', n % 401, ',', n % 397, ']}'), REPEAT('f', 40) FROM n WHERE n"
    " < 60000",
    "ANALYZE TABLE users, `groups`, memberships, taggings, wp_posts, wp_postmeta, sales_order, lines_of,"
    " product_int, jobs, counters, `order`, press_archive.old_orders, events, legacy, pages, children, docs",
)  # fmt: skip
REDUNDANT = frozenset[str]()


def said(name: str, text: str, says: str, *lacks: str, on: str = "") -> Case:
    return Case(name, ((text, 1),), lacks, says, on)


CASES = (
    case("rails: soft deleted", "SELECT `users`.* FROM `users` WHERE `users`.`deleted_at` IS NULL AND"
         " `users`.`email` = 'u77@example.com' LIMIT 1", "users(email)", "users(email,deleted_at)"),
    case("rails: polymorphic", "SELECT `taggings`.* FROM `taggings` WHERE `taggings`.`taggable_id` = 77 AND"
         " `taggings`.`taggable_type` = 'Post'", "taggings(taggable_id,taggable_type)",
         "taggings(taggable_type,taggable_id)", "taggings(taggable_id)"),
    case("rails: has many through", "SELECT `groups`.* FROM `groups` INNER JOIN `memberships` ON `groups`.`id` ="
         " `memberships`.`group_id` WHERE `memberships`.`user_id` = 77", "memberships(user_id)",
         "memberships(user_id,group_id)"),
    case("rails: value as binary", "SELECT 1 AS one FROM `users` WHERE `users`.`reset_token` = BINARY 'tok77'"
         " LIMIT 1", "users(reset_token)"),
    case("decoy rails: in batches", "SELECT `users`.* FROM `users` WHERE `users`.`id` > 5000 ORDER BY `users`.`id`"
         " ASC LIMIT 1000"),
    case("rails: update by a subquery", "UPDATE `users` SET `users`.`type` = 'x' WHERE `users`.`id` IN (SELECT"
         " `memberships`.`user_id` FROM `memberships` WHERE `memberships`.`group_id` = 77) AND `users`.`id` < 400",
         "memberships(group_id)", "memberships(group_id,user_id)"),
    case("rails: count with having", "SELECT COUNT(*) AS count_all, `memberships`.`group_id` AS g FROM"
         " `memberships` GROUP BY `memberships`.`group_id` HAVING COUNT(*) > 1000", "memberships(group_id)"),
    case("django: exclude", "SELECT `users`.`id`, `users`.`email` FROM `users` WHERE (`users`.`account_id` = 77"
         " AND NOT (`users`.`type` = 'bot' AND `users`.`type` IS NOT NULL)) ORDER BY `users`.`created_at` DESC"
         " LIMIT 21",
         "users(account_id,created_at)", "users(account_id)"),
    case("django: exists", "SELECT 1 AS `a` FROM `memberships` WHERE (`memberships`.`group_id` = 9 AND"
         " `memberships`.`user_id` = 77) LIMIT 1", "memberships(group_id,user_id)",
         "memberships(user_id,group_id)"),
    case("django: iexact", "SELECT `users`.`id` FROM `users` WHERE `users`.`email` LIKE 'u77@example.com'",
         "users(email)"),
    said("decoy django: date", "SELECT COUNT(*) AS `__count` FROM `users` WHERE DATE(`users`.`created_at`) ="
         " '2024-03-03'", "DATE is applied"),
    case("django: day by between", "SELECT COUNT(*) FROM `users` WHERE `users`.`created_at` BETWEEN '2024-03-03"
         " 00:00:00' AND '2024-03-03 23:59:59.999999'", "users(created_at)"),
    said("decoy django: icontains", "SELECT `users`.`id` FROM `users` WHERE `users`.`email` LIKE '%77@%'",
         "wildcard"),
    case("django: not exists", "SELECT COUNT(*) FROM `groups` WHERE `groups`.`id` < 40"
         " AND NOT (EXISTS (SELECT 1 AS `a` FROM"
         " `memberships` U1 WHERE (U1.`group_id` = `groups`.`id` AND U1.`role` = 'r7') LIMIT 1))",
         "memberships(group_id,role)", "memberships(role,group_id)", "memberships(group_id)"),
    case("django: subquery as a column", "SELECT u.`id`, (SELECT m.`created_at` FROM `memberships` m WHERE"
         " m.`user_id` = u.`id` ORDER BY m.`created_at` DESC LIMIT 1) AS `last` FROM `users` u WHERE"
         " u.`account_id` = 77", "memberships(user_id,created_at)", "users(account_id)"),
    case("hibernate: by a text", "select o1_0.entity_id as entity_i1_0_, o1_0.grand_total as grand_to2_0_ from"
         " sales_order o1_0 where o1_0.increment_id='000000077'", "sales_order(increment_id)"),
    case("hibernate: fetch join", "select u1_0.id,m1_0.user_id,m1_0.id from users u1_0 left join memberships m1_0"
         " on u1_0.id=m1_0.user_id where u1_0.id=77", "memberships(user_id)"),
    case("hibernate: pages", "select o.entity_id from sales_order o where o.store_id=7 and o.status='complete'"
         " order by o.updated_at desc limit 40, 20", "sales_order(store_id,status,updated_at)",
         "sales_order(status,store_id,updated_at)"),
    case("decoy hibernate: ids of two columns", "select l.qty from lines_of l where (l.order_id, l.line_no) in"
         " ((77,1),(78,0))"),
    said("decoy hibernate: cast", "select u.id from users u where cast(u.external_id as unsigned) = 777",
         "applied to the column"),
    case("laravel: next job", "select * from `jobs` where `queue` = 'q1999' and ((`reserved_at` is null and"
         " `available_at` <= 1700000077) or (`reserved_at` <= 1699990000)) order by `id` asc limit 1 for update",
         "jobs(queue)", "jobs(queue,reserved_at)"),
    case("laravel: with", "select * from `memberships` where `memberships`.`user_id` in (1, 2, 3, 5, 8, 13)",
         "memberships(user_id)"),
    case("laravel: where has", "select * from `groups` where exists (select * from `memberships` where"
         " `groups`.`id` = `memberships`.`group_id` and `role` = 'r7')", "memberships(group_id,role)",
         "memberships(role,group_id)"),
    said("decoy laravel: json", "select `id` from `docs` where json_unquote(json_extract(`doc`, '$.\"email\"')) ="
         " 'd77@x.com'", "applied to the column"),
    case("laravel: count of pages", "select count(*) as aggregate from `sales_order` where `customer_email` ="
         " 'u77@example.com'", "sales_order(customer_email)"),
    case("decoy laravel: upsert", "insert into `counters` (`name`, `hits`) values ('n77', 1) on duplicate key"
         " update `hits` = `hits` + 1"),
    case("laravel: of one, not deleted", "select * from `users` where `users`.`account_id` = 5 and"
         " `users`.`account_id` is not null and `users`.`deleted_at` is null", "users(account_id)",
         "users(account_id,deleted_at)"),
    said("decoy wordpress: meta query", "SELECT SQL_CALC_FOUND_ROWS wp_posts.ID FROM wp_posts INNER JOIN"
         " wp_postmeta ON ( wp_posts.ID = wp_postmeta.post_id ) WHERE 1=1 AND ( ( wp_postmeta.meta_key ="
         " '_price' AND wp_postmeta.meta_value = '77' ) ) AND wp_posts.post_type = 'product' AND"
         " ((wp_posts.post_status = 'publish')) GROUP BY wp_posts.ID ORDER BY wp_posts.post_date DESC LIMIT 0,"
         " 10", "prefix"),
    said("decoy wordpress: meta as a number", "SELECT post_id FROM wp_postmeta WHERE meta_key = '_price' AND"
         " CAST(meta_value AS SIGNED) > 30009", "CAST is applied"),
    case("decoy wordpress: by name", "SELECT ID FROM wp_posts WHERE post_name = 'post-77' AND post_type = 'post'"),
    case("wordpress: children", "SELECT * FROM wp_posts WHERE post_parent = 77 AND post_type = 'attachment'"
         " ORDER BY menu_order ASC", "wp_posts(post_parent)", "wp_posts(post_parent,post_type)",
         "wp_posts(post_type,post_parent)"),
    case("decoy wordpress: archives", "SELECT YEAR(post_date) AS `year`, MONTH(post_date) AS `month`, count(ID) as"
         " posts FROM wp_posts WHERE post_type = 'post' AND post_status = 'publish' GROUP BY YEAR(post_date),"
         " MONTH(post_date)"),
    case("magento: products by a value", "SELECT `e`.`entity_id` FROM `product_int` AS `e` WHERE"
         " (`e`.`attribute_id` = '97') AND (`e`.`store_id` = 0) AND (`e`.`value` = 777)", "product_int(value)",
         "product_int(value,attribute_id,store_id)", "product_int(attribute_id,value,store_id)",
         "product_int(attribute_id,store_id,value)", "product_int(store_id,attribute_id,value)",
         "product_int(value,store_id,attribute_id)"),
    case("magento: changed since", "SELECT `main_table`.* FROM `sales_order` AS `main_table` WHERE"
         " (`main_table`.`updated_at` >= '2025-07-28 00:00:00') AND (`main_table`.`status` IN('pending',"
         " 'holded')) ORDER BY `main_table`.`updated_at` ASC LIMIT 50", "sales_order(status,updated_at)",
         "sales_order(updated_at)"),
    case("update join", "UPDATE sales_order o JOIN users u ON u.email = o.customer_email SET o.status = 'x' WHERE"
         " u.external_id = '2307'", "users(external_id)", "sales_order(customer_email)",
         "users(external_id,email)"),
    case("delete with order and limit", "DELETE FROM memberships WHERE role = 'r9' ORDER BY created_at LIMIT 10",
         "memberships(role,created_at)", "memberships(role)"),
    case("insert select", "INSERT IGNORE INTO archive (id, total) SELECT entity_id, grand_total FROM sales_order"
         " WHERE quote_id = 77", "sales_order(quote_id)"),
    case("replace select", "REPLACE INTO archive SELECT entity_id, grand_total FROM sales_order WHERE quote_id"
         " BETWEEN 70 AND 80", "sales_order(quote_id)"),
    case("insert select on duplicate", "INSERT INTO counters (name, hits) SELECT role, COUNT(*) FROM memberships"
         " WHERE group_id = 77 GROUP BY role ON DUPLICATE KEY UPDATE hits = VALUES(hits)", "memberships(group_id)",
         "memberships(group_id,role)"),
    case("quoted: reserved words", "SELECT `order`.`key` FROM `order` WHERE `order`.`group` = 77", "order(group)"),
    case("quoted: a blank", "SELECT `key` FROM `order` WHERE `a b` = 77", "order(a b)"),
    case("other case", "SELECT O.ENTITY_ID FROM sales_order AS O WHERE O.Quote_Id = 77", "sales_order(quote_id)"),
    case("other database", "SELECT a.id FROM press_archive.old_orders a JOIN users u ON u.id = a.user_id WHERE"
         " a.ref = 'r77'", "old_orders(ref)", "old_orders(ref,user_id)"),
    said("decoy view", "SELECT * FROM active WHERE account_id = 77", "is a view"),
    case("partitioned: two columns", "SELECT COUNT(*) FROM events WHERE happened >= '2025-02-01' AND happened <"
         " '2025-03-01' AND tenant_id = 7", "events(tenant_id,happened)"),
    case("partitioned: latest", "SELECT id FROM events WHERE kind = 'k77' ORDER BY happened DESC LIMIT 5",
         "events(kind,happened)", "events(kind)"),
    case("collations: from latin1", "SELECT u.id FROM users u JOIN legacy l ON l.email = u.email WHERE l.id = 77",
         "users(email)"),
    said("decoy collations: to latin1", "SELECT l.id FROM users u JOIN legacy l ON l.email = u.email WHERE u.id ="
         " 77", "collations differ"),
    said("decoy cast: a number", "SELECT id FROM users WHERE external_id = 2307", "converted"),
    case("prefix that all share", "SELECT id FROM pages WHERE url = 'https://example.com/77'", "pages(url)"),
    case("decoy: foreign key", "SELECT id FROM children WHERE parent_id = 77"),
    case("window", "SELECT id, ROW_NUMBER() OVER (PARTITION BY account_id ORDER BY created_at) AS r FROM users"
         " WHERE account_id = 77", "users(account_id)", "users(account_id,created_at)"),
    case("table expression and join", "WITH big AS (SELECT customer_email, SUM(grand_total) AS s FROM"
         " sales_order WHERE created_at >= '2025-06-01' AND created_at < '2025-06-02' GROUP BY customer_email)"
         " SELECT u.id FROM big JOIN users u ON u.email = big.customer_email WHERE big.s > 10",
         "sales_order(created_at)", "users(email)"),
    case("union of latest", "(SELECT id, created_at FROM users WHERE account_id = 7 ORDER BY created_at DESC"
         " LIMIT 5) UNION ALL (SELECT entity_id, created_at FROM sales_order WHERE store_id = 7 ORDER BY"
         " created_at DESC LIMIT 5) ORDER BY 2 DESC LIMIT 5",
         "users(account_id,created_at)", "sales_order(store_id,created_at)"),
    said("decoy: or of two columns", "SELECT id FROM users WHERE email = 'u77@example.com' OR external_id = '231'",
         "OR over"),
    said("decoy: order up and down", "SELECT id FROM users ORDER BY account_id ASC, created_at DESC LIMIT 10",
         "up and down"),
    case("decoy json: arrow that a generated column has", "SELECT id FROM docs WHERE doc->>'$.sku' = 's77'",
         on="mysql"),
    case("decoy json: index of the expression", "SELECT id FROM docs WHERE CAST(doc->>'$.n' AS UNSIGNED) = 77",
         on="mysql"),
    said("decoy json: member", "SELECT id FROM docs WHERE 77 MEMBER OF (doc->'$.tags')", "MEMBER OF", on="mysql"),
    said("decoy json: contains", "SELECT id FROM docs WHERE JSON_CONTAINS(doc, '77', '$.tags')", "JSON_CONTAINS"),
    case("since a day", "SELECT entity_id FROM sales_order WHERE created_at >= NOW() - INTERVAL 1 DAY",
         "sales_order(created_at)"),
    case("distinct by a join", "SELECT DISTINCT u.account_id FROM users u JOIN memberships m ON m.user_id = u.id"
         " WHERE m.group_id = 77", "memberships(group_id)", "memberships(group_id,user_id)"),
    case("equal to a subquery", "SELECT entity_id FROM sales_order WHERE quote_id = (SELECT MAX(quote_id) FROM"
         " sales_order WHERE store_id = 7)", "sales_order(quote_id)", "sales_order(store_id,quote_id)"),
    case("equal or null", "SELECT id FROM users WHERE external_id <=> '2307'", "users(external_id)"),
    said("decoy: a hint forbids it", "SELECT ID FROM wp_posts FORCE INDEX (type_status_date) WHERE post_type ="
         " 'post' AND post_parent = 77", "hint"),
    said("decoy: month", "SELECT SUM(grand_total) FROM sales_order WHERE MONTH(created_at) = 3", "MONTH is"
         " applied"),
    case("list and value", "SELECT id FROM users WHERE email IN ('u7@example.com', 'u8@example.com') AND type ="
         " 'person'", "users(email)", "users(email,type)", "users(type,email)"),
    said("decoy: arithmetic", "SELECT id FROM users WHERE account_id + 1 = 78", "applied to the column"),
    case("two ranges", "SELECT entity_id FROM sales_order WHERE created_at > '2025-07-25' AND store_id = 7 AND"
         " grand_total > 90000", "sales_order(store_id,created_at)", "sales_order(store_id,grand_total)"),
    case("like of a made pattern", "SELECT id FROM users WHERE email LIKE CONCAT('u77', '%')", "users(email)"),
    said("decoy: binary of the column", "SELECT id FROM users WHERE BINARY reset_token = 'tok77'",
         "applied to the column"),
    case("value of another collation", "SELECT id FROM users WHERE reset_token = 'tok77' COLLATE utf8mb4_bin",
         "users(reset_token)"),
    said("decoy: regular expression", "SELECT id FROM users WHERE email REGEXP '^u77@'", "REGEXP|RLIKE"),
    case("decoy: not in", "SELECT COUNT(*) FROM users WHERE type NOT IN ('bot', 'x')"),
    said("decoy: coalesce", "SELECT id FROM users WHERE COALESCE(external_id, 'none') = '2307'", "COALESCE"),
    said("decoy: find in set", "SELECT COUNT(*) FROM users WHERE FIND_IN_SET('7', tags)", "FIND_IN_SET"),
    case("decoy: full text", "SELECT id FROM pages WHERE MATCH(title) AGAINST('word77')"),
    case("parts: comma join", "SELECT u.id FROM (users u, memberships m) WHERE m.user_id = u.id AND m.role ="
         " 'r7' AND m.group_id = 77",
         "memberships(group_id,role)", "memberships(role,group_id)", "memberships(group_id)",
         "memberships(role,group_id,user_id)", "memberships(group_id,role,user_id)"),
    case("parts: using", "SELECT COUNT(*) FROM taggings t JOIN (SELECT 77 AS tag_id) x USING (tag_id)",
         "taggings(tag_id)"),
    case("parts: delete from using", "DELETE FROM m USING memberships m JOIN users u ON u.id = m.user_id WHERE"
         " u.external_id = '30'", "users(external_id)", "memberships(user_id)"),
    case("parts: locked", "SELECT id FROM jobs WHERE queue = 'q77' LIMIT 1 FOR UPDATE SKIP LOCKED", "jobs(queue)"),
    case("parts: words before the columns", "SELECT STRAIGHT_JOIN SQL_NO_CACHE u.id FROM users u JOIN"
         " memberships m ON m.user_id = u.id WHERE u.external_id = '2307'",
         "users(external_id)", "memberships(user_id)"),
    case("parts: one partition", "SELECT COUNT(*) FROM events PARTITION (p2) WHERE kind = 'k77'", "events(kind)"),
    case("parts: lateral", "SELECT g.id, x.c FROM `groups` g JOIN LATERAL (SELECT COUNT(*) AS c FROM memberships m"
         " WHERE m.group_id = g.id) x ON TRUE WHERE g.id < 9", "memberships(group_id)", on="mysql"),
)  # fmt: skip
