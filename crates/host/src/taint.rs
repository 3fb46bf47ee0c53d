//! /proc/sys/kernel/tainted: what has happened to the kernel since it booted, one bit each.

use anyhow::Context;

use super::sample::sampler::Kind;
use super::sample::source::text;
use super::sample::values::Values;

pub const TAINT: Kind =
    Kind::host("taint", "flags of the kernel since it booted (/proc/sys/kernel/tainted)", |host| {
        text(&host.root, "proc/sys/kernel/tainted", write)
    });

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let flags = text.trim().parse().with_context(|| format!("the kernel's flags are {text:?}"))?;
    values.single("tainted", flags);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    #[test]
    fn a_number_or_an_error() {
        assert_eq!(collect(|values| write("128\n", values).unwrap())["tainted"], json!({"": 128}));
        assert!(write("many\n", &mut Values::default()).is_err());
    }
}
