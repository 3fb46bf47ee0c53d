//! /proc/PID/mountinfo.

/// One mount. `device` is major:minor, `root` the folder of the file system that is mounted (a bind mount's source).
#[derive(Debug, PartialEq)]
pub struct Mount {
    pub device: String,
    pub root: String,
    pub mount_point: String,
    pub options: Vec<String>,
    pub kind: String,
    pub source: String,
    pub super_options: Vec<String>,
}

/// Parses the file's text. A line that does not match proc(5) is left out.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    // Any number of optional fields end at a single hyphen.
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let mut right = right.split(' ');
    Some(Mount {
        device: left.next()?.to_owned(),
        root: unescape(left.next()?),
        mount_point: unescape(left.next()?),
        options: options(left.next()?),
        kind: right.next()?.to_owned(),
        source: unescape(right.next()?),
        super_options: options(right.next()?),
    })
}

fn options(text: &str) -> Vec<String> {
    text.split(',').map(unescape).collect()
}

fn unescape(text: &str) -> String {
    String::from_utf8_lossy(&unescaped(text.as_bytes())).into_owned()
}

/// A field as it is: the kernel writes space, tab, newline and backslash as `\040` and the like.
#[must_use]
pub fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = (byte == b'\\').then(|| tail.get(..3)).flatten();
        let octal = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        plain.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{parse, unescape};

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let text = "36 35 98:0 /sub /mnt/old\\040copies rw,noatime shared:1 master:2 - ext3 /dev/a\\134b rw,errors=continue\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].device, "98:0");
        assert_eq!(mounts[0].root, "/sub");
        assert_eq!(mounts[0].mount_point, "/mnt/old copies");
        assert_eq!(mounts[0].options, ["rw", "noatime"]);
        assert_eq!(mounts[0].kind, "ext3");
        assert_eq!(mounts[0].source, "/dev/a\\b");
        assert_eq!(mounts[0].super_options, ["rw", "errors=continue"]);
    }

    #[test]
    fn a_torn_line_is_left_out() {
        assert_eq!(parse("36 35 98:0 /\n"), []);
    }

    #[test]
    fn a_backslash_without_three_octal_digits_stays() {
        assert_eq!(unescape("\\04"), "\\04");
        assert_eq!(unescape("\\999 é"), "\\999 é");
    }
}
