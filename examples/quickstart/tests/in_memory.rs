//! Each example prints the block in its first comment.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "../../tests/support/printing.rs"]
mod printing;
#[path = "../../tests/support/mod.rs"]
mod support;

#[test]
fn every_example_prints_its_comment() {
    for example in [
        "axum_handler",
        "axum_layer",
        "custom_store",
        "quickstart",
        "reconcile",
    ] {
        printing::prints_its_comment("cargo run -p idem-quickstart", example, None);
    }
}

#[test]
fn every_example_is_tested() {
    printing::every_example_is_named(include_str!("in_memory.rs"), &["lib"]);
}
