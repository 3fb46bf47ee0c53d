//! Answers to the server's challenges. The algorithms are mysql_common's; this module decides which are used,
//! and over which channel.

use mysql_common::auth::plugins::{AuthProc, ChallengeResponsePlugin, Context, Response};
use mysql_common::packets::AuthPlugin;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;

use super::error::Error;
use super::options::Password;

/// How the password is protected in transit. Nobody else can read a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Plain,
    Tls,
    Socket,
}

/// One login: a plugin and its progress.
pub struct Login<'a> {
    password: &'a Password,
    channel: Channel,
    plugin: Vec<u8>,
    process: AuthProc,
    nonce: Vec<u8>,
}

impl<'a> Login<'a> {
    /// Starts with a plugin; the answer to the nonce comes next. Refuses unknown plugins, and plugins that would
    /// reveal the password: a false server could ask for one.
    pub fn start(
        plugin: &[u8],
        nonce: &[u8],
        password: &'a Password,
        channel: Channel,
    ) -> Result<Self, Error> {
        let parsed = AuthPlugin::from_bytes(plugin);
        let is_spoken = matches!(
            parsed,
            AuthPlugin::MysqlNativePassword
                | AuthPlugin::CachingSha2Password
                | AuthPlugin::Ed25519
                | AuthPlugin::Parsec
                | AuthPlugin::Sha256Password
        );
        let unknown = || {
            let name = String::from_utf8_lossy(plugin);
            Error::Login(format!(
                "the server wants the plugin {name:?}; spoken are mysql_native_password, caching_sha2_password, \
                 sha256_password, client_ed25519 and parsec"
            ))
        };
        if !is_spoken {
            return Err(unknown());
        }
        let process = parsed.init().map_err(|_| unknown())?;
        Ok(Self { password, channel, plugin: plugin.to_vec(), process, nonce: nonce.to_vec() })
    }

    /// The answer to the nonce.
    pub fn first_answer(&mut self) -> Result<Vec<u8>, Error> {
        let nonce = self.nonce.clone();
        Ok(self.step(&nonce)?.unwrap_or_default())
    }

    /// The answer to a further challenge; None if the server wants none.
    pub fn answer(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        // The sha256 plugins send either one byte or the key that the password is to be encrypted with.
        if matches!(self.process, AuthProc::CachingSha2Password(_) | AuthProc::Sha256Password(_))
            && challenge.len() > 1
        {
            let modulus_bytes =
                modulus_length(challenge).ok_or(Error::Malformed("the server's public key"))?;
            if self.password.bytes().len() + KEY_OVERHEAD > modulus_bytes {
                return Err(Error::Login("the password is too long for the server's public key".to_owned()));
            }
        }
        self.step(challenge)
    }

    fn step(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let context = LoginContext { password: self.password, channel: self.channel, nonce: &self.nonce };
        match self.process.run(context, challenge) {
            Ok(Response::Next { packet } | Response::Last { packet }) => Ok(packet),
            Err(cause) => {
                let plugin = String::from_utf8_lossy(&self.plugin);
                Err(Error::Login(format!("{plugin}: {cause}")))
            }
        }
    }
}

struct LoginContext<'a> {
    password: &'a Password,
    channel: Channel,
    nonce: &'a [u8],
}

impl Context for LoginContext<'_> {
    fn pass(&self) -> &[u8] {
        self.password.bytes()
    }

    fn is_ipc_transport(&self) -> bool {
        self.channel == Channel::Socket
    }

    fn is_tls_transport(&self) -> bool {
        self.channel == Channel::Tls
    }

    fn scramble(&self) -> &[u8] {
        self.nonce
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        None
    }
}

/// The part of a key's length that OAEP padding and the password's terminator need, rounded up.
const KEY_OVERHEAD: usize = 48;
/// 16384 bits: longer keys would only cost time.
const LONGEST_MODULUS: usize = 2048;

/// The bytes of an RSA public key's modulus; None for a key on which mysql_common would panic.
fn modulus_length(pem: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(pem).ok()?.trim();
    let body = text.strip_prefix("-----BEGIN PUBLIC KEY-----")?.strip_suffix("-----END PUBLIC KEY-----")?;
    if body.contains('-') {
        return None;
    }
    let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).ok()?;
    let (key, _) = element(0x30, &der)?;
    let (_algorithm, rest) = element(0x30, key)?;
    let (bits, _) = element(0x03, rest)?;
    let (numbers, _) = element(0x30, bits.strip_prefix(b"\0")?)?;
    let (modulus, rest) = element(0x02, numbers)?;
    let (exponent, _) = element(0x02, rest)?;
    let leading = modulus.iter().take_while(|byte| **byte == 0).count();
    let length = modulus.len() - leading;
    ((64..=LONGEST_MODULUS).contains(&length) && (1..=8).contains(&exponent.len())).then_some(length)
}

/// The content of a DER element with this tag, and the rest.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [first, length, rest @ ..] = der else { return None };
    if *first != tag {
        return None;
    }
    let (length, rest) = if *length < 0x80 {
        (usize::from(*length), rest)
    } else {
        let size = usize::from(length & 0x7F);
        if size > 3 || size > rest.len() {
            return None;
        }
        let (bytes, rest) = rest.split_at(size);
        (bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)), rest)
    };
    (length <= rest.len()).then(|| rest.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::{Channel, Login, modulus_length};
    use crate::options::Password;
    use proptest::prelude::{ProptestConfig, any, proptest};

    const KEY: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAxSKOcxiet8lLMn8ImyUE
bGGKob5EdRz/4wdiw12ED0GfKKTKhVnodFCfm1mdy7bKOX5QxL9skrvYodpW43eR
R5bfOzIgy1qIB8RYb6qOXRBw1oA4snBDqtUjDv/lbHLJN+IbzM4oU+e3Lt9rXyLX
VY289ewONPweXHqSCnTL91w+wkU1peIFV2QhZ+upUCdCtwOn5hnJPNgxtbklFoya
C8W3Z7Xx7He2QDJsEWAqX197efw0L6j8X8Tyd8Uwb7zUB1tfMGhHfm9EwejPAtzx
4GztQNtNMtGS2oGZLQBLV9hib4dDL92iiZeckg2LAf4GsJofLLR8mcHCRoqVbQJ1
YQIDAQAB
-----END PUBLIC KEY-----
";

    fn login<'a>(plugin: &[u8], password: &'a Password, channel: Channel) -> Login<'a> {
        Login::start(plugin, &[7; 20], password, channel).unwrap()
    }

    #[test]
    fn the_full_login_sends_the_password_only_where_nobody_sees_it() {
        let password = Password::new("secret");
        for channel in [Channel::Tls, Channel::Socket] {
            let mut login = login(b"caching_sha2_password", &password, channel);
            assert_eq!(login.first_answer().unwrap().len(), 32);
            assert_eq!(login.answer(&[4]).unwrap().unwrap(), b"secret\0");
        }
        let mut login = login(b"caching_sha2_password", &password, Channel::Plain);
        login.first_answer().unwrap();
        assert_eq!(login.answer(&[4]).unwrap().unwrap(), [2], "asks for the key");
        assert_eq!(login.answer(KEY.as_bytes()).unwrap().unwrap().len(), 256);
    }

    #[test]
    fn a_password_longer_than_the_key_is_an_error() {
        let password = Password::new("x".repeat(250));
        let mut login = login(b"caching_sha2_password", &password, Channel::Plain);
        login.first_answer().unwrap();
        login.answer(&[4]).unwrap();
        assert!(login.answer(KEY.as_bytes()).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn plugins_that_show_the_password_are_refused() {
        let password = Password::new("secret");
        for plugin in [&b"mysql_clear_password"[..], b"mysql_old_password", b"dialog", b"\xff"] {
            assert!(Login::start(plugin, &[7; 20], &password, Channel::Plain).is_err());
        }
    }

    #[test]
    fn only_a_whole_key_is_a_key() {
        assert_eq!(modulus_length(KEY.as_bytes()), Some(256));
        let both = KEY
            .replace("-----END", "-----BEGIN RSA PUBLIC KEY-----AA==-----END RSA PUBLIC KEY-----\n-----END");
        assert_eq!(modulus_length(both.as_bytes()), None);
        for cut in 0..KEY.len() - 1 {
            assert_eq!(modulus_length(&KEY.as_bytes()[..cut]), None, "{cut}");
        }
    }

    proptest! {
        // Encrypting with a key of 2048 bits takes its time without optimisation.
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn no_challenge_can_break_a_login(
            nonce in proptest::collection::vec(any::<u8>(), 0..40),
            challenge in proptest::collection::vec(any::<u8>(), 0..100),
            place in 0..KEY.len() - 30,
            garbage in "[A-Za-z0-9+/]{0,30}",
        ) {
            let password = Password::new("secret");
            // A key with a damaged middle is nearer to what could break the decoder than random bytes.
            let mut key = KEY.to_owned();
            key.replace_range(place..place + garbage.len(), &garbage);
            for plugin in [&b"mysql_native_password"[..], b"caching_sha2_password", b"sha256_password", b"client_ed25519", b"parsec"] {
                for challenge in [&challenge[..], key.as_bytes()] {
                    let Ok(mut login) = Login::start(plugin, &nonce, &password, Channel::Plain) else { continue };
                    let _ = login.first_answer();
                    let _ = login.answer(&[4]);
                    let _ = login.answer(challenge);
                }
            }
        }
    }
}
