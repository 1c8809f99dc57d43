//! Imports of folders point one way; imports of files have no circle.
//!
//! The folders are those of `idem-runtime/src`, as `CONTRIBUTING.md` draws them; the files, also those of
//! `idem-consumers`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest to the highest: each imports only from the layers before it.
const LAYERS: [&str; 14] = [
    "debug", "error", "identity", "record", "outcome", "policy", "env", "store", "local", "call",
    "engine", "http", "grpc", "testing",
];

/// Modules that may import any layer, and that no layer imports: the crate's own front, and its documentation.
const FRONT: [&str; 4] = ["lib", "__private", "guide", "docs"];

/// An import against the order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wrong {
    file: String,
    line: usize,
    import: String,
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// First part of a path within the crate: folder or file.
fn root(path: &str) -> &str {
    let first = path.split(['/', ':']).next().unwrap_or(path);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The source without comments and without the tests at its end.
fn code(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = source.split("#[cfg(test)]\nmod tests").next();
    let lines = code.unwrap_or(source).lines().enumerate();
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The imports of a file against the order. Tests within it may import anything.
fn wrong(file: &str, source: &str) -> BTreeSet<Wrong> {
    let mut wrong = BTreeSet::new();
    let here = root(file);
    if FRONT.contains(&here) || file.contains("/tests") {
        return wrong;
    }
    let layer = |name| LAYERS.iter().position(|layer| *layer == name);
    let mine = layer(here).unwrap_or_else(|| panic!("{file}: no place for {here} in the order"));
    for (number, line) in code(source) {
        for import in line.split("crate::").skip(1) {
            let there = root(import);
            let there = there
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            // A name of the root is that of an item, such as `crate::Error` in a macro.
            let is_higher = there.and_then(layer).is_some_and(|there| there > mine);
            if is_higher {
                wrong.insert(Wrong {
                    file: file.to_owned(),
                    line: number + 1,
                    import: format!("crate::{import}"),
                });
            }
        }
    }
    wrong
}

/// The module of a file: `store::sql` of `store/sql/mod.rs`.
fn module(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace('/', "::")
}

/// The paths of a use tree: `a::{b, c::D}` are `a::b` and `a::c::D`. Gives the rest of the text after it.
fn use_tree<'t>(before: &str, text: &'t str, paths: &mut Vec<String>) -> &'t str {
    let name = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, mut rest) = text.split_at(name.unwrap_or(text.len()));
    let path = format!("{before}{name}");
    if !name.is_empty() && rest.starts_with("::") {
        return use_tree(&format!("{path}::"), &rest[2..], paths);
    }
    if name.is_empty() && rest.starts_with('{') {
        while !rest.starts_with('}') && !rest.is_empty() {
            rest = rest[1..].trim_start();
            rest = use_tree(before, rest, paths);
            // Up to the next tree: ` as Name`, `*`, white space.
            rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    // After the last comma of a list there is nothing.
    if !name.is_empty() || rest.starts_with('*') {
        paths.push(path.trim_end_matches("::").to_owned());
    }
    rest
}

/// Modules in a file's paths that begin with `crate`, `super`, `self`.
fn named(file: &str, source: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mine = module(file);
    let mut text = String::new();
    let mut inline = None;
    for (_, line) in code(source) {
        // Modules within a file end at the first column, as rustfmt puts it.
        if let Some((visibility, name)) = line.split_once("mod ")
            && let Some(name) = name.strip_suffix(" {")
            && (visibility.is_empty() || visibility.starts_with("pub"))
        {
            inline = Some(name);
        } else if line == "}" {
            inline = None;
        }
        let here = inline.map_or_else(|| mine.clone(), |name| format!("{mine}::{name}"));
        let mut line = line.to_owned();
        while let Some(at) = path_start(&line, "super::") {
            let mut end = at;
            let mut up = here.as_str();
            while line[end..].starts_with("super::") {
                up = up.rsplit_once("::").map_or("", |(up, _)| up);
                end += "super::".len();
            }
            line.replace_range(
                at..end,
                &format!("crate::{up}::").replace("crate::::", "crate::"),
            );
        }
        while let Some(at) = path_start(&line, "self::") {
            line.replace_range(at..at + "self::".len(), &format!("crate::{here}::"));
        }
        text.push_str(&line);
        text.push('\n');
    }
    let mut paths = Vec::new();
    for tree in text.split("crate::").skip(1) {
        use_tree("", tree, &mut paths);
    }
    let modules = paths.iter().filter_map(|path| {
        let mut path = path.as_str();
        while !modules.contains(path) {
            path = path.rsplit_once("::")?.0;
        }
        (path != mine).then(|| path.to_owned())
    });
    modules.collect()
}

/// Positions of this name at the beginning of a path.
fn path_start(line: &str, start: &str) -> Option<usize> {
    let mut found = line.match_indices(start).map(|(at, _)| at);
    found.find(|at| {
        let before = line[..*at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

/// The modules that each module reaches, by whatever way.
fn reached(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<&str, BTreeSet<&str>> {
    let reach = |from| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            for import in imports.get(module).into_iter().flatten() {
                if reached.insert(import.as_str()) {
                    next.push(import);
                }
            }
        }
        reached
    };
    let reached = imports.keys().map(|from| (from.as_str(), reach(from)));
    reached.collect()
}

/// Sets of modules that reach each other, in order.
fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Vec<&str>> {
    let reached = reached(imports);
    let mut circles = BTreeSet::new();
    for (module, reach) in &reached {
        let mut circle = reach.clone();
        circle.retain(|other| reached.get(other).is_some_and(|back| back.contains(module)));
        if circle.len() > 1 {
            circles.insert(circle.into_iter().collect());
        }
    }
    circles
}

/// Files of a crate, at least so many: path and source.
fn files(package: &str, least: usize) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let src = root.join(package).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > least, "{package}: {} files", files.len());
    let read = |path: PathBuf| {
        let file = path.strip_prefix(&src).expect("a file of the crate");
        let source = fs::read_to_string(&path).expect("a source");
        (file.to_string_lossy().into_owned(), source)
    };
    files.into_iter().map(read).collect()
}

/// What each module of these files names.
fn imports(files: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let is_test = |file: &str| file.contains("/tests") || FRONT.contains(&root(file));
    let files: Vec<_> = files.iter().filter(|(file, _)| !is_test(file)).collect();
    let modules = files.iter().map(|(file, _)| module(file)).collect();
    let named = |(file, source): &&(String, String)| (module(file), named(file, source, &modules));
    files.iter().map(named).collect()
}

#[test]
fn files_import_each_other_without_circles() {
    for (package, least) in [("idem-runtime", 100), ("idem-consumers", 20)] {
        let imports = imports(&files(package, least));
        let circles = circles(&imports);
        assert!(circles.is_empty(), "{package}: {circles:#?}");
    }
}

#[test]
fn a_circle_of_files_is_found() {
    let file = |file: &str, source: &str| (file.to_owned(), source.to_owned());
    let mut files = vec![
        file("store/mod.rs", "mod claim;\nmod read;\npub mod sql;\n"),
        file(
            "store/claim.rs",
            "use super::read::{self, Reply as R};\n// use crate::store::sql::row;\n",
        ),
        file(
            "store/read.rs",
            "use crate::{\n    Error,\n    store::{Store, sql::{self, row}},\n};\n",
        ),
        file(
            "store/sql/mod.rs",
            "mod row;\n#[cfg(test)]\nmod tests { use super::super::claim; }",
        ),
        file("store/sql/row.rs", "mod inner {\n    use super::Row;\n}\n"),
    ];
    let found = imports(&files);
    let set = |modules: &[&str]| modules.iter().map(|module| (*module).to_owned()).collect();
    let read: BTreeSet<String> = set(&["store", "store::sql", "store::sql::row"]);
    assert_eq!(found["store::read"], read);
    assert_eq!(circles(&found), BTreeSet::new());
    // A path in code, two modules up.
    files[4]
        .1
        .push_str("fn row() -> super::super::claim::Claim {}\n");
    let circle = vec!["store::claim", "store::read", "store::sql::row"];
    assert_eq!(circles(&imports(&files)), BTreeSet::from([circle]));
    // The child names its parent, which names the child.
    files[3].1 = "pub use self::row::Row;\n".to_owned();
    files[4].1 = "const ALL: usize = super::ALL;\n".to_owned();
    let circle = vec!["store::sql", "store::sql::row"];
    assert_eq!(circles(&imports(&files)), BTreeSet::from([circle]));
}

#[test]
fn imports_point_one_way() {
    let mut all = BTreeSet::new();
    for (file, source) in files("idem-runtime", 100) {
        all.extend(wrong(&file, &source));
    }
    assert!(
        all.is_empty(),
        "imports against the order {LAYERS:?}: {all:#?}"
    );
}

#[test]
fn an_import_against_the_order_is_found() {
    let source = "use crate::record::Record;\nuse crate::call::lease::Lease;\n";
    let found = wrong("local/singleflight.rs", source);
    let [one] = found
        .into_iter()
        .collect::<Vec<_>>()
        .try_into()
        .expect("one");
    let Wrong { line, import, .. } = one;
    assert_eq!((line, import.as_str()), (2, "crate::call::lease::Lease;"));
    // A path in code, outside of comments and tests.
    assert_eq!(
        wrong("record/mod.rs", "let x = crate::store::x();\n").len(),
        1
    );
    assert!(
        wrong(
            "record/mod.rs",
            "// crate::store\n#[cfg(test)]\nmod tests { use crate::store; }"
        )
        .is_empty()
    );
    assert!(wrong("record/tests.rs", "use crate::store;").is_empty());
}
