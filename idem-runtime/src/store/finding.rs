//! Findings of a check of a server, for an operator.

use std::fmt;

/// A finding about the server of a store, for an operator.
///
/// Made by `RedisStore::report` and `SqlStore::findings`. It contains no address, no user and no password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Whether the guarantee holds with it.
    pub level: FindingLevel,
    /// The subject of the check, such as `persistence`.
    pub topic: &'static str,
    /// The state of the server.
    pub fact: String,
    /// The consequence for the guarantee; may be empty.
    pub meaning: String,
    /// What to set; empty where nothing has to be done.
    pub remedy: String,
}

/// The level of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingLevel {
    /// Nothing has to be done.
    Ok,
    /// The guarantee has an exception, or could not be checked.
    Warn,
    /// The guarantee does not hold, or calls are refused.
    Fail,
}

impl fmt::Display for FindingLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// A sentence: the topic, the state, the consequence and the remedy.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.topic, self.fact)?;
        for more in [&self.meaning, &self.remedy] {
            if !more.is_empty() {
                write!(f, "; {more}")?;
            }
        }
        Ok(())
    }
}

impl Finding {
    /// A finding without consequences.
    pub fn ok(topic: &'static str, fact: impl Into<String>) -> Self {
        Self::new(FindingLevel::Ok, topic, fact)
    }

    /// An exception to the guarantee.
    pub fn warn(topic: &'static str, fact: impl Into<String>) -> Self {
        Self::new(FindingLevel::Warn, topic, fact)
    }

    /// A fault that breaks the guarantee, or stops calls.
    pub fn fail(topic: &'static str, fact: impl Into<String>) -> Self {
        Self::new(FindingLevel::Fail, topic, fact)
    }

    fn new(level: FindingLevel, topic: &'static str, fact: impl Into<String>) -> Self {
        Self {
            level,
            topic,
            fact: fact.into(),
            meaning: String::new(),
            remedy: String::new(),
        }
    }

    /// Adds the consequence.
    #[must_use]
    pub fn means(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = meaning.into();
        self
    }

    /// Adds the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

#[cfg(any(feature = "_mysql", feature = "_postgres", feature = "redis"))]
impl Finding {
    /// The finding about the server's clock, `ahead_us` microseconds ahead of this machine; negative: the server is
    /// behind.
    pub(crate) fn of_clock(ahead_us: Option<i64>) -> Self {
        const TOPIC: &str = "clock";
        let Some(ahead_us) = ahead_us else {
            return Self::warn(TOPIC, "the server does not show its time")
                .means("leases and lives are measured by that clock alone; a step of it ends or prolongs them")
                .remedy("make sure that the server runs NTP and slews its clock");
        };
        let behind = ahead_us < 0;
        let millis = ahead_us.unsigned_abs() / 1_000;
        let side = if behind { "behind" } else { "ahead of" };
        let fact = format!(
            "{}.{:03} s {side} this machine",
            millis / 1_000,
            millis % 1_000
        );
        if millis == 0 {
            return Self::ok(TOPIC, "that of this machine, to the millisecond");
        }
        if millis < 1_000 {
            return Self::ok(TOPIC, fact);
        }
        Self::warn(TOPIC, fact)
            .means(
                "leases and lives are measured by the server's clock alone, so the difference costs nothing; a \
                 correction by a step ends leases early, and a second body may start, or prolongs them",
            )
            .remedy("run NTP on both machines, and let it slew the clock instead of stepping it")
    }
}
