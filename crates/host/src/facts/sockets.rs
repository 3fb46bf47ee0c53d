//! The Unix sockets on which a server listens. Many servers get theirs from an option file, not from an argument.

use rustix::fs::stat;

use super::files::Folder;

/// `SO_ACCEPTCON` in the column of flags.
const LISTENS: u32 = 1 << 16;

/// Paths by which a client on this host reaches them, sorted; through `/proc/PID/root` if the server is in a container.
/// Empty without permission to read the process's descriptors.
pub fn listening(host: &Folder, process: &Folder, working_directory: Option<&str>) -> Vec<String> {
    let table = process.text("net/unix").unwrap_or_default();
    let named = parse(&table);
    if named.is_empty() {
        return Vec::new();
    }
    let own: Vec<String> =
        process.names("fd").iter().filter_map(|number| process.link(&format!("fd/{number}"))).collect();
    let mut paths: Vec<String> =
        named
            .into_iter()
            .filter(|(inode, _)| own.contains(&format!("socket:[{inode}]")))
            .filter_map(|(_, path)| absolute(path, working_directory))
            .map(|path| {
                if is_elsewhere(host, process, &path) {
                    format!("{}/root{path}", process.path())
                } else {
                    path
                }
            })
            .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Inode and path of each listening socket that has a path, from /proc/PID/net/unix (unix(7)).
fn parse(table: &str) -> Vec<(u64, &str)> {
    table.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(u64, &str)> {
    let (mut words, mut path) = ([""; 7], line);
    for word in &mut words {
        (*word, path) = path.trim_start().split_once(' ')?;
    }
    let [_, _, _, flags, _, _, inode] = words;
    let listens = u32::from_str_radix(flags, 16).ok()? & LISTENS != 0;
    // `@` begins an abstract name.
    (listens && !path.starts_with('@')).then_some((inode.parse().ok()?, path))
}

fn absolute(path: &str, working_directory: Option<&str>) -> Option<String> {
    if path.starts_with('/') {
        return Some(path.to_owned());
    }
    Some(format!("{}/{}", working_directory?.trim_end_matches('/'), path.trim_start_matches("./")))
}

/// Whether the server's path is a different file, or none, in our mount namespace. A unit with PrivateTmp= also has a
/// namespace of its own, but most paths in it are the same files.
fn is_elsewhere(host: &Folder, process: &Folder, path: &str) -> bool {
    let (Some(ours), Some(its)) = (host.link("proc/self/ns/mnt"), process.link("ns/mnt")) else {
        return false;
    };
    if ours == its {
        return false;
    }
    let Ok(there) = stat(format!("{}/root{path}", process.path())) else { return false };
    !stat(path).is_ok_and(|here| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
}

#[cfg(test)]
mod tests {
    use super::{absolute, parse};

    #[test]
    fn listening_sockets_with_a_path() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff9b3e4c8d0000: 00000002 00000000 00010000 0001 01 31337 /run/my sql/mysqld.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    42 ./mysqlx.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 31338 /run/my sql/mysqld.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 31339 @abstract\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 31340\n\
            damaged\n";
        assert_eq!(parse(table), [(31337, "/run/my sql/mysqld.sock"), (42, "./mysqlx.sock")]);
    }

    #[test]
    fn a_relative_path_is_in_the_data_folder() {
        assert_eq!(absolute("./s.sock", Some("/data/")).as_deref(), Some("/data/s.sock"));
        assert_eq!(absolute("/run/s.sock", None).as_deref(), Some("/run/s.sock"));
        assert_eq!(absolute("s.sock", None), None);
    }
}
