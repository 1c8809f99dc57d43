//! The path of `idem-runtime` where `crate` does not name it.

use proc_macro2::{Ident, Span};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// `::idem_runtime`, or the name that the dependency has instead.
pub(crate) fn default_path() -> syn::Path {
    // A macro runs in the compiler, whose options name the dependencies. Without them the default applies.
    match other_name(std::env::args_os()) {
        Some(name) => {
            let name = Ident::new(&name, Span::mixed_site());
            syn::parse_quote!(::#name)
        }
        None => syn::parse_quote!(::idem_runtime),
    }
}

/// The renamed crate in `--extern name=libidem_runtime-0123.rmeta`.
fn other_name(options: impl Iterator<Item = OsString>) -> Option<String> {
    let mut other = None;
    for option in options.filter_map(|option| option.into_string().ok()) {
        let Some((name, file)) = option.split_once('=') else {
            continue;
        };
        // `priv:name`, and `--extern=name=file`.
        let (name, file) = match file.split_once('=') {
            Some((inner, file)) if name == "--extern" => (inner, file),
            _ => (name, file),
        };
        let name = name.rsplit(':').next().unwrap_or(name);
        if name == "idem_runtime" {
            return None;
        }
        let file = Path::new(file).file_name().and_then(OsStr::to_str);
        if file.is_some_and(|file| file.starts_with("libidem_runtime-"))
            && other.replace(name.to_owned()).is_some()
        {
            // Two versions, of which neither is meant more than the other.
            return None;
        }
    }
    other
}

#[cfg(test)]
mod tests {
    use super::other_name;

    /// No other test builds a crate whose dependency has another name.
    #[test]
    fn a_renamed_dependency_is_found() {
        let idem = "idem=/target/debug/deps/libidem_runtime-0a1b.rmeta";
        let other = "rustc --extern serde=/target/libserde-1.rmeta --cfg a=\"b\"";
        for (options, expected) in [
            (other.to_owned(), None),
            (format!("--extern {idem}"), Some("idem")),
            (format!("--extern priv:{idem}"), Some("idem")),
            (format!("--extern={idem}"), Some("idem")),
            (
                format!("--extern {idem} --extern idem_runtime=/libidem_runtime-2.rmeta"),
                None,
            ),
            (
                format!("--extern {idem} --extern idem1=/libidem_runtime-3.rmeta"),
                None,
            ),
        ] {
            let name = other_name(options.split(' ').map(Into::into));
            assert_eq!(name.as_deref(), expected, "{options}");
        }
    }
}
