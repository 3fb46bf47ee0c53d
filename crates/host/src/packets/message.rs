//! What a request and its reply begin with; the rest is padding.

use serde::{Deserialize, Serialize};

/// Fits the head. A reply is never asked to be larger than one packet of an Ethernet.
pub const SMALLEST: usize = 32;
pub const LARGEST: usize = 1400;
const HEAD: usize = 30;

/// Without it the server answers nothing: it would multiply traffic towards any address that is written into a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token([u8; 16]);

impl TryFrom<String> for Token {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let number =
            Some(&text).filter(|text| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()));
        let number = number.and_then(|text| u128::from_str_radix(text, 16).ok());
        number.map(|number| Self(number.to_be_bytes())).ok_or("a token is 32 hexadecimal digits")
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        format!("{:032x}", u128::from_be_bytes(token.0))
    }
}

/// The head of a request, which comes back in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// When it should have been sent, by the client's clock.
    pub intended_ns: u64,
    pub step: u32,
    pub reply_bytes: u16,
}

impl Head {
    pub fn write(self, token: Token, into: &mut [u8]) {
        into[..16].copy_from_slice(&token.0);
        into[16..24].copy_from_slice(&self.intended_ns.to_be_bytes());
        into[24..28].copy_from_slice(&self.step.to_be_bytes());
        into[28..HEAD].copy_from_slice(&self.reply_bytes.to_be_bytes());
    }

    /// None if it is not ours.
    pub fn read(token: Token, from: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD] = from.first_chunk()?;
        (head[..16] == token.0).then(|| Self {
            intended_ns: u64::from_be_bytes(head[16..24].try_into().expect("8 bytes")),
            step: u32::from_be_bytes(head[24..28].try_into().expect("4 bytes")),
            reply_bytes: u16::from_be_bytes(head[28..HEAD].try_into().expect("2 bytes")),
        })
    }

    /// How long the reply is: what was asked for, within what is one packet.
    pub fn reply_length(self) -> usize {
        usize::from(self.reply_bytes).clamp(SMALLEST, LARGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, LARGEST, SMALLEST, Token};

    fn token(text: &str) -> Token {
        Token::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_head_comes_back() {
        let ours = token("000102030405060708090a0b0c0d0e0f");
        let head = Head { intended_ns: 1 << 60, step: 7, reply_bytes: 1000 };
        let mut packet = [0; SMALLEST];
        head.write(ours, &mut packet);
        assert_eq!(Head::read(ours, &packet), Some(head));
        assert_eq!(Head::read(token("ff0102030405060708090a0b0c0d0e0f"), &packet), None);
        assert_eq!(Head::read(ours, &packet[..29]), None);
        assert_eq!(String::from(ours), "000102030405060708090a0b0c0d0e0f");
    }

    #[test]
    fn no_reply_is_larger_than_a_packet() {
        let length = |reply_bytes| Head { intended_ns: 0, step: 0, reply_bytes }.reply_length();
        assert_eq!((length(0), length(300), length(u16::MAX)), (SMALLEST, 300, LARGEST));
    }
}
