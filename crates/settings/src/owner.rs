//! Whose a change is: `ID`, or `ID/part`.

/// The owner appears in environments, in file names and on lines of text.
pub fn parse(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+".contains(c);
    if text.is_empty() || text.len() > 200 || text.ends_with('/') || !text.chars().all(plain) {
        return Err("must be 1 to 200 letters, digits or any of - _ . / : @ +".into());
    }
    Ok(text.to_owned())
}

/// Whether `name` is `owner` itself or one of its parts.
pub fn belongs_to(name: &str, owner: &str) -> bool {
    name.strip_prefix(owner).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether two owners are the same controller, or parts of each other.
pub fn are_one(one: &str, other: &str) -> bool {
    belongs_to(one, other) || belongs_to(other, one)
}

/// The commands that settle what `owner` has open.
pub fn ways_out(owner: &str) -> String {
    match owner.strip_prefix("apply/") {
        Some(id) => {
            format!("`headrace apply --confirm {id}` keeps them, `headrace rollback --id {id}` undoes them")
        }
        None => "`headrace rollback --everyone` undoes them".to_owned(),
    }
}
