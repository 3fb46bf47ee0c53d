//! The kernel's own tracing (tracefs): what it records, in its main buffer and in others that tools made.

use serde::Serialize;

use super::files::Folder;
use crate::mountinfo::Mount;

#[derive(Serialize, Debug, PartialEq)]
pub struct Instance {
    /// `top` is the main buffer.
    pub name: String,
    /// `nop` if no functions are traced.
    tracer: Option<String>,
    is_on: Option<bool>,
    /// Enabled events, `sched:sched_switch`: all of them are thousands, of which the first are named.
    events: u64,
    first_events: Vec<String>,
}

const NAMED: usize = 4;

pub fn read(host: &Folder, mounts: &[Mount]) -> Option<Vec<Instance>> {
    let folders = instances(host, mounts)?;
    Some(folders.into_iter().map(|(name, folder)| instance(name, &folder)).collect())
}

/// The folder of each buffer; `None` if tracefs is not mounted or not readable. Its usual place may be one that
/// would be mounted by looking there, so only a mount counts.
pub fn instances<'a>(host: &Folder<'a>, mounts: &[Mount]) -> Option<Vec<(String, Folder<'a>)>> {
    let mount = mounts.iter().find(|mount| mount.kind == "tracefs")?;
    let top = host.absolute(&mount.mount_point);
    top.line("current_tracer")?;
    let others = top.join("instances");
    let mut found = vec![("top".to_owned(), top)];
    found.extend(others.names("").into_iter().map(|name| (name.clone(), others.join(&name))));
    Some(found)
}

fn instance(name: String, folder: &Folder) -> Instance {
    let events = folder.text("set_event").unwrap_or_default();
    Instance {
        name,
        tracer: folder.line("current_tracer"),
        is_on: folder.flag("tracing_on"),
        events: events.lines().count() as u64,
        first_events: events.lines().take(NAMED).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::facts::files::Files;
    use crate::mountinfo;
    use serde_json::json;
    use std::fs;

    const MOUNT: &str = "40 23 0:12 / /sys/kernel/tracing rw - tracefs tracefs rw\n";

    #[test]
    fn the_main_buffer_and_others() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::open(Some(root.path())).unwrap();
        let found =
            |mounts: &str| serde_json::to_value(read(&files.root(), &mountinfo::parse(mounts))).unwrap();
        assert_eq!(found(MOUNT), json!(null), "nothing is readable");
        for (file, text) in [
            ("current_tracer", "function_graph\n"),
            ("tracing_on", "1\n"),
            ("set_event", ""),
            ("instances/probe/current_tracer", "nop\n"),
            ("instances/probe/tracing_on", "0\n"),
            ("instances/probe/set_event", "sched:a\nsched:b\nsched:c\nsched:d\nsched:e\n"),
        ] {
            let path = root.path().join("sys/kernel/tracing").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(found(""), json!(null), "not mounted");
        let first = ["sched:a", "sched:b", "sched:c", "sched:d"];
        assert_eq!(
            found(MOUNT),
            json!([
                {"name": "top", "tracer": "function_graph", "is_on": true, "events": 0, "first_events": []},
                {"name": "probe", "tracer": "nop", "is_on": false, "events": 5, "first_events": first},
            ])
        );
    }
}
