//! The response that a specification has for a request that is refused.

use serde_json::Value;

use super::answer::Answer;
use super::finding::{Checked, failed};

/// What a refusal must have: one of these statuses, these members of its JSON body, these headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) statuses: &'static [u16],
    /// By JSON pointer.
    pub(super) members: &'static [(&'static str, Member)],
    pub(super) headers: &'static [(&'static str, Header)],
    /// Whether it has a link to documentation, as the member `type` or as the header `Link`.
    pub(super) is_documented: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Member {
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
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Header {
    /// This text.
    Is(&'static str),
    /// A number of seconds.
    Seconds,
}

pub(super) const fn refused(statuses: &'static [u16]) -> Refusal {
    Refusal {
        statuses,
        members: &[],
        headers: &[],
        is_documented: false,
    }
}

impl Refusal {
    pub(super) const fn members(mut self, members: &'static [(&'static str, Member)]) -> Self {
        self.members = members;
        self
    }

    pub(super) const fn headers(mut self, headers: &'static [(&'static str, Header)]) -> Self {
        self.headers = headers;
        self
    }

    pub(super) const fn documented(mut self) -> Self {
        self.is_documented = true;
        self
    }

    fn is_met(&self, answer: &Answer) -> bool {
        let member = |(pointer, want): &(&str, Member)| {
            let value = answer.member(pointer).unwrap_or_default();
            match want {
                Member::Is(text) => value == *text,
                Member::Begins(start) => value.as_str().is_some_and(|it| it.starts_with(start)),
                Member::Text => value.as_str().is_some_and(|it| !it.is_empty()),
                Member::Status => value == answer.status.as_u16(),
                Member::Holds(truth) => value == *truth,
            }
        };
        let header = |(name, want): &(&str, Header)| {
            let value = answer.header(name).unwrap_or_default();
            match want {
                Header::Is(text) => value == *text,
                Header::Seconds => value.parse::<u64>().is_ok(),
            }
        };
        self.statuses.contains(&answer.status.as_u16())
            && self.members.iter().all(member)
            && self.headers.iter().all(header)
            && (!self.is_documented || has_link(answer))
    }

    /// The refusal in words.
    pub(super) fn phrase(&self) -> String {
        let statuses: Vec<_> = self.statuses.iter().map(u16::to_string).collect();
        let mut phrase = statuses.join(" or ");
        let members = self.members.iter().map(|(pointer, want)| match want {
            Member::Is(text) => format!("`{pointer}` \"{text}\""),
            Member::Begins(start) => format!("`{pointer}` \"{start}…\""),
            Member::Text => format!("a text `{pointer}`"),
            Member::Status => format!("`{pointer}` the status"),
            Member::Holds(truth) => format!("`{pointer}` {truth}"),
        });
        let headers = self.headers.iter().map(|(name, want)| match want {
            Header::Is(text) => format!("`{name}: {text}`"),
            Header::Seconds => format!("`{name}` in seconds"),
        });
        let link = self
            .is_documented
            .then(|| "a link to documentation".to_owned());
        let parts: Vec<_> = members.chain(headers).chain(link).collect();
        if !parts.is_empty() {
            phrase.push_str(" with ");
            phrase.push_str(&parts.join(", "));
        }
        phrase
    }

    pub(super) fn verify(&self, answer: &Answer) -> Checked {
        if self.is_met(answer) {
            Ok(())
        } else {
            let headers = self.headers.iter().map(|(name, _)| {
                let value = answer.header(name).unwrap_or("none");
                format!("; {name}: {value}")
            });
            let headers: String = headers.collect();
            failed(self.phrase(), format!("{}{headers}", answer.shown()))
        }
    }
}

/// A problem document whose `type` is an address, or a link of the relation `describedby`.
fn has_link(answer: &Answer) -> bool {
    let is_address = |value: Value| {
        let text = value.as_str().unwrap_or_default();
        text.starts_with("https://") || text.starts_with("http://")
    };
    let link = answer.header("link").unwrap_or_default();
    answer.member("/type").is_some_and(is_address)
        || link.starts_with('<') && link.contains("describedby")
}
