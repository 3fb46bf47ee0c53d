//! User-defined operations: SQL with typed parameters, each operation with its weight.

use std::collections::HashSet;
use std::sync::Arc;

use rand::RngExt;
use serde::Deserialize;

use crate::reply::Reply;
use crate::script::{Choice, Random, Script, Step, Workload};
use engine::keys::{Distribution, Keys};
use mysql::request::{Requests, Statement, Type, Values};

/// The characters of random texts.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LONGEST_TEXT: usize = 16 << 20;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    pub operations: Vec<Operation>,
    #[serde(default = "yes")]
    pub prepared: bool,
    /// Statements that `drive load` runs, in order.
    #[serde(default)]
    pub setup: Vec<String>,
    /// sysbench's tables, which `drive load` creates before it runs `setup`.
    #[serde(default)]
    pub tables: usize,
    #[serde(default = "ten_thousand")]
    pub table_size: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    pub name: String,
    #[serde(default = "one")]
    pub weight: f64,
    /// Whether its statements run between BEGIN and COMMIT.
    #[serde(default)]
    pub transaction: bool,
    pub statements: Vec<Template>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    pub sql: String,
    #[serde(default)]
    pub parameters: Vec<Parameter>,
}

/// Where a value comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Parameter {
    Int {
        min: i64,
        max: i64,
        #[serde(default)]
        distribution: Distribution,
    },
    Float {
        min: f64,
        max: f64,
    },
    /// Letters and digits; lengths are drawn evenly.
    Text {
        min_length: usize,
        max_length: usize,
    },
    Choice {
        values: Vec<Constant>,
    },
    /// Unique over all clients of all drivers of the trial: each client's numbers differ by the number of clients.
    Sequence {
        #[serde(default)]
        start: i64,
    },
    /// The value of an earlier parameter of the same operation, counted from 0 over its statements.
    Same {
        r#as: usize,
    },
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum Constant {
    Int(i64),
    Float(f64),
    Text(String),
}

impl Constant {
    fn kind(&self) -> Type {
        match self {
            Constant::Int(_) => Type::Int,
            Constant::Float(_) => Type::Float,
            Constant::Text(_) => Type::Text,
        }
    }
}

/// A parameter that was checked and prepared.
enum Source {
    Int(Keys),
    Float {
        min: f64,
        max: f64,
    },
    Text {
        min: usize,
        max: usize,
    },
    Choice(Vec<Constant>),
    /// `place` is the index of each client's counter for it.
    Sequence {
        start: i64,
        place: usize,
    },
    Same(usize),
}

struct Prepared {
    /// Its index among the workload's statements; None is BEGIN or COMMIT.
    statement: Option<usize>,
    text: &'static str,
    sources: Vec<Source>,
}

struct Plan {
    operations: Vec<Vec<Prepared>>,
    /// Cumulative weights of the operations; the last is 1.
    shares: Vec<f64>,
    sequences: usize,
}

/// The workload; made by `workload`.
pub struct Sql {
    plan: Arc<Plan>,
    names: Vec<String>,
    statements: Vec<Statement>,
    is_prepared: bool,
}

/// Fails with the operation, the statement and the parameter that is wrong, and why.
pub fn workload(options: &Options) -> Result<Sql, String> {
    let mut statements = Vec::new();
    let mut plan = Plan { operations: Vec::new(), shares: Vec::new(), sequences: 0 };
    let mut names = HashSet::new();
    let total: f64 = options.operations.iter().map(|operation| operation.weight).sum();
    let mut reached = 0.0;
    for operation in &options.operations {
        let place = format!("operation {:?}", operation.name);
        if !names.insert(operation.name.as_str()) {
            return Err(format!("{place}: there are two of this name"));
        }
        if !(operation.weight > 0.0 && operation.weight.is_finite()) {
            return Err(format!("{place}: weight = {}: must be above 0", operation.weight));
        }
        reached += operation.weight;
        plan.shares.push(reached / total);
        let turns = prepare(operation, &mut statements, &mut plan.sequences)
            .map_err(|reason| format!("{place}, {reason}"))?;
        plan.operations.push(turns);
    }
    if plan.operations.is_empty() {
        return Err("operations: there must be one".to_owned());
    }
    Ok(Sql {
        plan: Arc::new(plan),
        names: options.operations.iter().map(|operation| operation.name.clone()).collect(),
        statements,
        is_prepared: options.prepared,
    })
}

fn prepare(
    operation: &Operation,
    statements: &mut Vec<Statement>,
    sequences: &mut usize,
) -> Result<Vec<Prepared>, String> {
    if operation.statements.is_empty() {
        return Err("statements: there must be one".to_owned());
    }
    let mut turns = Vec::new();
    // The types of the parameters so far: those that `same` may name.
    let mut types: Vec<Type> = Vec::new();
    for (number, template) in operation.statements.iter().enumerate() {
        let first = types.len();
        let mut sources = Vec::new();
        for (place, parameter) in template.parameters.iter().enumerate() {
            let (source, kind) = ready(parameter, &types, sequences)
                .map_err(|reason| format!("statement {number}, parameter {place}: {reason}"))?;
            sources.push(source);
            types.push(kind);
        }
        let statement = Statement::new(template.sql.as_str(), &types[first..])
            .map_err(|reason| format!("statement {number}: {reason}"))?;
        statements.push(statement);
        turns.push(Prepared { statement: Some(statements.len() - 1), text: "", sources });
    }
    if operation.transaction {
        turns.insert(0, Prepared { statement: None, text: "BEGIN", sources: Vec::new() });
        turns.push(Prepared { statement: None, text: "COMMIT", sources: Vec::new() });
    }
    Ok(turns)
}

fn ready(parameter: &Parameter, earlier: &[Type], sequences: &mut usize) -> Result<(Source, Type), String> {
    Ok(match parameter {
        Parameter::Int { min, max, distribution } => {
            (Source::Int(Keys::new(distribution, *min, *max)?), Type::Int)
        }
        Parameter::Float { min, max } if min <= max && (max - min).is_finite() => {
            (Source::Float { min: *min, max: *max }, Type::Float)
        }
        Parameter::Float { min, max } => return Err(format!("min = {min}, max = {max}: no range")),
        Parameter::Text { min_length, max_length } => {
            if min_length > max_length || *max_length > LONGEST_TEXT {
                return Err(format!(
                    "min_length = {min_length}, max_length = {max_length}: must ascend, up to {LONGEST_TEXT}"
                ));
            }
            (Source::Text { min: *min_length, max: *max_length }, Type::Text)
        }
        Parameter::Choice { values } => {
            let kind = values.first().ok_or("values: there must be one")?.kind();
            if values.iter().any(|value| value.kind() != kind) {
                return Err("values: all must be of one type".to_owned());
            }
            (Source::Choice(values.clone()), kind)
        }
        Parameter::Sequence { start } => {
            *sequences += 1;
            (Source::Sequence { start: *start, place: *sequences - 1 }, Type::Int)
        }
        Parameter::Same { r#as: place } => {
            let kind = earlier.get(*place).ok_or_else(|| {
                format!("as = {place}: before this one the operation has {} parameters", earlier.len())
            })?;
            (Source::Same(*place), *kind)
        }
    })
}

impl Workload for Sql {
    fn operations(&self) -> &[String] {
        &self.names
    }

    fn statements(&self) -> &[Statement] {
        &self.statements
    }

    fn is_prepared(&self) -> bool {
        self.is_prepared
    }

    fn requests(&self) -> f64 {
        let mut before = 0.0;
        let parts = self.plan.operations.iter().zip(&self.plan.shares).map(|(turns, reached)| {
            let share = reached - std::mem::replace(&mut before, *reached);
            share * turns.len() as f64
        });
        parts.sum()
    }

    fn script(&self, client: usize, clients: usize) -> Box<dyn Script> {
        Box::new(Client {
            plan: self.plan.clone(),
            operation: 0,
            next: 0,
            values: Vec::new(),
            text: Vec::new(),
            sequences: vec![client as i64; self.plan.sequences],
            stride: clients as i64,
        })
    }
}

/// A drawn value; the bytes of a text are in the client's buffer.
#[derive(Clone)]
enum Value {
    Int(i64),
    Float(f64),
    Text(std::ops::Range<usize>),
}

struct Client {
    plan: Arc<Plan>,
    operation: usize,
    next: usize,
    /// The values of the current operation, over its statements.
    values: Vec<Value>,
    text: Vec<u8>,
    sequences: Vec<i64>,
    stride: i64,
}

impl Client {
    fn draw(&mut self, source: &Source, random: &mut Random) -> Value {
        match source {
            Source::Int(keys) => Value::Int(keys.draw(random)),
            Source::Float { min, max } => Value::Float(min + random.random::<f64>() * (max - min)),
            Source::Text { min, max } => {
                let start = self.text.len();
                let length = random.random_range(*min..=*max);
                let letter = || LETTERS[random.random_range(0..LETTERS.len())];
                self.text.extend(std::iter::repeat_with(letter).take(length));
                Value::Text(start..self.text.len())
            }
            Source::Choice(values) => match &values[random.random_range(0..values.len())] {
                Constant::Int(value) => Value::Int(*value),
                Constant::Float(value) => Value::Float(*value),
                Constant::Text(text) => {
                    let start = self.text.len();
                    self.text.extend_from_slice(text.as_bytes());
                    Value::Text(start..self.text.len())
                }
            },
            Source::Sequence { start, place } => {
                let value = start.wrapping_add(self.sequences[*place]);
                self.sequences[*place] = self.sequences[*place].wrapping_add(self.stride);
                Value::Int(value)
            }
            Source::Same(place) => self.values[*place].clone(),
        }
    }

    fn give(&self, value: &Value, values: &mut Values<'_>) {
        match value {
            Value::Int(value) => values.int(*value),
            Value::Float(value) => values.float(*value),
            Value::Text(range) => values.text(&self.text[range.clone()]),
        };
    }
}

impl Script for Client {
    fn choose(&mut self, random: &mut Random) -> Choice {
        let unit: f64 = random.random();
        let shares = &self.plan.shares;
        self.operation = shares.partition_point(|share| *share <= unit).min(shares.len() - 1);
        Choice { operation: self.operation, pause_ns: None }
    }

    fn step(&mut self, reply: Option<&Reply<'_>>, requests: &mut Requests<'_>, random: &mut Random) -> Step {
        if reply.is_none() {
            self.next = 0;
            self.values.clear();
            self.text.clear();
        }
        let plan = self.plan.clone();
        let Some(turn) = plan.operations[self.operation].get(self.next) else { return Step::Done };
        self.next += 1;
        let Some(statement) = turn.statement else {
            requests.query(turn.text);
            return Step::Wait;
        };
        let first = self.values.len();
        for source in &turn.sources {
            let value = self.draw(source, random);
            self.values.push(value);
        }
        let mut values = requests.execute(statement);
        for value in &self.values[first..] {
            self.give(value, &mut values);
        }
        Step::Wait
    }
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

fn ten_thousand() -> i64 {
    10_000
}

#[cfg(test)]
mod tests {
    use super::{Options, workload};
    use crate::reply::Reply;
    use crate::script::{Random, Script, Step, Workload};
    use mysql::fields::Rows;
    use mysql::request::Requests;
    use rand::SeedableRng;
    use serde_json::json;

    fn options(operations: serde_json::Value) -> Options {
        serde_json::from_value(json!({"operations": operations, "prepared": false})).unwrap()
    }

    /// The SQL of one operation.
    fn statements(workload: &impl Workload, script: &mut dyn Script, random: &mut Random) -> Vec<String> {
        let rows = Rows::default();
        let mut found = Vec::new();
        loop {
            let (mut out, mut keeps_rows) = (Vec::new(), false);
            let mut requests = Requests::new(&mut out, workload.statements(), &[], &mut keeps_rows);
            let reply = Reply::new(0, 0, &rows);
            let is_first = found.is_empty();
            if script.step((!is_first).then_some(&reply), &mut requests, random) != Step::Wait {
                return found;
            }
            found.push(String::from_utf8(out[5..].to_vec()).unwrap());
        }
    }

    #[test]
    fn values_of_every_kind() {
        let workload = workload(&options(json!([{"name": "a", "transaction": true, "statements": [
            {"sql": "INSERT INTO t VALUES (?, ?, ?)", "parameters": [
                {"kind": "sequence", "start": 100},
                {"kind": "text", "min_length": 3, "max_length": 3},
                {"kind": "choice", "values": ["it's"]}]},
            {"sql": "SELECT ?, ?, ?", "parameters": [
                {"kind": "int", "min": 7, "max": 7},
                {"kind": "same", "as": 0},
                {"kind": "same", "as": 1}]},
            {"sql": "SELECT 1"}]}])))
        .unwrap();
        let mut random = Random::seed_from_u64(1);
        // The second of three clients: 101, 104, ...
        let mut script = workload.script(1, 3);
        for id in [101, 104] {
            script.choose(&mut random);
            let sql = statements(&workload, &mut *script, &mut random);
            assert_eq!(sql.len(), 5);
            assert_eq!((sql[0].as_str(), sql[4].as_str()), ("BEGIN", "COMMIT"));
            let text = sql[1].split('\'').nth(1).unwrap();
            assert_eq!(text.len(), 3);
            assert_eq!(sql[1], format!("INSERT INTO t VALUES ({id}, '{text}', 'it\\'s')"));
            assert_eq!(sql[2], format!("SELECT 7, {id}, '{text}'"));
        }
    }

    #[test]
    fn weights_are_shares() {
        let workload = workload(&options(json!([
            {"name": "a", "weight": 1, "statements": [{"sql": "SELECT 1"}]},
            {"name": "b", "weight": 3, "transaction": true, "statements": [{"sql": "SELECT 2"}]}])))
        .unwrap();
        assert!((workload.requests() - 2.5).abs() < 1e-9, "{}", workload.requests());
        let mut random = Random::seed_from_u64(1);
        let mut script = workload.script(0, 1);
        let of_b = (0..40_000).filter(|_| script.choose(&mut random).operation == 1).count();
        // The standard deviation is 87.
        assert!(of_b.abs_diff(30_000) < 450, "{of_b}");
    }

    #[test]
    fn errors_name_the_place() {
        let one = |parameters: serde_json::Value| json!([{"name": "a", "statements": [{"sql": "SELECT ?", "parameters": parameters}]}]);
        for (operations, expected) in [
            (json!([]), "operations: there must be one"),
            (one(json!([])), "operation \"a\", statement 0: \"SELECT ?\" has 1 parameters, not 0"),
            (
                one(json!([{"kind": "int", "min": 2, "max": 1}])),
                "parameter 0: there is no key between 2 and 1",
            ),
            (
                one(json!([{"kind": "same", "as": 0}])),
                "as = 0: before this one the operation has 0 parameters",
            ),
            (one(json!([{"kind": "choice", "values": []}])), "values: there must be one"),
            (one(json!([{"kind": "choice", "values": ["a", 1]}])), "values: all must be of one type"),
            (one(json!([{"kind": "float", "min": 2.0, "max": 1.0}])), "no range"),
            (one(json!([{"kind": "text", "min_length": 2, "max_length": 1}])), "must ascend"),
            (json!([{"name": "a", "statements": []}]), "statements: there must be one"),
            (json!([{"name": "a", "weight": 0, "statements": [{"sql": "DO 1"}]}]), "weight = 0"),
        ] {
            let error = workload(&options(operations)).err().unwrap();
            assert!(error.contains(expected), "{error}");
        }
    }
}
