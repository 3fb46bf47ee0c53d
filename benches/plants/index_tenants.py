"""One database for many tenants, with wide rows, for `benches/indexes.py`: tenant 1 has half of all rows."""

from __future__ import annotations

from benches.plants.index_case import NUMBERS, Case, case

_WIDE = ", ".join(f"extra_{number} VARCHAR(20) DEFAULT 'none'" for number in range(24))
_TENANT = "IF(n % 2, 1, 2 + n DIV 2 % 499)"

SCHEMA = (
    "CREATE DATABASE tenants DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "USE tenants",
    NUMBERS,
    f"CREATE TABLE documents (id BIGINT PRIMARY KEY, tenant_id INT NOT NULL, folder_id INT, owner_id INT, state"
    f" ENUM('draft','live','gone'), title VARCHAR(80), slug VARCHAR(80), updated DATETIME, deleted_at DATETIME,"
    f" is_public TINYINT(1), size INT, body TEXT, {_WIDE}, KEY k_tenant (tenant_id), KEY k_tenant_folder"
    f" (tenant_id,"
    " folder_id), FULLTEXT KEY f_title (title), UNIQUE KEY u_tenant_slug (tenant_id, slug))",
    f"INSERT INTO documents (id, tenant_id, folder_id, owner_id, state, title, slug, updated, deleted_at,"
    f" is_public,"
    f" size, body) SELECT n, {_TENANT}, n % 700, n * 7 % 20011, 1 + n % 3, CONCAT('title ', n), CONCAT('slug-',"
    f" n),"
    " '2025-01-01' + INTERVAL n * 13 % 500000 MINUTE, IF(n % 100, NULL, NOW()), n % 2, n % 9973, REPEAT('x', 100)"
    " FROM n WHERE n < 120000",
    "CREATE TABLE members (tenant_id INT NOT NULL, user_id INT NOT NULL, role VARCHAR(10), email VARCHAR(60),"
    " joined DATETIME, PRIMARY KEY (tenant_id, user_id), KEY k_user (user_id), KEY k_user_tenant (user_id,"
    " tenant_id))",
    f"INSERT INTO members SELECT {_TENANT}, n, IF(n % 50, 'member', 'owner'), CONCAT('m', n, '@example.com'),"
    " '2020-01-01' + INTERVAL n HOUR FROM n WHERE n < 100000",
    "CREATE TABLE events (id BIGINT PRIMARY KEY AUTO_INCREMENT, tenant_id INT NOT NULL, document_id BIGINT, kind"
    " VARCHAR(12), at DATETIME, KEY k_at (at))",
    f"INSERT INTO events SELECT n + 1, {_TENANT}, n % 120000, CONCAT('kind', n % 4), '2025-01-01' + INTERVAL n"
    f" MINUTE"
    " FROM n WHERE n < 300000",
    "CREATE TABLE plans (id INT PRIMARY KEY, name VARCHAR(20), price INT)",
    "INSERT INTO plans SELECT n, CONCAT('plan', n), n * 10 FROM n WHERE n < 12",
    "CREATE TABLE shares (id INT PRIMARY KEY, document_id BIGINT NOT NULL, user_id INT NOT NULL, rights INT,"
    " KEY k_document (document_id), KEY k_document_user (document_id, user_id),"
    " CONSTRAINT fk_document FOREIGN KEY (document_id) REFERENCES documents (id))",
    "INSERT INTO shares SELECT n, n % 120000, n * 11 % 30011, n % 4 FROM n WHERE n < 200000",
    "ANALYZE TABLE documents, members, events, plans, shares",
)
#: `k_tenant` begins `k_tenant_folder`, the primary key's columns follow `k_user` anyway, and `k_document` begins
#: `k_document_user`, which serves the foreign key as well.
REDUNDANT = frozenset({"k_tenant", "k_user_tenant", "k_document"})

CASES = (
    case("tenant: newest", "SELECT id, title FROM documents WHERE tenant_id = 1 ORDER BY updated DESC LIMIT 20",
         "documents(tenant_id,updated)"),
    case("tenant: owner", "SELECT id, title FROM documents WHERE tenant_id = 1 AND owner_id = 77",
         "documents(tenant_id,owner_id)", "documents(owner_id,tenant_id)"),
    case("tenant: owner alone", "SELECT id FROM documents WHERE owner_id = 77", "documents(owner_id)"),
    case("tenant: since", "SELECT COUNT(*) FROM documents WHERE tenant_id = 1 AND updated > '2025-12-01'",
         "documents(tenant_id,updated)"),
    case("tenant: email", "SELECT user_id FROM members WHERE tenant_id = 1 AND email = 'm77@example.com'",
         "members(tenant_id,email)", "members(email,tenant_id)"),
    case("tenant: email anywhere", "SELECT tenant_id FROM members WHERE email = 'm77@example.com'",
         "members(email)"),
    case("tenant: joined", "SELECT user_id FROM members WHERE tenant_id = 1 ORDER BY joined DESC LIMIT 5",
         "members(tenant_id,joined)"),
    case("tenant: history", "SELECT * FROM events WHERE tenant_id = 9 AND document_id = 77",
         "events(tenant_id,document_id)", "events(document_id,tenant_id)"),
    case("tenant: of a document", "SELECT d.title, e.at FROM documents d JOIN events e ON e.document_id = d.id"
         " WHERE d.id = 77", "events(document_id)"),
    case("tenant: page", "SELECT id FROM events WHERE tenant_id = 9 AND at < '2025-03-01' ORDER BY at DESC"
         " LIMIT 10",
         "events(tenant_id,at)"),
    case("tenant: per kind", "SELECT kind, COUNT(*) FROM events WHERE tenant_id = 9 GROUP BY kind",
         "events(tenant_id,kind)", "events(tenant_id)"),
    case("tenant: purge", "DELETE FROM events WHERE tenant_id = 400 AND at < '2025-01-02'",
         "events(tenant_id,at)"),
    case("tenant: rename", "UPDATE documents SET title = 'new' WHERE owner_id = 5 AND folder_id = 35",
         "documents(owner_id,folder_id)", "documents(folder_id,owner_id)"),
    case("tenant: user's shares", "SELECT document_id FROM shares WHERE user_id = 77", "shares(user_id)"),
    case("tenant: shared with", "SELECT d.title FROM shares s JOIN documents d ON d.id = s.document_id"
         " WHERE s.user_id = 77", "shares(user_id)"),
    Case("tenant: one for two", (
        ("SELECT id FROM documents WHERE tenant_id = 1 AND owner_id = 77", 1),
        ("SELECT id FROM documents WHERE tenant_id = 1 AND owner_id = 78 AND updated > '2025-06-01'", 1)),
         ("documents(tenant_id,owner_id,updated)", "documents(owner_id,tenant_id,updated)")),
    case("decoy: slug is unique", "SELECT id FROM documents WHERE tenant_id = 1 AND slug = 'slug-77' AND"
         " owner_id = 3"),
    case("decoy: primary key and more", "SELECT role FROM members WHERE tenant_id = 1 AND user_id = 77 AND role"
         " = 'owner'"),
    case("decoy: small tenant", "SELECT id FROM documents WHERE tenant_id = 77 AND state = 'live'"),
    case("decoy: most rows", "SELECT SUM(size) FROM documents WHERE tenant_id = 1"),
    case("decoy: not deleted", "SELECT SUM(size) FROM documents WHERE deleted_at IS NULL"),
    case("decoy: public", "SELECT SUM(size) FROM documents WHERE is_public = 1"),
    case("decoy: full text", "SELECT id FROM documents WHERE MATCH (title) AGAINST ('title')"),
    case("decoy: title contains", "SELECT COUNT(*) FROM documents WHERE title LIKE '%777%'"),
    case("decoy: or over two", "SELECT id FROM documents WHERE owner_id = 5 OR folder_id = 9"),
    case("decoy: or over tables", "SELECT s.id FROM shares s JOIN documents d ON d.id = s.document_id"
         " WHERE d.id = 5 AND (s.rights = 9 OR d.size = 7)"),
    case("decoy: tiny", "SELECT * FROM plans WHERE name = 'plan3'"),
    case("decoy: tiny join", "SELECT p.name, d.title FROM plans p JOIN documents d ON d.id = p.id WHERE p.price"
         " = 50"),
    case("decoy: month", "SELECT COUNT(*) FROM events WHERE MONTH(at) = 3"),
    case("decoy: all but gone", "SELECT SUM(size) FROM documents WHERE state <> 'gone'"),
    case("decoy: far page of the primary key", "SELECT id FROM events ORDER BY id LIMIT 10 OFFSET 20000"),
    case("decoy: case", "SELECT SUM(CASE WHEN owner_id = 5 THEN size END) FROM documents"),
    case("decoy: group of all", "SELECT state, is_public, SUM(size) FROM documents GROUP BY state, is_public"),
    case("decoy: served with the order", "SELECT at FROM events WHERE at > '2025-07-20' ORDER BY at LIMIT 10"),
)  # fmt: skip
