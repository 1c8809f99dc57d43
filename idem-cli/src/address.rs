//! The address of a store: its feature, its password, and what of it may be shown.

use crate::failure::Failure;

/// The URL of a store. No `Debug` of the whole: it may contain a password.
pub(crate) struct Address {
    /// The feature of its store, by the scheme of the URL.
    pub(crate) feature: &'static str,
    /// The URL that the store takes.
    pub(crate) url: String,
}

impl Address {
    pub(crate) fn parse(url: &str, password: Option<&str>) -> Result<Self, Failure> {
        let url = url.trim();
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(unknown());
        };
        let scheme = scheme.to_ascii_lowercase();
        let feature = match scheme.as_str() {
            "redis" | "rediss" | "unix" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
            | "redis+cluster" | "rediss+cluster" => "redis",
            "postgres" | "postgresql" => "postgres",
            "mysql" | "mariadb" => "mysql",
            "sqlite" => "sqlite",
            _ => return Err(unknown()),
        };
        let scheme = match scheme.as_str() {
            "redis+unix" => "unix",
            "mariadb" => "mysql",
            scheme => scheme,
        };
        let rest = match password {
            Some(password) => with_password(scheme, rest, password)?,
            None => rest.to_owned(),
        };
        Ok(Self {
            feature,
            url: format!("{scheme}:{rest}"),
        })
    }

    /// The path of a SQLite file.
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "of that store alone")
    )]
    pub(crate) fn path(&self) -> &str {
        let path = self.url.strip_prefix("sqlite:").unwrap_or(&self.url);
        let path = path.strip_prefix("//").unwrap_or(path);
        path.split('?').next().unwrap_or(path)
    }
}

fn unknown() -> Failure {
    Failure::usage(
        "the store's URL begins with one of `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, \
         `redis+cluster://`, `postgres://`, `mysql://`, `sqlite:`",
    )
}

/// The rest of a URL with this password in it.
fn with_password(scheme: &str, rest: &str, password: &str) -> Result<String, Failure> {
    let password = percent_encoded(password);
    if scheme == "unix" {
        let and = if rest.contains('?') { '&' } else { '?' };
        return Ok(format!("{rest}{and}pass={password}"));
    }
    let Some(rest) = rest.strip_prefix("//").filter(|_| scheme != "sqlite") else {
        return Err(Failure::usage(
            "this store has no password, and IDEM_PASSWORD is set",
        ));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains(':') {
        return Err(Failure::usage(
            "the URL has a password, and IDEM_PASSWORD is set: leave one of them out",
        ));
    }
    Ok(format!("//{user}:{password}@{host}{path}"))
}

fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The URL without passwords, to be shown.
pub(crate) fn redacted(url: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let shown = place.split_once("://").and_then(|(scheme, rest)| {
        // A password may contain a slash that is not encoded; the last `@` ends it in any case.
        let (user, host) = rest.rsplit_once('@')?;
        let password = user.split_once(':');
        let (user, password) = password.map_or((user, ""), |(user, _)| (user, ":***"));
        Some(format!("{scheme}://{user}{password}@{host}"))
    });
    // Drivers take passwords and paths of keys in the query.
    let query = if query.is_empty() { "" } else { "?…" };
    shown.unwrap_or_else(|| place.to_owned()) + query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_password() {
        for (url, shown) in [
            ("redis://localhost", "redis://localhost"),
            (
                "redis://:s3cret@localhost:1/2",
                "redis://:***@localhost:1/2",
            ),
            ("redis://ann:s3/cr@t@localhost", "redis://ann:***@localhost"),
            ("unix:///run/r.sock?pass=s3cret", "unix:///run/r.sock?…"),
            (
                "postgres://ann:s3cret@db/shop?password=s3cret",
                "postgres://ann:***@db/shop?…",
            ),
            ("postgres://ann@db/shop", "postgres://ann@db/shop"),
            ("sqlite:/var/lib/idem.db", "sqlite:/var/lib/idem.db"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn a_password_of_the_environment_is_put_into_the_url() {
        let url = |url, password| Address::parse(url, password).map(|address| address.url);
        let with = |given| url(given, Some("a/b@c")).unwrap();
        assert_eq!(with("redis://host/1"), "redis://:a%2Fb%40c@host/1");
        assert_eq!(
            with("postgres://ann@host/db"),
            "postgres://ann:a%2Fb%40c@host/db"
        );
        assert_eq!(
            with("redis+unix:///r.sock?db=1"),
            "unix:///r.sock?db=1&pass=a%2Fb%40c"
        );
        assert!(url("redis://:one@host", Some("two")).is_err());
        assert!(url("sqlite:file.db", Some("two")).is_err());
        assert_eq!(url("mariadb://host/db", None).unwrap(), "mysql://host/db");
        for wrong in ["", "localhost:6379", "http://localhost"] {
            let Err(failure) = url(wrong, None) else {
                panic!("{wrong}");
            };
            assert!(failure.to_string().contains("redis://"), "{failure}");
        }
    }
}
