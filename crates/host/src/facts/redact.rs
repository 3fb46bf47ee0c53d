//! Removes secrets from command lines.

pub const REMOVED: &str = "<removed>";

/// Parts of an option's name that announce a secret. `sst_auth` of Galera is `user:password`; headers of
/// telemetry carry what its receiver lets in, and a proxy's address may have a user and a password in it.
const SECRET_NAMES: [&str; 10] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "credential",
    "sst_auth",
    "access_key",
    "filekey",
    "_headers",
    "http_proxy",
];

/// Parts of names that speak of passwords and tokens and hold none: rules for them, their plugins, sizes of
/// words. What is left of the name decides.
const RULES: [&str; 15] = [
    "validate_password",
    "sha2_password_",
    "sha256_password_",
    "native_password_",
    "old_passwords",
    "expired_password",
    "password_check",
    "password_errors",
    "password_history",
    "password_length",
    "password_lifetime",
    "password_require_current",
    "password_reuse",
    "password_validation",
    "token_size",
];

/// The arguments with everything that looks like a password replaced. Rather one value too many than one
/// too few.
pub fn command_line(arguments: &[String]) -> Vec<String> {
    let mut clean: Vec<String> = Vec::with_capacity(arguments.len());
    let mut value_follows = false;
    for argument in arguments {
        // An option that takes a value takes the next argument, even `-x`; one that takes none may be
        // followed by another option.
        if std::mem::take(&mut value_follows) && !argument.starts_with("--") {
            clean.push(REMOVED.to_owned());
            continue;
        }
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (argument.as_str(), None),
        };
        let is_secret = (argument.starts_with('-') || value.is_some()) && announces_secret(name);
        value_follows = is_secret && value.is_none();
        clean.push(match value {
            Some(value) if is_secret || holds_secret(value) => format!("{name}={REMOVED}"),
            None if holds_secret(argument) => REMOVED.to_owned(),
            _ => argument.clone(),
        });
    }
    clean
}

/// A server variable's value, or its replacement. A switch or an empty value is not a secret.
pub fn value<'a>(name: &str, value: &'a str) -> &'a str {
    let is_plain = ["", "ON", "OFF"].contains(&value);
    if !is_plain && (announces_secret(name) || holds_secret(value)) { REMOVED } else { value }
}

fn announces_secret(name: &str) -> bool {
    let name = RULES.iter().fold(name.to_lowercase().replace('-', "_"), |name, rule| name.replace(rule, " "));
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// A URL with a password in it, or a list of options one of which is a secret (`wsrep_provider_options`).
fn holds_secret(value: &str) -> bool {
    let has_url_password = value.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    });
    let has_secret_option = value
        .split([';', ',', '&', '?', ' '])
        .filter_map(|part| part.split_once('='))
        .any(|(name, _)| announces_secret(name));
    has_url_password || has_secret_option
}

#[cfg(test)]
mod tests {
    use super::{command_line, value};

    #[test]
    fn a_variable_keeps_its_value_unless_it_could_be_a_secret() {
        for (name, given, expected) in [
            ("report_password", "hunter2", "<removed>"),
            ("report_password", "", ""),
            ("old_passwords", "OFF", "OFF"),
            ("wsrep_sst_auth", "sst:hunter2", "<removed>"),
            ("wsrep_provider_options", "gcache.size=1G; socket.ssl_password=x", "<removed>"),
            ("s3_access_key", "AKIA", "<removed>"),
            ("file_key_management_filekey", "hunter2", "<removed>"),
            ("key_buffer_size", "8388608", "8388608"),
            ("validate_password.length", "8", "8"),
            ("validate_password_policy", "MEDIUM", "MEDIUM"),
            ("default_password_lifetime", "180", "180"),
            ("caching_sha2_password_digest_rounds", "5000", "5000"),
            ("sha256_password_private_key_path", "private_key.pem", "private_key.pem"),
            ("innodb_ft_min_token_size", "3", "3"),
            ("cracklib_password_check_dictionary", "/usr/share/cracklib", "/usr/share/cracklib"),
            ("password_reuse_check_interval", "365", "365"),
            ("hashicorp_key_management_token", "hvs.x", "<removed>"),
            ("authentication_ldap_simple_bind_root_pwd", "hunter2", "<removed>"),
            ("telemetry.otel_exporter_otlp_traces_headers", "authorization=Bearer x", "<removed>"),
            ("feedback_http_proxy", "u:hunter2@proxy:3128", "<removed>"),
            ("sql_mode", "STRICT_TRANS_TABLES,NO_ZERO_DATE", "STRICT_TRANS_TABLES,NO_ZERO_DATE"),
        ] {
            assert_eq!(value(name, given), expected, "{name}");
        }
    }

    #[test]
    fn secrets_go_and_the_rest_stays() {
        for (given, expected) in [
            ("mysqld --datadir=/data --port=3306", "mysqld --datadir=/data --port=3306"),
            ("mysqld --report-password=hunter2 --port=1", "mysqld --report-password=<removed> --port=1"),
            ("mysqld --report-password hunter2 --port=1", "mysqld --report-password <removed> --port=1"),
            ("mysqld --report-password --port=1", "mysqld --report-password --port=1"),
            ("mysqld --report-password -x --port=1", "mysqld --report-password <removed> --port=1"),
            ("mysqld --validate-password-length=12", "mysqld --validate-password-length=12"),
            ("mysqld --ngram-token-size 2", "mysqld --ngram-token-size 2"),
            ("mysqld MYSQL_PWD=hunter2", "mysqld MYSQL_PWD=<removed>"),
            ("mysqld --wsrep-sst-auth=sst:hunter2", "mysqld --wsrep-sst-auth=<removed>"),
            ("mysqld --wsrep_sst_auth=sst:hunter2", "mysqld --wsrep_sst_auth=<removed>"),
            (
                "mysqld --default-authentication-plugin=ed25519",
                "mysqld --default-authentication-plugin=ed25519",
            ),
            ("mysqld --keyring_hashicorp_secret_id=x=y", "mysqld --keyring_hashicorp_secret_id=<removed>"),
            (
                "mysqld --wsrep_provider_options=a=1;socket.ssl_password=x",
                "mysqld --wsrep_provider_options=<removed>",
            ),
            ("mysqld --key-buffer-size=8M", "mysqld --key-buffer-size=8M"),
            ("memcached -p 11211 -m 64", "memcached -p 11211 -m 64"),
            ("memcached --proxy=http://u:hunter2@host/", "memcached --proxy=<removed>"),
            ("memcached http://u:hunter2@host/", "memcached <removed>"),
        ] {
            let arguments: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(command_line(&arguments).join(" "), expected);
        }
    }
}
