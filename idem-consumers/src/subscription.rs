//! The subscription of a consumer, and the policy for its loss.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Longest name of a subscription that is a scope as it is; a longer one is hashed.
const MAX_BYTES: usize = 512;

/// Where a source continues when the broker has lost its subscription.
///
/// A broker loses a subscription when an operator deletes it, or a server comes back without its data. A new one begins
/// somewhere, and either skips messages or delivers old ones again, of which those older than their record's `ttl` run
/// again. So the default is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnLostSubscription {
    /// [`run`](crate::Consumer::run) ends with an error that names the subscription.
    #[default]
    Fail,
    /// With this process's first unsettled message, else after its last one. As `Fail` in a process that has received
    /// none; with NATS such a process continues after the last message that the durable had delivered when the process
    /// opened it.
    ///
    /// Messages that other processes settled meanwhile are delivered again, and replayed from their records. Those whose
    /// record has expired (`ttl`) run again. A process forgets the messages that other processes settled
    /// when it next takes messages over, up to the first unsettled one.
    Resume,
    /// With the next message that is sent. Earlier ones that were not delivered are skipped.
    FromNow,
    /// With the first message that the broker keeps. All of them are delivered again.
    FromStart,
}

impl OnLostSubscription {
    /// One word for logs, such as `from-now`.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Resume => "resume",
            Self::FromNow => "from-now",
            Self::FromStart => "from-start",
        }
    }
}

/// Whether the subscription is part of the name of a message's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subscription {
    /// That of the source.
    OfSource,
    Named(String),
    Without,
}

impl Subscription {
    /// The scope of the calls.
    pub(super) fn scope(&self, of_source: Option<String>) -> Option<String> {
        let name = match self {
            Self::OfSource => of_source?,
            Self::Named(name) => name.clone(),
            Self::Without => return None,
        };
        if name.len() <= MAX_BYTES {
            return Some(name).filter(|name| !name.is_empty());
        }
        let mut hashed = String::from("sha256:");
        for byte in Sha256::digest(name) {
            let _ = write!(hashed, "{byte:02x}");
        }
        Some(hashed)
    }
}

/// The name of a subscription; other parts have another name.
#[cfg(any(
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis-streams",
    test
))]
pub(super) fn name(broker: &str, parts: [&str; 2]) -> String {
    let [first, second] = parts.map(|part| part.replace('%', "%25").replace('/', "%2F"));
    format!("{broker}:{first}/{second}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_subscriptions_have_one_name() {
        let names = [
            name("redis", ["bills", "collectors"]),
            name("kafka", ["bills", "collectors"]),
            name("redis", ["bills/collectors", ""]),
            name("redis", ["bills", "/collectors"]),
            name("redis", ["bills%2F", "collectors"]),
            name("redis", ["bills/", "collectors"]),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(!names[at + 1..].contains(one), "{one}");
        }
        assert_eq!(names[0], "redis:bills/collectors");
    }

    #[test]
    fn a_name_of_any_length_is_a_scope() {
        let of = |subscription: Subscription, name: &str| subscription.scope(Some(name.to_owned()));
        let long = ["a".repeat(513), "b".repeat(2_000)];
        let [first, second] = long.map(|name| of(Subscription::OfSource, &name).unwrap());
        assert_ne!(first, second);
        assert_eq!(first.len(), 71);
        assert_eq!(
            of(Subscription::OfSource, &"a".repeat(512)).unwrap().len(),
            512
        );
        assert_eq!(of(Subscription::OfSource, ""), None);
        assert_eq!(of(Subscription::Without, "a"), None);
        assert_eq!(of(Subscription::Named("b".into()), "a").unwrap(), "b");
    }
}
