use super::*;

fn mount(path: &str) -> Undo {
    Undo::Mount { path: path.into() }
}

fn written() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.add("a", vec!["/scratch/x".into()], vec![mount("/m1"), mount("/m2")]).unwrap();
    journal.add("b", vec![], vec![Undo::Process { mark: "b".into() }]).unwrap();
    journal.done("a", 2).unwrap();
    journal
        .add(
            "a/volume",
            vec![],
            vec![Undo::Setting { restore: vec![FileValue { path: "/sys/x".into(), value: "none".into() }] }],
        )
        .unwrap();
    std::fs::read(folder.path().join(FILE_NAME)).unwrap()
}

#[test]
fn what_is_printed_of_an_entry_is_the_entry() {
    for entry in Content::parse(&written()).unwrap().open {
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<Open>(&text).unwrap(), entry, "{text}");
    }
}

#[test]
fn the_mark_of_processes_had_another_name() {
    let line = br#"{"format":5,"t_ns":1,"owner":"a","undo":[{"id":1,"kind":"process","owner":"a/part"}]}"#;
    let open = Content::parse(&[line.as_slice(), b"\n"].concat()).unwrap().open;
    assert_eq!(open[0].undo, Undo::Process { mark: "a/part".into() });
}

#[test]
fn a_journal_cut_at_any_byte_is_read_up_to_its_last_whole_line() {
    let bytes = written();
    let ends: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    let whole: Vec<Content> = std::iter::once(0)
        .chain(ends.iter().copied())
        .map(|end| Content::parse(&bytes[..end]).unwrap())
        .collect();
    assert_eq!(whole.iter().map(|c| c.open.len()).collect::<Vec<_>>(), [0, 2, 3, 2, 3]);
    for cut in 0..=bytes.len() {
        let lines = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(Content::parse(&bytes[..cut]).unwrap(), whole[lines], "cut at {cut}");
    }
}

#[test]
fn a_cut_journal_takes_new_entries_on_a_line_of_their_own() {
    let bytes = written();
    for cut in 0..=bytes.len() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE_NAME), &bytes[..cut]).unwrap();
        private(folder.path());
        let mut journal = Journal::open(folder.path()).unwrap();
        let before = journal.content.open.len();
        journal.add("c", vec![], vec![mount("/new")]).unwrap();
        drop(journal);
        let open = read_open(folder.path()).unwrap();
        assert_eq!(open.len(), before + 1, "cut at {cut}");
        assert_eq!(open.last().unwrap().undo, mount("/new"));
    }
}

#[test]
fn a_number_after_which_none_can_follow_is_damage() {
    let mut bytes = written();
    let line = String::from_utf8(bytes.clone()).unwrap().lines().next().unwrap().to_owned();
    bytes.extend(line.replace(r#""id":1"#, &format!(r#""id":{}"#, u64::MAX)).bytes().chain([b'\n']));
    bytes.extend(line.replace(r#""id":1"#, r#""id":7"#).bytes().chain([b'\n']));
    let content = Content::parse(&bytes).unwrap();
    assert_eq!((content.damaged, content.next_id), (vec![5], 8));
}

fn private(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn blocks_of_zeros_after_a_power_loss_are_a_torn_line() {
    let mut bytes = written();
    let valid = bytes.len();
    bytes.extend([0; 4096]);
    assert_eq!(Content::parse(&bytes).unwrap().valid_bytes, valid);
}

#[test]
fn a_damaged_line_in_the_middle_hides_neither_itself_nor_the_others() {
    let text = String::from_utf8(written()).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[1] = "{\"format\":1,#";
    let content = Content::parse((lines.join("\n") + "\n").as_bytes()).unwrap();
    assert_eq!(content.damaged, [2]);
    assert_eq!(content.open.len(), 2);

    let folder = tempfile::tempdir().unwrap();
    private(folder.path());
    std::fs::write(folder.path().join(FILE_NAME), lines.join("\n") + "\n").unwrap();
    let error = Journal::open(folder.path()).unwrap().add("a", vec![], vec![mount("/x")]).unwrap_err();
    assert!(error.to_string().contains("line 2 is damaged"), "{error}");
}

#[test]
fn a_newer_format_is_not_guessed_at() {
    let error = Content::parse(b"{\"format\":8,\"t_ns\":1,\"changes\":[]}\n").unwrap_err();
    assert!(error.to_string().contains("newer"), "{error}");
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = Journal::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("nobody else may write"), "{error}");
}

#[test]
fn folder_and_file_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("a/b");
    Journal::open(&state).unwrap();
    assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(state.join(FILE_NAME)).unwrap().mode() & 0o777, 0o600);
}
