//! A value that is neither ours nor the original was set by another program or person: it is never overwritten.

use std::fmt;

/// Left as it is; the entry stays open until a person decides.
#[derive(Debug)]
pub struct Foreign(pub String);

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; it is left as it is", self.0)
    }
}

impl std::error::Error for Foreign {}

/// One value of an entry: what it was, what the change made it, and what it is now. None is NULL, or absent.
pub struct Value<'a> {
    pub name: &'a str,
    pub original: Option<&'a str>,
    pub now: Option<&'a str>,
}

/// Fail with `Foreign` if one of the values is neither the original nor what the change made it.
///
/// `became` is empty if the writer was killed before it could note that: then what it was asked to write decides.
pub fn check(
    values: &[Value<'_>],
    became: &[Option<String>],
    wrote: &str,
    same: impl Fn(&str, &str, &str) -> bool,
) -> anyhow::Result<()> {
    let is = |value: &Value<'_>, text: Option<&str>| match (text, value.now) {
        (Some(text), Some(now)) => same(value.name, text, now),
        (text, now) => text == now,
    };
    // The first value is restored first: once it is back, the others may be in transition.
    let Some(first) = values.first().filter(|first| !is(first, first.original)) else { return Ok(()) };
    if became.is_empty() {
        let is_ours = values.iter().any(|value| is(value, Some(wrote)));
        return if is_ours { Ok(()) } else { Err(first.foreign(Some(wrote))) };
    }
    for (value, ours) in values.iter().zip(became) {
        if !is(value, value.original) && !is(value, ours.as_deref()) {
            return Err(value.foreign(ours.as_deref()));
        }
    }
    Ok(())
}

impl Value<'_> {
    fn foreign(&self, ours: Option<&str>) -> anyhow::Error {
        let shown = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("{text:?}"));
        let (now, ours, original) = (shown(self.now), shown(ours), shown(self.original));
        Foreign(format!(
            "{} is {now}: neither what was set ({ours}) nor the original ({original})",
            self.name
        ))
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(name: &'a str, original: &'a str, now: &'a str) -> Value<'a> {
        Value { name, original: Some(original), now: Some(now) }
    }

    fn is_foreign(values: &[Value<'_>], became: &[&str], wrote: &str) -> bool {
        let became: Vec<Option<String>> = became.iter().map(|text| Some((*text).to_owned())).collect();
        match check(values, &became, wrote, |_, one, other| one == other) {
            Ok(()) => false,
            Err(error) => error.downcast_ref::<Foreign>().is_some(),
        }
    }

    #[test]
    fn only_ours_and_the_original_may_be_overwritten() {
        for (now, became, foreign) in [
            ("1", &["1"][..], false),
            ("60", &["1"], false),
            ("5", &["1"], true),
            ("5", &[], true),
            ("1", &[], false),
            // The kernel adjusted the value, and that was recorded.
            ("2", &["2"], false),
        ] {
            assert_eq!(is_foreign(&[value("a", "60", now)], became, "1"), foreign, "{now} {became:?}");
        }
    }

    #[test]
    fn a_companion_counts_until_the_first_is_back() {
        let became = ["none", "64"];
        for (first, companion, foreign) in
            [("none", "64", false), ("none", "128", false), ("none", "7", true), ("kyber", "7", false)]
        {
            let values = [value("scheduler", "kyber", first), value("nr_requests", "128", companion)];
            assert_eq!(is_foreign(&values, &became, "none"), foreign, "{first} {companion}");
        }
    }

    #[test]
    fn null_is_a_value() {
        let value = Value { name: "a", original: None, now: Some("x") };
        assert!(check(&[value], &[Some("y".into())], "y", |_, a, b| a == b).is_err());
        let value = Value { name: "a", original: None, now: None };
        assert!(check(&[value], &[Some("y".into())], "y", |_, a, b| a == b).is_ok());
    }
}
