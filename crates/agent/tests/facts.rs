//! `headrace-agent facts`, run as a program: on hosts kept as folders, and on this one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headrace-agent")).args(arguments).output().unwrap()
}

fn facts(arguments: &[&str]) -> Value {
    let output = agent(&[&["facts"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts").join(name)
}

/// The golden file is what `--pretty` prints, without what differs from one reading or release to the next.
fn golden(name: &str) {
    let root = fixture(name);
    let output = agent(&["facts", "--pretty", "--root", root.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let differs =
        |line: &&str| line.starts_with("  \"read_at_ns\"") || line.starts_with("  \"agent_version\"");
    assert_eq!(text.lines().filter(differs).count(), 2);
    let text = text.lines().filter(|line| !differs(line)).collect::<Vec<_>>().join("\n");
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn a_xen_guest_of_16_cores_with_raid0() {
    golden("xen-16core-md");
}

#[test]
fn a_bare_metal_host_of_8_cores_with_nvme() {
    golden("nvme-8core");
}

/// Beside the golden file, which is easily accepted unread: what a study of this host rests on.
#[test]
fn the_xen_guest_shows_why_one_core_is_busy() {
    let facts = facts(&["--root", fixture("xen-16core-md").to_str().unwrap()]);
    assert_eq!(facts["cpu"]["online_count"], 16);
    assert_eq!(facts["virtualization"]["hypervisor"], "xen");
    assert_eq!(facts["md_arrays"][0]["chunk_bytes"], 65536);
    assert_eq!(facts["md_arrays"][0]["sync_action"], Value::Null);
    let md = find(&facts["block_devices"], "name", "md0");
    assert_eq!(md["slaves"], serde_json::json!(["xvdb", "xvdc", "xvdd", "xvde"]));
    assert_eq!(find(&facts["block_devices"], "name", "xvdb")["holders"], serde_json::json!(["md0"]));
    let data = find(&facts["file_systems"], "mount_point", "/mnt/mysql");
    assert_eq!((&data["kind"], &data["block_device"]), (&Value::from("xfs"), &Value::from("md0")));
    assert!(data["options"].as_array().unwrap().contains(&Value::from("noatime")));
    assert_eq!(data["size_bytes"], Value::Null, "no system call speaks of a host in a folder");
    let nic = find(&facts["network_interfaces"], "name", "eth0");
    assert_eq!(nic["rx_queues"].as_array().unwrap().len(), 1);
    assert_eq!(nic["rx_queues"][0]["rps_cpus"], "0000");
    let irq = find(&facts["irqs"]["lines"], "device", "eth0");
    let counts = irq["counts"].as_array().unwrap();
    assert!(counts[0].as_u64() > Some(0) && counts[1..].iter().all(|count| count == 0));
    assert_eq!(facts["irqbalance"]["pid"], Value::Null);
    assert_eq!(facts["servers"][0]["allocator"]["name"], "jemalloc");
    assert!(!facts.to_string().contains("not-for-the-facts"));
    assert_eq!(facts["errors"], serde_json::json!([]));
}

#[test]
fn keys_and_secrets_of_the_kernel_are_never_read() {
    let root = fixture("nvme-8core");
    assert!(root.join("proc/sys/net/ipv4/tcp_fastopen_key").exists());
    let facts = facts(&["--root", root.to_str().unwrap()]);
    let names: Vec<&String> = facts["sysctls"].as_object().unwrap().keys().collect();
    assert!(!names.iter().any(|name| name.ends_with("_key")));
}

#[test]
fn an_empty_folder_is_a_host_of_which_nothing_is_known() {
    let root = tempfile::tempdir().unwrap();
    let facts = facts(&["--root", root.path().to_str().unwrap()]);
    assert_eq!(facts["memory"]["total_bytes"], Value::Null);
    assert_eq!(facts["cpu"]["sockets"], Value::Null);
    assert_eq!(facts["cpu"]["online"], Value::Null);
    assert_eq!(facts["virtualization"]["hypervisor_flag"], Value::Null);
    assert_eq!(facts["cgroup"], Value::Null);
    assert_eq!(facts["errors"], serde_json::json!([]));
    // Zero would be a claim. Only the format's number is one.
    let numbers = count_numbers(&facts);
    assert_eq!(numbers, 2, "format and read_at_ns");
}

#[test]
fn a_root_that_is_not_there_is_bad_input() {
    let output = agent(&["facts", "--root", "/does/not/exist"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/does/not/exist"));
    assert!(output.stdout.is_empty());
}

#[test]
fn this_host() {
    let started = Instant::now();
    let facts = facts(&[]);
    // The limit of a release build is 150 ms; a debug build on a busy machine must stay in its region.
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(facts["cpu"]["online_count"].to_string(), command("getconf", &["_NPROCESSORS_ONLN"]));
    assert_eq!(
        facts["cpu"]["topology"].as_array().unwrap().len().to_string(),
        facts["cpu"]["online_count"].to_string()
    );
    assert_eq!(facts["kernel"]["release"], command("uname", &["-r"]));
    assert_eq!(facts["memory"]["page_bytes"].to_string(), command("getconf", &["PAGESIZE"]));
    let total_kib = facts["memory"]["total_bytes"].as_u64().unwrap() / 1024;
    assert!(std::fs::read_to_string("/proc/meminfo").unwrap().contains(&format!("{total_kib} kB")));
    let root = find(&facts["file_systems"], "mount_point", "/");
    assert!(root["size_bytes"].as_u64().unwrap() >= root["free_bytes"].as_u64().unwrap());
    assert!(root["free_bytes"].as_u64().unwrap() >= root["available_bytes"].as_u64().unwrap());
    let swappiness = std::fs::read_to_string("/proc/sys/vm/swappiness").unwrap();
    assert_eq!(facts["sysctls"]["vm.swappiness"], swappiness.trim());
    for irq in facts["irqs"]["lines"].as_array().unwrap() {
        assert_eq!(irq["counts"].as_array().unwrap().len(), facts["irqs"]["cpus"].as_array().unwrap().len());
    }
    if is_root() {
        assert_eq!(facts["errors"], serde_json::json!([]));
    }
}

#[test]
fn compact_and_pretty_say_the_same() {
    let root = fixture("nvme-8core");
    let root = root.to_str().unwrap();
    let mut compact = facts(&["--root", root]);
    let mut pretty = facts(&["--root", root, "--pretty"]);
    compact["read_at_ns"] = Value::Null;
    pretty["read_at_ns"] = Value::Null;
    assert_eq!(compact, pretty);
}

#[test]
fn a_loop_device_and_what_lies_below_it() {
    if !is_root() {
        eprintln!("skipped: loop devices need root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let backing = folder.path().join("a disk.img");
    std::fs::File::create(&backing).unwrap().set_len(8 << 20).unwrap();
    let device = LoopDevice::attach(&backing);
    let facts = facts(&[]);
    let found = find(&facts["block_devices"], "name", device.0.trim_start_matches("/dev/"));
    assert_eq!(found["kind"], "loop");
    assert_eq!(found["size_bytes"], 8 << 20);
    assert_eq!(found["loop"]["backing_file"], backing.to_str().unwrap());
    assert!(found["queue"]["scheduler"].is_string());
}

#[test]
fn the_allocator_that_a_running_server_mapped() {
    let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    if !Path::new("/usr/bin/memcached").exists() || !Path::new(jemalloc).exists() {
        eprintln!("skipped: needs the Debian packages memcached and libjemalloc2");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut command = Command::new("/usr/bin/memcached");
    command.args(["-U", "0", "-t", "2", "-m", "8", "-s"]).arg(&socket).env("LD_PRELOAD", jemalloc);
    if is_root() {
        command.args(["-u", "root"]);
    }
    let server = Server(command.stdin(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(10);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "memcached did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let facts = facts(&[]);
    let found = find(&facts["servers"], "pid", server.0.id());
    assert_eq!(found["program"], "memcached");
    assert_eq!(found["allocator"]["name"], "jemalloc");
    assert!(found["allocator"]["path"].as_str().unwrap().contains("/libjemalloc.so"));
    assert_eq!(found["command_line"][1], "-U");
    assert!(found["rss_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(found["threads"].as_u64().unwrap() >= 2);
}

/// The element of a list whose `key` is `value`.
fn find<'a>(list: &'a Value, key: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    let found = list.as_array().unwrap().iter().find(|item| item[key] == value);
    found.unwrap_or_else(|| panic!("no {key} {value} in {list:#}"))
}

fn count_numbers(value: &Value) -> usize {
    match value {
        Value::Number(_) => 1,
        Value::Array(items) => items.iter().map(count_numbers).sum(),
        Value::Object(entries) => entries.values().map(count_numbers).sum(),
        _ => 0,
    }
}

fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn is_root() -> bool {
    command("id", &["-u"]) == "0"
}

struct LoopDevice(String);

impl LoopDevice {
    fn attach(backing: &Path) -> LoopDevice {
        LoopDevice(command("losetup", &["--find", "--show", backing.to_str().unwrap()]))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = Command::new("losetup").args(["--detach", &self.0]).status() {
            let _ = writeln!(std::io::stderr(), "losetup --detach {}: {error}", self.0);
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
