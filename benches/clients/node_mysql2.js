// The cases by mysql2 for Node. A driver as benches/clients/spoken.py describes them.
"use strict";

const fs = require("fs");
const path = require("path");
const mysql = require("mysql2/promise");

const { HR_HOST: host, HR_PORT: port, HR_CLIENT: client, HR_TLS: tls, HR_FILE: file } = process.env;
const password = "secret";
const MIB = 1 << 20;
const LARGE = [15 * MIB, (1 << 24) - 1, 17 * MIB, 33 * MIB];

class Absent extends Error {}

const STATEMENTS = {};
for (const section of fs.readFileSync(path.join(__dirname, "statements.txt"), "utf8").split("== ").slice(1)) {
  const end = section.indexOf("\n");
  const parts = section.slice(end + 1).replace("{file}", file).split("\n%\n");
  STATEMENTS[section.slice(0, end)] = parts.map((part) => part.replace(/\n$/, ""));
}

function ofLength(length) {
  const frame = `SELECT ${length} AS size, MD5('')`;
  return frame.replace("''", () => "'" + "x".repeat(length - 1 - frame.length) + "'");
}

async function connect(name, options = {}) {
  const ssl = tls === "1" || name === "tls" ? { rejectUnauthorized: false } : undefined;
  const connection = await mysql.createConnection(
    { host, port: Number(port), user: `${client}_${name}`, password, database: client, ssl, ...options });
  connection.on("error", () => {}); // of a connection that was killed
  return connection;
}

async function ended(connection) {
  try { await connection.end(); } catch { connection.destroy(); }
}

async function using(name, options, work) {
  const connection = await connect(name, options);
  try { await work(connection); } finally { await ended(connection); }
}

async function tried(promise) {
  try { return await promise; } catch (error) { if (error instanceof Absent) throw error; return null; }
}

async function each(connection, statements) {
  for (const statement of statements) await connection.query(statement);
}

const MOMENT = "2024-02-29 23:59:58.123456";
const ROWS = [
  [-128, 255, -32768, 8388607, -2147483648, 4294967295, "-9223372036854775808", "18446744073709551615", 1.5, -2.25e300,
    "-12345678.901234", 5, "1000-01-01", MOMENT, MOMENT, "-838:59:59", 2155, "žluťoučký", "x".repeat(70000),
    Buffer.from([...Array(256).keys()]), '{"a": [1, null]}', "b", "a,c"],
  Array(23).fill(null),
  [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "0", false, new Date(Date.UTC(2024, 1, 29)), new Date(Date.UTC(1970, 0, 2)),
    new Date(Date.UTC(2037, 0, 1)), "0:0:0", 1901, "", "", Buffer.alloc(0), "[]", "a", ""],
];

const cases = {
  text: () => using("text", {}, async (connection) => {
    await each(connection, STATEMENTS.text);
    await connection.ping();
    await connection.query("INSERT INTO t (name, price) VALUES (?, ?)", ["a\0\n\\'", 1]);
  }),

  prepared: () => using("prepared", {}, async (connection) => {
    const [insert, select, count, absent, wrong] = STATEMENTS.prepared;
    for (const row of ROWS) await connection.execute(insert, row);
    for (const values of [["-9223372036854775808", 5], [0, null]]) await connection.execute(select, values);
    const statement = await connection.prepare(count);
    await statement.execute([]);
    await statement.execute([]);
    await statement.close();
    await tried(connection.execute(absent, [1]));
    await tried(connection.execute(wrong, [1]));
  }),

  prepared_sql: async () => { throw new Absent("it is the clients' without prepared statements"); },

  multi: () => using("multi", { multipleStatements: true }, async (connection) => {
    for (const statement of STATEMENTS.multi) await tried(connection.query(statement));
  }),

  local: () => using("local", { flags: ["LOCAL_FILES"] }, async (connection) => {
    for (const sql of STATEMENTS.local) {
      await connection.query({ sql, infileStreamFactory: (name) => fs.createReadStream(name) });
    }
  }),

  cursors: async () => { throw new Absent("mysql2 has no cursors of the server"); },

  unbuffered: () => using("unbuffered", {}, async (connection) => {
    const stream = connection.connection.query("SELECT * FROM many").stream();
    for await (const row of stream) if (row === null) break;
  }),

  change_user: () => using("change_user", {}, async (connection) => {
    await connection.query("SELECT 'before'");
    await connection.changeUser({ user: `${client}_change_user_b`, password, database: client });
    await connection.query("SELECT name FROM t WHERE id = 1");
    await connection.query("SELECT name FROM t WHERE id = 4");
  }),

  compression: () => using("compression", { compress: true }, async (connection) => {
    await connection.query("SELECT name FROM t WHERE id = 1");
    await connection.query("SELECT * FROM many");
    await connection.query(ofLength(100000));
    await connection.execute("SELECT name FROM t WHERE id = ?", [3]);
  }),

  tls: () => using("tls", {}, async (connection) => {
    await connection.query("SELECT name FROM t WHERE id = 1");
    await connection.execute("SELECT name FROM t WHERE id = ?", [3]);
  }),

  large: () => using("large", {}, async (connection) => {
    for (const length of LARGE) await connection.query(ofLength(length));
    await connection.execute("SELECT LENGTH(?), MD5('')", ["x".repeat(17 * MIB)]);
  }),

  kill: async () => {
    for (const how of ["KILL QUERY", "KILL"]) {
      const victim = await connect("kill");
      await using("kill", {}, async (killer) => {
        const sleeping = tried(victim.query("SELECT SLEEP(5)"));
        await new Promise((done) => setTimeout(done, 500));
        await killer.query(`${how} ${victim.threadId}`);
        await sleeping;
        if (how === "KILL QUERY") await victim.query("SELECT 'still here'");
      });
      await ended(victim);
    }
  },

  errors: async () => {
    await using("errors", {}, async (connection) => {
      for (const statement of STATEMENTS.errors) await tried(connection.query(statement));
    });
    for (const wrong of [{ password: "wrong" }, { database: "absent" }]) {
      const connection = await tried(connect("errors", wrong));
      if (connection) await ended(connection);
    }
  },
};

(async () => {
  for (const name of process.argv.slice(2)) {
    const said = { case: name };
    try {
      await cases[name]();
    } catch (error) {
      said[error instanceof Absent ? "absent" : "failed"] = String(error.message).slice(0, 300);
    }
    console.log(JSON.stringify(said));
  }
})();
