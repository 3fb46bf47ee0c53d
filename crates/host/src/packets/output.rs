//! JSON lines on standard output, each written when it is known.

use std::io::Write;

use serde::Serialize;

pub fn write(line: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text)?;
    Ok(stdout.flush()?)
}
