//! The output of an example, compared with its first comment.

use std::path::Path;
use std::process::{Command, Output};

use super::support;

/// Runs the example with only this variable of its own.
pub(crate) fn run(example: &str, variable: Option<(&str, &str)>) -> Output {
    let mut command = Command::new(support::built(example));
    command.env_remove("REDIS_URL").env_remove("DATABASE_URL");
    command.envs(variable).output().unwrap()
}

/// The first comment of an example.
fn comment(example: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{example}.rs"));
    let source = std::fs::read_to_string(file).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Fails unless the example ends well and prints what its comment says. Its comment has this command.
pub(crate) fn prints_its_comment(command: &str, example: &str, variable: Option<(&str, &str)>) {
    let comment = comment(example);
    let command = format!("{command} --example {example}`");
    assert!(comment.contains(&command), "no `{command} in {comment}");
    let (_, block) = comment.split_once("```text\n").unwrap();
    let (expected, _) = block.split_once("```\n").unwrap();
    let output = run(example, variable);
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{printed}{errors}");
    assert_eq!(printed, expected, "{printed}");
}

/// Fails unless the test names each example of this package.
pub(crate) fn every_example_is_named(test: &str, others: &[&str]) {
    for entry in std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(example) = name.strip_suffix(".rs") {
            let is_named = test.contains(&format!("\"{example}\"")) || others.contains(&example);
            assert!(is_named, "{example}");
        }
    }
}
