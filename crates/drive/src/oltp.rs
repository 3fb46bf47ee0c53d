//! sysbench's OLTP scripts, and the Pinterest 2015 study's mix, on sysbench's tables: the same statements in the same
//! order with parameters from the same ranges, so that the load is the same as sysbench's.

use std::sync::Arc;

use rand::RngExt;
use serde::Deserialize;

use crate::digits::{C_LENGTH, PAD_LENGTH, groups};
use crate::reply::Reply;
use crate::script::{Choice, Random, Script, Step, Workload};
use engine::keys::{Distribution, Keys};
use mysql::request::{Requests, Statement, Type};

/// Two clients deleted the same row, and both inserted it again.
const DUPLICATE_ENTRY: u16 = 1062;

/// Names, meanings and defaults are sysbench's. The default of the keys is sysbench 1.1's; that of 1.0 is `special`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub script: Name,
    pub tables: usize,
    pub table_size: i64,
    pub distribution: Distribution,
    pub prepared: bool,
    /// False leaves BEGIN and COMMIT out.
    pub transactions: bool,
    pub point_selects: usize,
    pub simple_ranges: usize,
    pub sum_ranges: usize,
    pub order_ranges: usize,
    pub distinct_ranges: usize,
    pub range_size: i64,
    pub index_updates: usize,
    pub non_index_updates: usize,
    pub delete_inserts: usize,
    /// A secondary index in place of the primary key.
    pub secondary: bool,
    /// An index on column k.
    pub create_secondary: bool,
    pub storage_engine: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            script: Name::ReadWrite,
            tables: 1,
            table_size: 10_000,
            distribution: Distribution::Uniform,
            prepared: true,
            transactions: true,
            point_selects: 10,
            simple_ranges: 1,
            sum_ranges: 1,
            order_ranges: 1,
            distinct_ranges: 1,
            range_size: 100,
            index_updates: 1,
            non_index_updates: 1,
            delete_inserts: 1,
            secondary: false,
            create_secondary: true,
            storage_engine: "innodb".to_owned(),
        }
    }
}

/// Which script; also the name of its operation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    PointSelect,
    ReadOnly,
    ReadWrite,
    WriteOnly,
    UpdateIndex,
    UpdateNonIndex,
    Insert,
    Delete,
    /// The Pinterest 2015 study's: an insert, a select and an update by key, each its own transaction.
    Study,
}

/// What one request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Begin,
    Commit,
    PointSelect,
    SimpleRange,
    SumRange,
    OrderRange,
    DistinctRange,
    UpdateIndex,
    UpdateNonIndex,
    /// With the insert after it: the row is inserted again under the same id.
    Delete,
    Insert,
    /// The server assigns the id.
    InsertNew,
}

impl Move {
    /// The statement on table number `table`; None if it is not a prepared statement.
    fn statement(self, table: usize) -> Option<(String, &'static [Type])> {
        let (before, after, types): (_, _, &[Type]) = match self {
            Move::Begin | Move::Commit => return None,
            Move::PointSelect => ("SELECT c FROM", "WHERE id=?", &[Type::Int]),
            Move::SimpleRange => ("SELECT c FROM", "WHERE id BETWEEN ? AND ?", &[Type::Int, Type::Int]),
            Move::SumRange => ("SELECT SUM(k) FROM", "WHERE id BETWEEN ? AND ?", &[Type::Int, Type::Int]),
            Move::OrderRange => {
                ("SELECT c FROM", "WHERE id BETWEEN ? AND ? ORDER BY c", &[Type::Int, Type::Int])
            }
            Move::DistinctRange => {
                ("SELECT DISTINCT c FROM", "WHERE id BETWEEN ? AND ? ORDER BY c", &[Type::Int, Type::Int])
            }
            Move::UpdateIndex => ("UPDATE", "SET k=k+1 WHERE id=?", &[Type::Int]),
            Move::UpdateNonIndex => ("UPDATE", "SET c=? WHERE id=?", &[Type::Text, Type::Int]),
            Move::Delete => ("DELETE FROM", "WHERE id=?", &[Type::Int]),
            Move::Insert | Move::InsertNew => (
                "INSERT INTO",
                "(id, k, c, pad) VALUES (?, ?, ?, ?)",
                &[Type::Int, Type::Int, Type::Text, Type::Text],
            ),
        };
        Some((format!("{before} sbtest{table} {after}"), types))
    }
}

/// One request of the operation. Statements of one group go to the same table.
#[derive(Clone, Copy, Debug)]
struct Turn {
    what: Move,
    /// The index of its statement for the first table; those for the other tables follow.
    statement: usize,
    chooses_table: bool,
}

/// The workload; made by `workload`.
pub struct Oltp {
    plan: Arc<Plan>,
    operations: Vec<String>,
    statements: Vec<Statement>,
    is_prepared: bool,
    has_transactions: bool,
}

struct Plan {
    turns: Vec<Turn>,
    tables: usize,
    keys: Keys,
    range_size: i64,
}

/// Fails with what is wrong with the options.
pub fn workload(options: &Options) -> Result<Oltp, String> {
    if options.tables == 0 {
        return Err("tables = 0: there must be one".to_owned());
    }
    let keys = Keys::new(&options.distribution, 1, options.table_size)
        .map_err(|reason| format!("table_size and distribution: {reason}"))?;
    let mut turns = Vec::new();
    let mut kinds: Vec<Move> = Vec::new();
    for (group, times) in groups_of(options) {
        for time in 0..times {
            for (place, what) in group.iter().enumerate() {
                let kind = if let Some(kind) = kinds.iter().position(|kind| kind == what) {
                    kind
                } else if what.statement(1).is_some() {
                    kinds.push(*what);
                    kinds.len() - 1
                } else {
                    0
                };
                let chooses_table = time == 0 && place == 0;
                turns.push(Turn { what: *what, statement: kind * options.tables, chooses_table });
            }
        }
    }
    if turns.iter().all(|turn| turn.what.statement(1).is_none()) {
        return Err("an operation without a statement: nothing is left of the script".to_owned());
    }
    let mut statements = Vec::new();
    for kind in &kinds {
        for table in 1..=options.tables {
            if let Some((sql, types)) = kind.statement(table) {
                statements.push(Statement::new(sql, types)?);
            }
        }
    }
    Ok(Oltp {
        plan: Arc::new(Plan { turns, tables: options.tables, keys, range_size: options.range_size }),
        operations: vec![operation(options.script).to_owned()],
        statements,
        is_prepared: options.prepared,
        has_transactions: options.transactions,
    })
}

/// The steps of an operation, in order, each with how often it is repeated on the same table.
fn groups_of(options: &Options) -> Vec<(&'static [Move], usize)> {
    let reads: [(&[Move], usize); 5] = [
        (&[Move::PointSelect], options.point_selects),
        (&[Move::SimpleRange], options.simple_ranges),
        (&[Move::SumRange], options.sum_ranges),
        (&[Move::OrderRange], options.order_ranges),
        (&[Move::DistinctRange], options.distinct_ranges),
    ];
    let writes: [(&[Move], usize); 3] = [
        (&[Move::UpdateIndex], options.index_updates),
        (&[Move::UpdateNonIndex], options.non_index_updates),
        (&[Move::Delete, Move::Insert], options.delete_inserts),
    ];
    let mut groups: Vec<(&[Move], usize)> = match options.script {
        Name::PointSelect => return vec![(&[Move::PointSelect], 1)],
        Name::UpdateIndex => return vec![(&[Move::UpdateIndex], options.index_updates)],
        Name::UpdateNonIndex => return vec![(&[Move::UpdateNonIndex], options.non_index_updates)],
        Name::Insert => return vec![(&[Move::InsertNew], 1)],
        Name::Delete => return vec![(&[Move::Delete], 1)],
        Name::Study => {
            return vec![(&[Move::InsertNew], 1), (&[Move::PointSelect], 1), (&[Move::UpdateIndex], 1)];
        }
        Name::ReadOnly => reads.to_vec(),
        Name::WriteOnly => writes.to_vec(),
        Name::ReadWrite => [&reads[..], &writes[..]].concat(),
    };
    if options.transactions {
        groups.insert(0, (&[Move::Begin], 1));
        groups.push((&[Move::Commit], 1));
    }
    groups
}

fn operation(script: Name) -> &'static str {
    match script {
        Name::PointSelect => "point_select",
        Name::ReadOnly => "read_only",
        Name::ReadWrite => "read_write",
        Name::WriteOnly => "write_only",
        Name::UpdateIndex => "update_index",
        Name::UpdateNonIndex => "update_non_index",
        Name::Insert => "insert",
        Name::Delete => "delete",
        Name::Study => "study",
    }
}

impl Workload for Oltp {
    fn operations(&self) -> &[String] {
        &self.operations
    }

    fn statements(&self) -> &[Statement] {
        &self.statements
    }

    fn is_prepared(&self) -> bool {
        self.is_prepared
    }

    fn requests(&self) -> f64 {
        self.plan.turns.len() as f64
    }

    fn may_lose_race(&self, code: u16) -> bool {
        // In a transaction the row stays locked from its delete to its insert.
        code == DUPLICATE_ENTRY && !self.has_transactions
    }

    fn script(&self, _client: usize, _clients: usize) -> Box<dyn Script> {
        Box::new(Client { plan: self.plan.clone(), next: 0, table: 0, id: 0 })
    }
}

struct Client {
    plan: Arc<Plan>,
    next: usize,
    table: usize,
    /// The id of the last deleted row.
    id: i64,
}

impl Script for Client {
    fn choose(&mut self, _random: &mut Random) -> Choice {
        Choice { operation: 0, pause_ns: None }
    }

    fn step(&mut self, reply: Option<&Reply<'_>>, requests: &mut Requests<'_>, random: &mut Random) -> Step {
        if reply.is_none() {
            self.next = 0;
        }
        let plan = &*self.plan;
        let Some(turn) = plan.turns.get(self.next) else { return Step::Done };
        self.next += 1;
        if turn.chooses_table {
            self.table = random.random_range(0..plan.tables);
        }
        let statement = turn.statement + self.table;
        match turn.what {
            Move::Begin => requests.query("BEGIN"),
            Move::Commit => requests.query("COMMIT"),
            Move::PointSelect | Move::UpdateIndex => {
                requests.execute(statement).int(plan.keys.draw(random));
            }
            Move::SimpleRange | Move::SumRange | Move::OrderRange | Move::DistinctRange => {
                let first = plan.keys.draw(random);
                requests.execute(statement).int(first).int(first + plan.range_size - 1);
            }
            Move::UpdateNonIndex => {
                let c = groups::<C_LENGTH>(random);
                requests.execute(statement).text(&c).int(plan.keys.draw(random));
            }
            Move::Delete => {
                self.id = plan.keys.draw(random);
                requests.execute(statement).int(self.id);
            }
            Move::Insert | Move::InsertNew => {
                let id = if turn.what == Move::Insert { self.id } else { 0 };
                let k = plan.keys.draw(random);
                let (c, pad) = (groups::<C_LENGTH>(random), groups::<PAD_LENGTH>(random));
                requests.execute(statement).int(id).int(k).text(&c).text(&pad);
            }
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, Options, workload};
    use crate::reply::Reply;
    use crate::script::{Random, Step, Workload};
    use mysql::fields::Rows;
    use mysql::request::Requests;
    use rand::SeedableRng;

    /// The statements of one operation as text, with numbers and digits left out.
    fn one_operation(options: &Options) -> Vec<String> {
        let workload = workload(&Options { prepared: false, ..options.clone() }).unwrap();
        let mut script = workload.script(0, 1);
        let mut random = Random::seed_from_u64(1);
        let rows = Rows::default();
        let mut statements = Vec::new();
        script.choose(&mut random);
        loop {
            let (mut out, mut keeps_rows) = (Vec::new(), false);
            let mut requests = Requests::new(&mut out, workload.statements(), &[], &mut keeps_rows);
            let reply = Reply::new(0, 0, &rows);
            let is_first = statements.is_empty();
            match script.step((!is_first).then_some(&reply), &mut requests, &mut random) {
                Step::Wait => {
                    let sql = String::from_utf8(out[5..].to_vec()).unwrap();
                    statements.push(sql.replace(|c: char| c.is_ascii_digit(), "").replace('-', ""));
                }
                Step::Done => return statements,
                Step::Failed(what) => panic!("{what}"),
            }
        }
    }

    fn count(statements: &[String], start: &str) -> usize {
        statements.iter().filter(|sql| sql.starts_with(start)).count()
    }

    #[test]
    fn read_write_is_what_sysbench_does() {
        let statements = one_operation(&Options::default());
        assert_eq!(statements.len(), 20);
        assert_eq!((statements[0].as_str(), statements[19].as_str()), ("BEGIN", "COMMIT"));
        assert_eq!(statements[1], "SELECT c FROM sbtest WHERE id=");
        assert_eq!(statements[11], "SELECT c FROM sbtest WHERE id BETWEEN  AND ");
        assert_eq!(statements[12], "SELECT SUM(k) FROM sbtest WHERE id BETWEEN  AND ");
        assert_eq!(statements[13], "SELECT c FROM sbtest WHERE id BETWEEN  AND  ORDER BY c");
        assert_eq!(statements[14], "SELECT DISTINCT c FROM sbtest WHERE id BETWEEN  AND  ORDER BY c");
        assert_eq!(statements[15], "UPDATE sbtest SET k=k+ WHERE id=");
        assert_eq!(statements[16], "UPDATE sbtest SET c='' WHERE id=");
        assert_eq!(statements[17], "DELETE FROM sbtest WHERE id=");
        assert_eq!(statements[18], "INSERT INTO sbtest (id, k, c, pad) VALUES (, , '', '')");
    }

    #[test]
    fn the_other_scripts() {
        let of = |script| one_operation(&Options { script, ..Options::default() });
        assert_eq!(of(Name::PointSelect).len(), 1);
        assert_eq!((of(Name::ReadOnly).len(), count(&of(Name::ReadOnly), "SELECT")), (16, 14));
        assert_eq!((of(Name::WriteOnly).len(), count(&of(Name::WriteOnly), "UPDATE")), (6, 2));
        assert_eq!(of(Name::UpdateIndex), ["UPDATE sbtest SET k=k+ WHERE id="]);
        assert_eq!(of(Name::UpdateNonIndex), ["UPDATE sbtest SET c='' WHERE id="]);
        assert_eq!(of(Name::Delete), ["DELETE FROM sbtest WHERE id="]);
        assert_eq!(count(&of(Name::Insert), "INSERT"), 1);
        let study = of(Name::Study);
        assert_eq!(study.len(), 3);
        for start in ["INSERT", "SELECT", "UPDATE"] {
            assert_eq!(count(&study, start), 1);
        }
        let bare = one_operation(&Options { transactions: false, ..Options::default() });
        assert_eq!((bare.len(), count(&bare, "BEGIN")), (18, 0));
    }

    #[test]
    fn statements_are_made_once_a_table() {
        let workload = workload(&Options { tables: 3, ..Options::default() }).unwrap();
        // Nine kinds of statements on three tables.
        assert_eq!((workload.statements().len(), workload.requests()), (27, 20.0));
        assert!(workload.statements()[26].sql().contains("sbtest3"));
    }

    #[test]
    fn what_cannot_be_driven_is_refused() {
        for options in [
            Options { tables: 0, ..Options::default() },
            Options { table_size: 0, ..Options::default() },
            Options { script: Name::UpdateIndex, index_updates: 0, ..Options::default() },
        ] {
            assert!(workload(&options).is_err());
        }
    }
}
