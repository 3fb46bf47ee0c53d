//! Folded stacks: frames from the outermost to the innermost, joined by semicolons, and how often each was seen.

use std::collections::BTreeMap;

/// Marks a frame of the kernel, as flame graphs expect it.
pub const KERNEL: &str = "_[k]";
/// Names of templates can be very long.
const LONGEST_NAME: usize = 300;

#[derive(Debug, Default)]
pub struct Folded {
    pub counts: BTreeMap<String, u64>,
    pub samples: u64,
}

impl Folded {
    /// Adds one stack, innermost frame first, as all tools print it.
    pub fn add<'a>(&mut self, root: &str, frames: impl DoubleEndedIterator<Item = &'a String>) {
        let mut line = clean(root);
        for frame in frames.rev() {
            line.push(';');
            line.push_str(frame);
        }
        *self.counts.entry(line).or_default() += 1;
        self.samples += 1;
    }
}

/// A name that can break neither the format nor a terminal: a program chooses its own symbols and thread names.
pub fn clean(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.trim().chars().take(LONGEST_NAME) {
        match character {
            ';' => text.push(':'),
            '\u{061C}'
            | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2066}'..='\u{2069}'
            | '\u{FEFF}' => {
                text.push('?');
            }
            other if other.is_control() => text.push('?'),
            other => text.push(other),
        }
    }
    if text.is_empty() { "[unknown]".to_owned() } else { text }
}

/// The output of `perf script -F comm,tid,ip,sym,dso`: one line for the thread, one per frame, an empty line.
pub fn parse_perf(text: &str, folded: &mut Folded) {
    let mut root: Option<&str> = None;
    let mut frames: Vec<String> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            if let Some(root) = root.take()
                && !frames.is_empty()
            {
                folded.add(root, frames.iter());
            }
            frames.clear();
        } else if line.starts_with(['\t', ' ']) && root.is_some() {
            frames.push(perf_frame(line.trim()));
        } else {
            // The thread's name may have blanks; its number is the last word.
            root = Some(line.trim().rsplit_once(' ').map_or(line, |(name, _)| name));
        }
    }
}

/// `ffffffff810 symbol (module)`
fn perf_frame(line: &str) -> String {
    let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
    let (symbol, module) = match rest.rsplit_once(" (") {
        Some((symbol, module)) => (symbol, module.trim_end_matches(')')),
        None => (rest, ""),
    };
    let is_kernel =
        module.starts_with('[') && module != "[vdso]" && module != "[unknown]" && module != "[stack]";
    let name = match symbol.trim() {
        "" | "[unknown]" => {
            format!("[{}]", module.rsplit('/').next().unwrap_or_default().trim_matches(['[', ']']))
        }
        symbol => symbol.to_owned(),
    };
    let mut name = clean(&name);
    if is_kernel {
        name.push_str(KERNEL);
    }
    name
}

/// The output of eu-stack (`TID 12:`) or of gdb's `thread apply all bt` (`Thread 3 (LWP 12 "name"):`), one sample
/// of all threads. Equal stacks of several threads become one with a count, as in pt-pmp.
pub fn parse_threads(text: &str, folded: &mut Folded) {
    let mut root: Option<String> = None;
    let mut is_gdb = false;
    let mut frames: Vec<String> = Vec::new();
    let mut finish = |root: Option<String>, frames: &mut Vec<String>| {
        if let Some(root) = root
            && !frames.is_empty()
        {
            folded.add(&root, frames.iter());
        }
        frames.clear();
    };
    for line in text.lines() {
        if line.starts_with("TID ") || line.starts_with("Thread ") {
            finish(root.take(), &mut frames);
            let name = line.split('"').nth(1).unwrap_or("threads");
            root = Some(name.to_owned());
            is_gdb = line.starts_with("Thread ");
        } else if let Some(frame) = line.strip_prefix('#') {
            frames.push(thread_frame(frame, is_gdb));
        }
    }
    finish(root, &mut frames);
}

/// `0  0x00007f symbol` of eu-stack, `0  0x00007f in symbol (x=...) from module` of gdb, `0  symbol (x=...) at file`.
fn thread_frame(line: &str, is_gdb: bool) -> String {
    let rest = line.split_once(' ').map_or("", |(_, rest)| rest).trim_start();
    let rest = match rest.strip_prefix("0x").map(|rest| rest.split_once(' ')) {
        Some(Some((_, rest))) => rest.trim_start(),
        // An address alone has no symbol.
        Some(None) => "",
        None => rest,
    };
    if !is_gdb {
        return clean(rest);
    }
    let rest = rest.strip_prefix("in ").unwrap_or(rest);
    // Arguments come after a blank and a bracket, which a name has only before `anonymous namespace`.
    let end = rest.match_indices(" (").find(|(at, _)| !rest[at + 2..].starts_with("anonymous"));
    let name = end.map_or(rest, |(at, _)| &rest[..at]);
    clean(if name == "??" { "" } else { name })
}

#[cfg(test)]
mod tests {
    use super::{Folded, clean, parse_perf, parse_threads};
    use proptest::prelude::{any, proptest};

    fn lines(folded: &Folded) -> Vec<String> {
        folded.counts.iter().map(|(stack, count)| format!("{stack} {count}")).collect()
    }

    #[test]
    fn perf_script() {
        let text = "my worker   1234 
\tffffffff81000010 do_syscall_64 ([kernel.kallsyms])
\tffffffffc0000010 [unknown] ([xfs])
\t    7f0000001 std::vector<int, (anonymous)>::push_back(int) (/usr/sbin/mariadbd)
\t    7f0000002 [unknown] (/lib/libc.so.6)
\t    7f0000003 evil;name\u{1b}[2J (/x)
\t    7f0000004 __vdso_clock_gettime ([vdso])

mariadbd  9
\t    7f0000003 f (/x)

mariadbd  10
\t    7f0000003 f (/x)
";
        let mut folded = Folded::default();
        parse_perf(text, &mut folded);
        assert_eq!(
            lines(&folded),
            [
                "mariadbd;f 2",
                "my worker;__vdso_clock_gettime;evil:name?[2J;[libc.so.6];std::vector<int, (anonymous)>::push_back(int);[xfs]_[k];do_syscall_64_[k] 1"
            ]
        );
        assert_eq!(folded.samples, 3);
    }

    #[test]
    fn eu_stack_and_gdb() {
        let mut folded = Folded::default();
        parse_threads(
            "PID 7 - process\nTID 7:\n#0  0x00007f2e poll\n#1  0x00007f2f f(int (*)(int)) const\nTID 8:\n#0  0x00007f2a\n#1  0x00007f2b start_thread\nTID 9:\n",
            &mut folded,
        );
        parse_threads(
            "[New LWP 8]\n\nThread 2 (Thread 0x7f (LWP 8) \"io worker\"):\n#0  0x00007f2e in poll () from /lib/libc.so.6\n#1  0x1 in ?? ()\n#2  a<(anonymous namespace)::b, (anonymous namespace)::c>::d (x=...) at x.c:3\n",
            &mut folded,
        );
        assert_eq!(
            lines(&folded),
            [
                "io worker;a<(anonymous namespace)::b, (anonymous namespace)::c>::d;[unknown];poll 1",
                "threads;f(int (*)(int)) const;poll 1",
                "threads;start_thread;[unknown] 1"
            ]
        );
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_format(text in any::<String>()) {
            let mut folded = Folded::default();
            parse_perf(&text, &mut folded);
            parse_perf(&format!("a 1\n\t1 {text} (b)\n"), &mut folded);
            parse_threads(&format!("TID 1:\n#0  0x1 {text}\n"), &mut folded);
            assert!(folded.counts.keys().all(|stack| !stack.contains('\n') && !stack.contains('\u{1b}')));
            assert!(!clean(&text).contains(';'));
        }
    }
}
