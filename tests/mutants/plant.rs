//! Plants mutants into a copy of the sources, and compiles it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use proc_macro2::{LineColumn, Span};
use quote::ToTokens;
use serde_json::Value;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr};

use crate::list::Located;

/// Deprecated, so that the compiler reports each use that it has compiled.
const SWITCH: &str = r#"
#[deprecated]
pub(crate) fn mutant(number: u16) -> bool {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    static CHOSEN: OnceLock<(u16, Option<std::fs::File>)> = OnceLock::new();
    static REACHED: [AtomicBool; 2000] = [const { AtomicBool::new(false) }; 2000];
    let (chosen, log) = CHOSEN.get_or_init(|| {
        let number = std::env::var("IDEM_MUTANT").ok().and_then(|number| number.parse().ok());
        let log = std::env::var_os("IDEM_MUTANTS_REACHED")
            .and_then(|path| std::fs::File::options().append(true).create(true).open(path).ok());
        (number.unwrap_or(0), log)
    });
    if let Some(mut log) = log.as_ref()
        && !REACHED[usize::from(number)].swap(true, Ordering::Relaxed)
    {
        let _ = log.write_all(&number.to_le_bytes());
    }
    *chosen == number
}
"#;

/// What takes the place of a piece of the source.
struct Edit {
    number: usize,
    range: Range<usize>,
    /// The characters 0 and 1 stand for the operands.
    template: String,
    operands: Vec<Range<usize>>,
}

/// Finds the places of a file where mutants can be planted.
struct Planter<'a> {
    wanted: BTreeMap<(u64, u64), &'a Located>,
    edits: Vec<Edit>,
}

fn range(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

impl<'a> Planter<'a> {
    fn at(&self, span: Span, genre: &str) -> Option<(usize, &'a str)> {
        let LineColumn { line, column } = span.start();
        let located = self.wanted.get(&(line as u64, column as u64 + 1))?;
        (located.genre == genre).then_some((located.mutant.number, &located.replacement))
    }

    fn edit(
        &mut self,
        number: usize,
        range: Range<usize>,
        template: String,
        operands: &[Range<usize>],
    ) {
        let operands = operands.to_vec();
        self.edits.push(Edit {
            number,
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
                number,
                at..at,
                format!(" if crate::mutant({number}) {{ return {value}; }} "),
                &[],
            );
        }
    }
}

/// Whether an operand of a chain is a `let`, which stands nowhere else.
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
            self.edit(number, left.start..right.end, text, &[left, right]);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if let Some((number, _)) = self.at(expr.op.span(), "UnaryOperator") {
            let op = expr.op.to_token_stream();
            let text = format!("(if crate::mutant({number}) {{ \0 }} else {{ {op}(\0) }})");
            self.edit(number, range(expr), text, &[range(&expr.expr)]);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((number, _)) = self.at(arm.span(), "MatchArm") {
            let at = range(&arm.pat).end;
            self.edit(number, at..at, format!(" if !crate::mutant({number})"), &[]);
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
            self.edit(number, range(&pat.guard), text, &[range(&pat.guard)]);
        }
        visit::visit_pat_guard(self, pat);
    }
}

/// The edits of a file, outer ones first.
fn edits(source: &str, mutants: &[&Located]) -> Vec<Edit> {
    let wanted = mutants
        .iter()
        .map(|located| (located.start, *located))
        .collect();
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

/// The mutants that have a place for a switch; of several at one place, the first.
pub(crate) fn plantable(dir: &Path, all: &[Located]) -> Vec<Located> {
    let mut first = BTreeMap::new();
    for located in all {
        first
            .entry((located.mutant.file.clone(), located.start))
            .or_insert_with(|| located.clone());
    }
    let mut files: BTreeMap<String, Vec<Located>> = BTreeMap::new();
    for (index, mut located) in first.into_values().enumerate() {
        located.mutant.number = index;
        files
            .entry(located.mutant.file.clone())
            .or_default()
            .push(located);
    }
    let mut plantable = Vec::new();
    for (file, mutants) in files {
        let source = fs::read_to_string(dir.join(file)).expect("a source");
        let places: BTreeSet<_> = edits(&source, &mutants.iter().collect::<Vec<_>>())
            .iter()
            .map(|edit| edit.number)
            .collect();
        plantable.extend(
            mutants
                .into_iter()
                .filter(|located| places.contains(&located.mutant.number)),
        );
    }
    plantable
}

/// Discards what an earlier run has planted.
pub(crate) fn restore(dir: &Path) {
    assert!(
        dir.join(".git").is_file(),
        "not a worktree of git: {}",
        dir.display()
    );
    let mut git = Command::new("git");
    git.arg("-C")
        .arg(dir)
        .args(["checkout", "--quiet", "HEAD", "--", "idem-runtime/src"]);
    assert!(git.status().expect("git runs").success());
}

/// Plants mutants into sources that have none.
pub(crate) fn plant(dir: &Path, mutants: &[Located]) {
    let mut files: BTreeMap<&str, Vec<&Located>> = BTreeMap::new();
    for located in mutants {
        files.entry(&located.mutant.file).or_default().push(located);
    }
    for (file, mutants) in files {
        let path = dir.join(file);
        let source = fs::read_to_string(&path).expect("a source");
        let mut text = String::new();
        render(
            &source,
            0..source.len(),
            &edits(&source, &mutants),
            &mut text,
        );
        fs::write(&path, text).expect("a source is written");
    }
    let path = dir.join("idem-runtime/src/lib.rs");
    let text = fs::read_to_string(&path).expect("lib.rs") + SWITCH;
    fs::write(path, text).expect("lib.rs is written");
}

pub(crate) struct Checked {
    /// The mutants that do not compile.
    pub(crate) faults: BTreeSet<usize>,
    pub(crate) compiled: BTreeSet<usize>,
}

/// The numbers of all switches in a text.
fn switches(text: &str) -> impl Iterator<Item = (usize, usize)> {
    text.match_indices("crate::mutant(").map(|(at, call)| {
        let digits = text[at + call.len()..]
            .split(')')
            .next()
            .expect("a first piece");
        (at, digits.parse().expect("a number"))
    })
}

/// Compiles the copy, where `mutants` are planted.
pub(crate) fn check(dir: &Path, mutants: usize) -> Checked {
    println!("compiles {mutants} mutants");
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(dir)
        .args(["check", "--workspace", "--all-features", "--lib", "--quiet"]);
    let output = cargo
        .arg("--message-format=json")
        .output()
        .expect("cargo runs");
    let mut checked = Checked {
        faults: BTreeSet::new(),
        compiled: BTreeSet::new(),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let value: Value = serde_json::from_str(line).expect("JSON of cargo");
        let message = &value["message"];
        if value["target"]["name"] != "idem_runtime"
            || message["spans"].as_array().is_none_or(Vec::is_empty)
        {
            continue;
        }
        let spans = message["spans"].as_array().into_iter().flatten();
        for span in spans.filter(|span| span["is_primary"] == true) {
            let place = |name: &str| {
                usize::try_from(span[name].as_u64().expect("a number")).expect("small")
            };
            let file = dir.join(span["file_name"].as_str().expect("a file"));
            let text = fs::read_to_string(file).expect("a source");
            let (from, to) = (place("byte_start"), place("byte_end"));
            if message["code"]["code"] == "deprecated" {
                let here =
                    switches(&text).filter(|(at, _)| (from..to).contains(&(at + 7)) || *at == from);
                checked.compiled.extend(here.map(|(_, number)| number));
            } else if message["level"] == "error" {
                // The last switch before the fault, which stands behind its switch.
                let fault = switches(&text).take_while(|(at, _)| *at < to).last();
                let (_, number) = fault.unwrap_or_else(|| panic!("{}", message["rendered"]));
                println!("{number}: {}", message["message"]);
                checked.faults.insert(number);
            }
        }
    }
    assert!(
        output.status.success() || !checked.faults.is_empty(),
        "the copy does not compile"
    );
    checked
}
