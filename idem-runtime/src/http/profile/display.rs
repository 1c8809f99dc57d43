//! A profile as text: a line for each setting.

use std::fmt;

use ::http::{HeaderName, Method};

use super::Profile;
use crate::policy::{Policy, settings};

/// One line for each setting, `name: value`; open ones are the engine's.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |is| if is { "yes" } else { "no" };
        let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
        let life = self.life_header.as_ref().map(HeaderName::as_str);
        writeln!(f, "profile: {}", self.name)?;
        writeln!(f, "methods: {}", methods.join(", "))?;
        writeln!(f, "required: {}", yes(self.required))?;
        writeln!(f, "key_source: {}", self.source)?;
        writeln!(f, "keys: {}", self.keys)?;
        writeln!(f, "key_domain: {}", self.domain)?;
        writeln!(f, "fingerprint: {}", self.fingerprinter)?;
        writeln!(f, "status_policy: {}", self.status)?;
        writeln!(f, "refusals: {}", self.refusals)?;
        writeln!(f, "stored headers: {}", self.headers)?;
        writeln!(f, "echo_key: {}", yes(self.echoes_key))?;
        writeln!(f, "echo_life: {}", life.unwrap_or("no"))?;
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
