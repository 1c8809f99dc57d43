//! The response that a specification has for a request that is refused.

use serde_json::Value;

use super::response::ServerResponse;
use super::result::{Checked, failed};

/// The requirements of a refusal: one of these statuses, and these parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalShape {
    statuses: &'static [u16],
    /// Members of the JSON body, by pointers, and headers, by names.
    parts: &'static [(&'static str, Part)],
    /// Whether the member `type` or the header `Link` leads to documentation.
    is_documented: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// This text.
    Is(&'static str),
    /// A text that begins so.
    Begins(&'static str),
    /// A text that is not empty.
    Text,
    /// The number of the status.
    Status,
    /// This truth value.
    Holds(bool),
    /// A number of seconds, as text.
    Seconds,
}

pub(super) const fn refused(statuses: &'static [u16]) -> RefusalShape {
    RefusalShape {
        statuses,
        parts: &[],
        is_documented: false,
    }
}

fn is_member(place: &str) -> bool {
    place.starts_with('/')
}

impl RefusalShape {
    pub(super) const fn with(mut self, parts: &'static [(&'static str, Part)]) -> Self {
        self.parts = parts;
        self
    }

    pub(super) const fn documented(mut self) -> Self {
        self.is_documented = true;
        self
    }

    fn is_met(&self, answer: &ServerResponse) -> bool {
        let part = |(place, want): &(&str, Part)| {
            let value = if is_member(place) {
                answer.member(place)
            } else {
                answer.header(place).map(Value::from)
            };
            let value = value.unwrap_or_default();
            let text = value.as_str();
            match want {
                Part::Is(expected) => value == *expected,
                Part::Begins(start) => text.is_some_and(|it| it.starts_with(start)),
                Part::Text => text.is_some_and(|it| !it.is_empty()),
                Part::Status => value == answer.status.as_u16(),
                Part::Holds(truth) => value == *truth,
                Part::Seconds => text.is_some_and(|it| it.parse::<u64>().is_ok()),
            }
        };
        self.statuses.contains(&answer.status.as_u16())
            && self.parts.iter().all(part)
            && (!self.is_documented || has_link(answer))
    }

    /// The refusal in words.
    pub(super) fn phrase(&self) -> String {
        let statuses: Vec<_> = self.statuses.iter().map(u16::to_string).collect();
        let mut phrase = statuses.join(" or ");
        let parts = self.parts.iter().map(|(place, want)| match want {
            Part::Is(text) if is_member(place) => format!("`{place}` \"{text}\""),
            Part::Is(text) => format!("`{place}: {text}`"),
            Part::Begins(start) => format!("`{place}` \"{start}…\""),
            Part::Text => format!("a text `{place}`"),
            Part::Status => format!("`{place}` the status"),
            Part::Holds(truth) => format!("`{place}` {truth}"),
            Part::Seconds => format!("`{place}` in seconds"),
        });
        let mut parts: Vec<_> = parts.collect();
        if self.is_documented {
            parts.push("a link to documentation".to_owned());
        }
        if !parts.is_empty() {
            phrase.push_str(" with ");
            phrase.push_str(&parts.join(", "));
        }
        phrase
    }

    pub(super) fn verify(&self, answer: &ServerResponse) -> Checked {
        if self.is_met(answer) {
            return Ok(());
        }
        let mut got = answer.shown();
        for (name, _) in self.parts.iter().filter(|(place, _)| !is_member(place)) {
            let value = answer.header(name).unwrap_or("none");
            got.extend(["; ", name, ": ", value]);
        }
        failed(self.phrase(), got)
    }
}

/// A problem document whose `type` is an address, or a `describedby` link.
fn has_link(answer: &ServerResponse) -> bool {
    let is_address = |value: Value| {
        let text = value.as_str().unwrap_or_default();
        text.starts_with("https://") || text.starts_with("http://")
    };
    let link = answer.header("link").unwrap_or_default();
    answer.member("/type").is_some_and(is_address)
        || link.starts_with('<') && link.contains("describedby")
}
