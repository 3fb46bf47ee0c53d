//! /proc/interrupts.

/// The table: `cpus` are the numbers of the online CPUs in column order.
pub struct Interrupts<'a> {
    pub cpus: Vec<u32>,
    pub rows: Vec<Row<'a>>,
}

/// One interrupt: `irq` is a number or a name (`NMI`), `counts` one a CPU of `cpus`, `description` the rest.
pub struct Row<'a> {
    pub irq: &'a str,
    pub counts: Vec<u64>,
    pub description: &'a str,
}

/// Parses the file's text. Rows with fewer counts than CPUs (`ERR`, `MIS`) keep what they have.
pub fn parse(text: &str) -> Interrupts<'_> {
    let mut lines = text.lines();
    let cpus = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect::<Vec<u32>>();
    let rows = lines.filter_map(|line| parse_row(line, cpus.len())).collect();
    Interrupts { cpus, rows }
}

fn parse_row(line: &str, cpu_count: usize) -> Option<Row<'_>> {
    let (irq, mut rest) = line.split_once(':')?;
    let mut counts = Vec::with_capacity(cpu_count);
    while counts.len() < cpu_count {
        let trimmed = rest.trim_start();
        let word = trimmed.split_whitespace().next().unwrap_or_default();
        let Ok(count) = word.parse() else { break };
        counts.push(count);
        rest = &trimmed[word.len()..];
    }
    Some(Row { irq: irq.trim(), counts, description: rest.trim() })
}
