//! Plants mutants into a copy of the sources.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use proc_macro2::{LineColumn, Span};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr};

use crate::list::Place;

const SWITCH: &str = r#"
pub(crate) fn mutant(number: u16) -> bool {
    static CHOSEN: std::sync::OnceLock<u16> = std::sync::OnceLock::new();
    let chosen = || std::env::var("IDEM_MUTANT").ok()?.parse().ok();
    *CHOSEN.get_or_init(|| chosen().unwrap_or(0)) == number
}
"#;

/// What takes the place of a piece of the source.
struct Edit {
    range: Range<usize>,
    /// The characters 0 and 1 stand for the operands.
    template: String,
    operands: Vec<Range<usize>>,
}

/// Finds the places of a file where mutants can be planted.
struct Planter<'a> {
    wanted: BTreeMap<(u64, u64), &'a Place>,
    edits: Vec<Edit>,
}

fn range(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

impl<'a> Planter<'a> {
    fn at(&self, span: Span, genre: &str) -> Option<(usize, &'a str)> {
        let LineColumn { line, column } = span.start();
        let place = self.wanted.get(&(line as u64, column as u64 + 1))?;
        (place.genre == genre).then_some((place.number, &place.replacement))
    }

    fn edit(&mut self, range: Range<usize>, template: String, operands: &[Range<usize>]) {
        let operands = operands.to_vec();
        self.edits.push(Edit {
            range,
            template,
            operands,
        });
    }

    fn body(&mut self, block: &Block) {
        if let Some(first) = block.stmts.first()
            && let Some((number, value)) = self.at(first.span(), "FnValue")
        {
            let at = block.brace_token.span.open().byte_range().end;
            self.edit(
                at..at,
                format!(" if crate::mutant({number}) {{ return {value}; }} "),
                &[],
            );
        }
    }
}

/// Whether a chain's operand is a `let`, which stands nowhere else.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Planter<'_> {
    // A switch can be read in no constant.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if item.sig.constness.is_none() {
            self.body(&item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if item.sig.constness.is_none() {
            self.body(&item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        if let Some((number, other)) = self.at(expr.op.span(), "BinaryOperator")
            && !has_let(&expr.left)
            && !has_let(&expr.right)
        {
            let (left, right, op) = (
                range(&expr.left),
                range(&expr.right),
                expr.op.to_token_stream(),
            );
            let text = format!(
                "(if crate::mutant({number}) {{ (\0) {other} (\u{1}) }} else {{ (\0) {op} (\u{1}) }})"
            );
            self.edit(left.start..right.end, text, &[left, right]);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if let Some((number, _)) = self.at(expr.op.span(), "UnaryOperator") {
            let op = expr.op.to_token_stream();
            let text = format!("(if crate::mutant({number}) {{ \0 }} else {{ {op}(\0) }})");
            self.edit(range(expr), text, &[range(&expr.expr)]);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((number, _)) = self.at(arm.span(), "MatchArm") {
            let at = range(&arm.pat).end;
            self.edit(at..at, format!(" if !crate::mutant({number})"), &[]);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_pat_guard(&mut self, pat: &'ast syn::PatGuard) {
        if let Some((number, value)) = self.at(pat.guard.span(), "MatchArmGuard")
            && !has_let(&pat.guard)
        {
            let (not, op) = if value == "true" {
                ("", "||")
            } else {
                ("!", "&&")
            };
            let text = format!("{not}crate::mutant({number}) {op} (\0)");
            self.edit(range(&pat.guard), text, &[range(&pat.guard)]);
        }
        visit::visit_pat_guard(self, pat);
    }
}

/// The edits of a file, outer ones first.
fn edits(source: &str, places: &[&Place]) -> Vec<Edit> {
    let wanted = places.iter().map(|place| (place.start, *place)).collect();
    let mut planter = Planter {
        wanted,
        edits: Vec::new(),
    };
    planter.visit_file(&syn::parse_file(source).expect("a source parses"));
    let mut edits = planter.edits;
    edits.sort_by_key(|edit| (edit.range.start, Reverse(edit.range.end)));
    edits
}

fn render(source: &str, range: Range<usize>, edits: &[Edit], text: &mut String) {
    let mut from = range.start;
    for (index, edit) in edits.iter().enumerate() {
        if edit.range.start < from || edit.range.end > range.end {
            continue;
        }
        text.push_str(&source[from..edit.range.start]);
        for character in edit.template.chars() {
            match edit.operands.get(character as usize) {
                Some(operand) => render(source, operand.clone(), &edits[index + 1..], text),
                None => text.push(character),
            }
        }
        from = edit.range.end;
    }
    text.push_str(&source[from..range.end]);
}

/// Plants mutants into the sources of a copy, each behind a switch.
pub(crate) fn plant(root: &Path, copy: &Path, places: &[Place]) {
    let mut files: BTreeMap<&str, Vec<&Place>> = BTreeMap::new();
    for place in places {
        files.entry(&place.file).or_default().push(place);
    }
    let write = |file: &str, text: String| {
        // Unchanged files are not compiled again.
        if fs::read_to_string(copy.join(file)).is_ok_and(|there| there == text) {
            return;
        }
        fs::write(copy.join(file), text).expect("a source is written");
    };
    let read = |file: &str| fs::read_to_string(root.join(file)).expect("a source");
    for (file, places) in files {
        let (source, mut text) = (read(file), String::new());
        render(
            &source,
            0..source.len(),
            &edits(&source, &places),
            &mut text,
        );
        write(file, text);
    }
    let lib = "idem-runtime/src/lib.rs";
    write(lib, read(lib) + SWITCH);
}
