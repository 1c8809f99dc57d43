//! Owners of keys.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use ::http::request::Parts;
use sha2::{Digest as _, Sha256};

/// The longest scope that is used as it is, in bytes.
///
/// A longer one, such as a signed token, is hashed, because it would exceed the limit of a key.
const MAX: usize = 512;

type FindScope = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// The owners of a layer's keys.
#[derive(Clone)]
pub(super) enum CallerScope {
    /// All clients share the keys.
    Public,
    /// The owner that this function returns.
    Of(Arc<FindScope>),
}

/// Error of a request without an owner of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownCaller;

impl CallerScope {
    pub(super) fn of(find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::Of(Arc::new(find))
    }

    /// The scope of a known caller, as [`find`](Self::find) returns it.
    pub(super) fn named(&self, scope: Option<&str>) -> Result<Option<String>, UnknownCaller> {
        match (self, scope) {
            (Self::Public, None) => Ok(None),
            (Self::Of(_), Some(scope)) if !scope.trim().is_empty() => {
                Ok(Some(fitting(scope.into()).into_owned()))
            }
            _ => Err(UnknownCaller),
        }
    }

    /// The scope of a request; `None` if all clients share the keys.
    pub(super) fn find(&self, request: &Parts) -> Result<Option<String>, UnknownCaller> {
        match self {
            Self::Public => Ok(None),
            Self::Of(find) => match find(request) {
                Some(scope) if scope.trim().is_empty() => Err(UnknownCaller),
                Some(scope) => Ok(Some(fitting(scope.into()).into_owned())),
                None => Err(UnknownCaller),
            },
        }
    }
}

/// Hashes a scope that is too long.
///
/// The result has a length that no unhashed scope has, so that the two cannot collide.
fn fitting(scope: Cow<'_, str>) -> Cow<'_, str> {
    if scope.len() <= MAX {
        return scope;
    }
    let mut text = String::with_capacity(MAX + 1);
    for byte in Sha256::digest(scope.as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    format!("{text:=>width$}", width = MAX + 1).into()
}

impl fmt::Debug for CallerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "Public",
            Self::Of(_) => "Of(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(scope: &str) -> Result<Option<String>, UnknownCaller> {
        let scope = scope.to_owned();
        let (parts, ()) = ::http::Request::new(()).into_parts();
        CallerScope::of(move |_| Some(scope.clone())).find(&parts)
    }

    #[test]
    fn a_blank_scope_has_no_owner() {
        assert_eq!(found(""), Err(UnknownCaller));
        assert_eq!(found(" \t"), Err(UnknownCaller));
        assert_eq!(found("acme"), Ok(Some("acme".to_owned())));
    }

    #[test]
    fn a_caller_that_is_known_has_the_scope_of_its_requests() {
        let of = CallerScope::of(|_| None);
        for scope in ["acme", &"x".repeat(MAX + 1)] {
            assert_eq!(of.named(Some(scope)), found(scope));
        }
        for (of, scope) in [
            (&of, None),
            (&of, Some(" ")),
            (&CallerScope::Public, Some("acme")),
        ] {
            assert_eq!(of.named(scope), Err(UnknownCaller));
        }
        assert_eq!(CallerScope::Public.named(None), Ok(None));
    }

    #[test]
    fn long_scopes_stay_apart_and_fit() {
        let long = |end: &str| {
            found(&format!("{}{end}", "x".repeat(MAX)))
                .unwrap()
                .unwrap()
        };
        assert_ne!(long("1"), long("2"));
        assert_eq!(long("1").len(), MAX + 1);
        // A scope of the form of a hash is hashed itself.
        assert_ne!(found(&long("1")).unwrap().unwrap(), long("1"));
        assert_eq!(found(&"x".repeat(MAX)).unwrap().unwrap(), "x".repeat(MAX));
    }
}
