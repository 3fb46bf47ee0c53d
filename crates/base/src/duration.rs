//! Lengths of time as people write them.

use std::time::Duration;

/// A whole number with its unit: 500ms, 60s, 5m, 2h.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: Option<u64> = text[..digits].parse().ok();
    let milliseconds = match &text[digits..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    match (number, milliseconds) {
        (Some(number), Some(unit)) if number <= 1_000_000_000 => Ok(Duration::from_millis(number * unit)),
        _ => Err("give a whole number with ms, s, m or h, such as 500ms or 60s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_duration;
    use std::time::Duration;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for text in ["", "5", "s", "1.5s", "-1s", "99999999999999999999s", "1é", "1 s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
