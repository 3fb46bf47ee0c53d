//! `headrace-agent fingerprint`: statements in, their classes out.

use std::io::{self, BufRead, BufWriter, Write};

use anyhow::Context;
use serde_json::{Value, json};

use super::{Mode, class_id, fingerprint, is_read_only, tables, verb};

#[derive(clap::Args)]
pub struct FingerprintArguments {
    /// Whose classes
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Digits and hashes in the names of tables and databases are values
    #[arg(long)]
    fold_names: bool,
    /// Statements end with a NUL instead of a newline
    #[arg(short = '0', long)]
    null: bool,
}

/// Prints one JSON object for each statement on standard input.
///
/// # Errors
/// When standard input or output fails.
pub fn run(arguments: &FingerprintArguments) -> anyhow::Result<()> {
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mode = match arguments.mode {
        Mode::Strict if arguments.fold_names => Mode::Folded,
        mode => mode,
    };
    classes(io::stdin().lock(), output, mode, if arguments.null { 0 } else { b'\n' })
}

fn classes(mut input: impl BufRead, mut output: impl Write, mode: Mode, end: u8) -> anyhow::Result<()> {
    let (mut statement, mut found) = (Vec::new(), Vec::new());
    while input.read_until(end, &mut statement).context("cannot read the statements")? > 0 {
        if statement.last() == Some(&end) {
            statement.pop();
        }
        fingerprint(mode, &statement, false, &mut found);
        let tables: Vec<Value> = tables(&statement).iter().map(|table| text(table)).collect();
        let line = json!({
            "id": class_id(mode, &found),
            "fingerprint": text(&found),
            "verb": text(verb(&statement)),
            "tables": tables,
            "is_read_only": is_read_only(&statement),
        });
        writeln!(output, "{line}").context("cannot write the classes")?;
        statement.clear();
    }
    output.flush().context("cannot write the classes")
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::{Mode, classes};

    #[test]
    fn one_line_a_statement() {
        let mut output = Vec::new();
        classes(&b"SELECT c FROM t WHERE id=1\0delete\nfrom t"[..], &mut output, Mode::Strict, 0).unwrap();
        let output = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(
            lines[0],
            r#"{"id":"749da7219164c7f1","fingerprint":"select c from t where id = ?","verb":"select","tables":["t"],"is_read_only":true}"#
        );
        assert!(lines[1].contains(r#""fingerprint":"delete from t","verb":"delete""#), "{}", lines[1]);
        assert_eq!(lines.len(), 2);
    }
}
