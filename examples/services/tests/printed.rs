//! The program prints the blocks in its first comment.

use std::process::Command;

fn prints(service: &str, block: usize) {
    let lines = include_str!("../main.rs").lines();
    let comment = lines.map_while(|line| line.strip_prefix("//!"));
    let comment: Vec<_> = comment
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let comment = comment.join("\n");
    let blocks: Vec<_> = comment.split("```").collect();
    let expected = blocks[2 * block + 1].strip_prefix("text\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_idem-services"))
        .arg(service)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed, expected);
}

#[test]
fn by_each_service() {
    for service in ["actix-web", "poem", "rocket", "salvo"] {
        prints(service, 0);
    }
    prints("mcp", 1);
}

#[test]
fn nothing_without_the_name_of_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_idem-services"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
