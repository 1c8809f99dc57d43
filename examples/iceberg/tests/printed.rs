//! The program prints the block in its first comment.

use std::process::Command;

#[test]
fn by_the_program() {
    let lines = include_str!("../main.rs").lines();
    let comment: String = lines
        .map_while(|line| line.strip_prefix("//!"))
        .flat_map(|line| [line.strip_prefix(' ').unwrap_or(line), "\n"])
        .collect();
    let (_, block) = comment.split_once("```text\n").unwrap();
    let (expected, _) = block.split_once("```\n").unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_idem-iceberg"));
    let output = program.env_remove("DATABASE_URL").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed, expected, "{printed}");
}
