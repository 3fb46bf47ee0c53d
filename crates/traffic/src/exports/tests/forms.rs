//! BLOBs as clients write them: in another form, or not at all.

use super::*;

#[test]
fn arguments_that_a_client_wrote_in_another_form_are_read_in_all_rows() {
    let python = |text: &str| format!("b'{text}'");
    let hexadecimal = |text: &str| text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>();
    let base64 = |text: &str| match text {
        "app@web on shop using TCP/IP" => "YXBwQHdlYiBvbiBzaG9wIHVzaW5nIFRDUC9JUA==".to_owned(),
        "select 1" => "c2VsZWN0IDE=".to_owned(),
        _ => "Y3Jt".to_owned(),
    };
    let forms: [&dyn Fn(&str) -> String; 3] = [&python, &hexadecimal, &base64];
    for form in forms {
        let row = |command: &str, argument: &str| {
            format!("2026-03-01 10:00:00,app[app] @ web [],7,1,{command},{}\n", form(argument))
        };
        let export = "event_time,user_host,thread_id,server_id,command_type,argument\n".to_owned()
            + &row("Connect", "app@web on shop using TCP/IP")
            + &row("Query", "select 1")
            + &row("Init DB", "crm")
            + &row("Query", "select 1");
        assert_eq!(
            texts(&events(&export)),
            [
                ("app@web/shop", "Connect"),
                ("app@web/shop", "select 1"),
                ("app@web/crm", "InitDb"),
                ("app@web/crm", "select 1")
            ],
            "{export}"
        );
    }
}

#[test]
fn placeholders_of_clients_are_no_statements() {
    for text in [
        "BLOB",
        "[BLOB - 23 B]",
        "[BLOB - 1.2 KiB]",
        "(BLOB)",
        "BLOB (23 bytes)",
        "<Binary data>",
        "[B@1b6d3586",
        "System.Byte[]",
        "[object Object]",
        "<memory at 0x7f00aa>",
    ] {
        assert!(super::super::values::is_placeholder(text.as_bytes()), "{text}");
    }
    for text in ["select 1", "blob", "BLOB1", "binary", "[BLOBS]", "", "Quit", "binary log"] {
        assert!(!super::super::values::is_placeholder(text.as_bytes()), "{text}");
    }
}
