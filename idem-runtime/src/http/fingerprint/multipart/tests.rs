use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn of<'a>(body: &'a str, boundary: &str) -> Option<Vec<&'a str>> {
    let parts = parts(body.as_bytes(), boundary.as_bytes())?;
    Some(
        parts
            .map(|part| std::str::from_utf8(part).unwrap())
            .collect(),
    )
}

#[test]
fn a_boundary_is_read_as_clients_write_it() {
    let of = |text: &'static str| boundary(text.as_bytes()).map(<[u8]>::escape_ascii);
    for (line, expected) in [
        (
            "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxk",
            "----WebKitFormBoundary7MA4YWxk",
        ),
        ("Multipart/Form-Data;Boundary=\"a b:c\"", "a b:c"),
        ("multipart/form-data ;  boundary=x ", "x"),
    ] {
        assert_eq!(of(line).unwrap().to_string(), expected);
    }
    for parameter in
        "|; boundary=|; boundary=''|; boundary='a|; boundary='a '|; boundary=a b|; boundary=a'b|\
        ; boundary=a; charset=utf-8|; charset=utf-8; boundary=a|; boundary=\u{e9}"
            .split('|')
    {
        let line = format!("multipart/form-data{parameter}").replace('\'', "\"");
        assert!(of(line.clone().leak()).is_none(), "{line}");
    }
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    for line in [
        "multipart/mixed; boundary=a",
        "application/x-www-form-urlencoded; boundary=a",
        long.leak(),
    ] {
        assert!(of(line).is_none(), "{line}");
    }
}

#[test]
fn parts_are_what_is_between_the_delimiters() {
    let form = "--b\r\nA: 1\r\n\r\none\r\n--b\r\n\r\ntwo\r\n\r\n--b--\r\n";
    assert_eq!(
        of(form, "b").unwrap(),
        ["A: 1\r\n\r\none", "\r\ntwo\r\n", "\r\n"]
    );
    assert_eq!(of("--b\r\n\r\n--b--", "b").unwrap(), ["", ""]);
    assert_eq!(of("--b--", "b").unwrap(), [""]);
}

#[test]
fn what_is_not_exactly_a_form_is_not_guessed_at() {
    // `/` stands for a line break.
    for body in "|tea|--b/|--b/tea|--b/tea/--b/|/--b/tea/--b--|before/--b/tea/--b--|--b/tea/--b--after|\
        --b/tea/--b--/after|--b/tea/--b-- /|--b /tea/--b--|--b\ntea/--b--|--b/tea\n--b--|--b/tea--b--|--b/tea/--bc/--b--|\
        --b/t--be/tea/--b--|--b/--b//--b--|--b/tea/--b--/--b--"
        .split('|')
    {
        assert_eq!(of(&body.replace('/', "\r\n"), "b"), None, "{body}");
    }
}

proptest! {
    #[test]
    fn occurrences_are_those_that_windows_show(text in vec(0_u8..3, 0..60), needle in vec(0_u8..3, 1..5)) {
        let windows = text.windows(needle.len()).enumerate();
        let shown: Vec<_> = windows.filter(|(_, window)| *window == needle).map(|(at, _)| at).collect();
        prop_assert_eq!(occurrences(&text, &needle), shown);
    }

    /// The parts can be written again: only a form's boundary is lost.
    #[test]
    fn a_form_is_its_parts_and_its_boundary(body in "(--b|\r\n|-|b|a|\n){0,12}") {
        if let Some(parts) = parts(body.as_bytes(), b"b") {
            let mut parts: Vec<_> = parts.collect();
            let end = parts.pop().unwrap();
            let mut again: Vec<u8> = Vec::new();
            for part in parts {
                again.extend(b"--b\r\n");
                again.extend(part);
                again.extend(b"\r\n");
            }
            again.extend(b"--b--");
            again.extend(end);
            prop_assert_eq!(again.as_slice(), body.as_bytes());
        }
    }
}
