//! The kernel's CPU lists: `0-3,8`.

/// The numbers of a list, in its order; `None` if the text is not a list.
pub fn parse(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn ranges_and_single_numbers() {
        assert_eq!(parse("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse("\n"), Some(vec![]));
        assert_eq!(parse("(null)"), None);
    }
}
