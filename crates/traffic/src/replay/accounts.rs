//! As whom the replay logs in: passwords are never recorded, so all users become one account, or those of a file.

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base::door;
use base::error::AgentError;
use mysql::Options;
use mysql::options::{Password, parse_value};

/// Accounts by number; 0 is that of the arguments.
pub struct Accounts {
    pub options: Vec<Options>,
    numbers: HashMap<Vec<u8>, usize>,
}

impl Accounts {
    /// `map` has a section for each recorded user: `[recorded]`, then `user = ...` and `password = ...` of the account
    /// that plays its sessions.
    pub fn read(main: Options, map: Option<&Path>) -> anyhow::Result<Self> {
        let mut accounts = Self { options: vec![main], numbers: HashMap::new() };
        let Some(path) = map else { return Ok(accounts) };
        let unreadable = |error| AgentError::unreadable("the user map ", path, &error);
        let mut file = door::open(path, true).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        if found.is_file() && found.permissions().mode() & 0o077 != 0 {
            let message = format!("{}: others can read its passwords; chmod 600 it", path.display());
            return Err(AgentError::Refused(message).into());
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unreadable)?;
        for (recorded, user, password) in parse(&text)
            .map_err(|(line, reason)| AgentError::Named(format!("{}:{line}: {reason}", path.display())))?
        {
            let options = accounts.options[0].for_account(user, Password::new(password));
            accounts.numbers.insert(recorded.into_bytes(), accounts.options.len());
            accounts.options.push(options);
        }
        Ok(accounts)
    }

    /// The account that plays a recorded user's sessions.
    pub fn number_of(&self, user: &[u8]) -> usize {
        self.numbers.get(user).copied().unwrap_or(0)
    }
}

type Account = (String, String, String);

/// Recorded user, user, password of each section; the line and what is wrong with it.
fn parse(text: &str) -> Result<Vec<Account>, (usize, &'static str)> {
    let mut accounts: Vec<Account> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            let name = section.strip_suffix(']').ok_or((number + 1, "a section ends with ]"))?;
            accounts.push((name.to_owned(), name.to_owned(), String::new()));
            continue;
        }
        let (key, value) = line.split_once('=').ok_or((number + 1, "neither a section nor key = value"))?;
        let account = accounts.last_mut().ok_or((number + 1, "a key before the first section"))?;
        match key.trim() {
            "user" => account.1 = parse_value(value.trim()),
            "password" => account.2 = parse_value(value.trim()),
            _ => return Err((number + 1, "there are the keys user and password")),
        }
    }
    Ok(accounts)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sections_are_recorded_users() {
        let text = "# map\n[app]\nuser = load\npassword = \"a b#c\"\n[batch]\npassword=x\n";
        let account = |recorded: &str, user: &str, password: &str| {
            (recorded.to_owned(), user.to_owned(), password.to_owned())
        };
        assert_eq!(parse(text).unwrap(), [account("app", "load", "a b#c"), account("batch", "batch", "x")]);
        for (wrong, line) in [("user = a", 1), ("[a]\nhost = b", 2), ("[a\n", 1), ("\nx", 2)] {
            assert_eq!(parse(wrong).unwrap_err().0, line, "{wrong}");
        }
    }
}
