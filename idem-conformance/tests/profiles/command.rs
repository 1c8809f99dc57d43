//! The program: its exit codes, and what it prints.

use std::process::{Command, Output};

use idem_conformance::http::Specification;
use idem_runtime::http::Profile;

use super::setup;
use super::shop::Served;

const ORDER: &str = r#"POST /orders {"items": ["tea", "cake"], "quantity": {n}}"#;

/// Runs the program with these arguments, beside the server of this thread.
async fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem-conformance"));
    command.args(arguments);
    let Output {
        status,
        stdout,
        stderr,
    } = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code(), text)
}

#[tokio::test]
async fn exit_codes_tell_a_met_specification_from_a_failed_row_and_from_no_run() {
    let draft = Specification::Draft;
    let shop = Served::start(draft, Profile::draft(), &setup(draft)).await;
    let met = shop.base.to_string();
    let mut bare = setup(draft);
    bare.set = |layer| layer.optional();
    let optional = Served::start(draft, Profile::draft(), &bare).await;
    let failing = optional.base.to_string();
    let caller = ["-H", "x-tenant: acme", "--other-header", "x-tenant: eve"];
    let draft = |address, more: &[&'static str]| {
        let arguments = [&["draft", address, "--operation", ORDER][..], &caller, more].concat();
        arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for (arguments, code, said) in [
        (draft(&met, &[]), 0, "0 failed"),
        (
            draft(&met, &["--effects", "GET /total", "--effects-at", "/total"]),
            0,
            "passed         suite: edge",
        ),
        (draft(&met, &["--markdown"]), 0, "| 2.6 | should |"),
        (draft(&failing, &[]), 1, "got:      201"),
        (draft(&failing, &["--allow", "missing"]), 1, "FAILED"),
        (
            draft(
                &failing,
                &["--allow", "missing", "--allow", "suite_missing"],
            ),
            0,
            "FAILED",
        ),
        // The handler refuses it.
        (
            draft(&met, &["--operation", "POST /nothing"]),
            2,
            "error: the argument '--operation",
        ),
        (
            vec![
                "draft".into(),
                met.clone(),
                "--operation".into(),
                "POST /nothing".into(),
            ],
            2,
            "got 403",
        ),
        (
            vec![
                "rfc".into(),
                met.clone(),
                "--operation".into(),
                ORDER.into(),
            ],
            2,
            "`rfc` is none of draft",
        ),
        (
            vec!["draft".into(), met, "--operation".into(), "/orders".into()],
            2,
            "is not a method and a path",
        ),
    ] {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let (is, text) = run(&arguments).await;
        assert_eq!(is, Some(code), "{arguments:?}\n{text}");
        assert!(text.contains(said), "{arguments:?}\n{text}");
    }
}
