//! /proc/meminfo.

/// Name and value of every line; values in kB become bytes, the HugePages counts stay numbers of pages.
pub fn parse(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let value: u64 = words.next()?.parse().ok()?;
        Some((name, if words.next() == Some("kB") { value * 1024 } else { value }))
    })
}
