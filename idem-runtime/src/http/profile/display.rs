//! A profile as text: a line for each setting.

use std::fmt;

use ::http::{HeaderName, Method, StatusCode};

use super::Profile;
use crate::http::status::{KeyVerdict, StatusPolicy};
use crate::policy::{Policy, settings};

/// One line for each setting, `name: value`. What is open in the policy is the engine's.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |is| if is { "yes" } else { "no" };
        let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
        let lifetime = self.lifetime_header.as_ref().map(HeaderName::as_str);
        writeln!(f, "profile: {}", self.name)?;
        writeln!(f, "methods: {}", methods.join(", "))?;
        writeln!(f, "required: {}", yes(self.required))?;
        writeln!(f, "key_source: {}", self.source)?;
        writeln!(f, "keys: {}", self.keys)?;
        writeln!(f, "key_domain: {}", self.domain)?;
        writeln!(f, "fingerprint: {}", self.fingerprinter)?;
        writeln!(f, "status_policy: {}", Verdicts(&self.status))?;
        writeln!(f, "refusals: {}", self.refusals)?;
        writeln!(f, "stored headers: {}", self.headers)?;
        writeln!(f, "echo_key: {}", yes(self.echoes_key))?;
        writeln!(f, "echo_lifetime: {}", lifetime.unwrap_or("no"))?;
        for (name, value) in lines(&self.policy) {
            let open = match name {
                "error_ttl" if self.policy.ttl.is_some() => "that of ttl",
                "on_panic" => "by status_policy",
                _ => "the engine's",
            };
            writeln!(f, "{name}: {}", value.as_deref().unwrap_or(open))?;
        }
        Ok(())
    }
}

macro_rules! policy_lines {
    (|$policy:ident| $($(#[$doc:meta])* $name:ident: $ty:ty = $default:expr;)*) => {
        [$((stringify!($name), $policy.$name.map(|value| format!("{value:?}")))),*]
    };
}

/// The settings of a policy by name; `None`: it is open.
fn lines(policy: &Policy) -> impl IntoIterator<Item = (&'static str, Option<String>)> {
    settings!(policy_lines! { |policy| })
}

/// The statuses of each verdict, in ranges.
struct Verdicts<'p>(&'p StatusPolicy);

impl fmt::Display for Verdicts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = |code: u16| {
            let status = StatusCode::from_u16(code).ok()?;
            Some(self.0.verdict(status))
        };
        for (name, of) in [
            ("release", KeyVerdict::Release),
            ("unknown", KeyVerdict::Unknown),
        ] {
            let mut ranges: Vec<(u16, u16)> = Vec::new();
            for code in (100..=599).filter(|code| verdict(*code) == Some(of)) {
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == code => *last = code,
                    _ => ranges.push((code, code)),
                }
            }
            if !ranges.is_empty() {
                let ranges: Vec<_> = ranges
                    .iter()
                    .map(|(first, last)| {
                        if first == last {
                            first.to_string()
                        } else {
                            format!("{first}-{last}")
                        }
                    })
                    .collect();
                write!(f, "{name} {}; ", ranges.join(", "))?;
            }
        }
        f.write_str("store the rest")?;
        if self.0.binds() {
            f.write_str("; a released key keeps its request")?;
        }
        Ok(())
    }
}
