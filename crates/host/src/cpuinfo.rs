//! /proc/cpuinfo.

/// The value of a key of the first processor. Keys differ between architectures.
pub fn first<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn only_the_first_processor_counts() {
        let text = "processor\t: 0\nmodel name\t: A: B\n\nprocessor\t: 1\nflags\t: fpu\n";
        assert_eq!(first(text, "model name"), Some("A: B"));
        assert_eq!(first(text, "flags"), None);
    }
}
