//! Rights that the user lacks, and reasons for which writes are refused.

/// Rights to the commands that touch a record.
const ON_KEYS: [&str; 7] = [
    "+get",
    "+getrange",
    "+set",
    "+pttl",
    "+pexpire",
    "+strlen",
    "+exists",
];

/// Rights to other commands without which calls are refused.
const BESIDES: [&str; 5] = ["+evalsha", "+time", "+wait", "+cluster|slots", "+asking"];

/// Rights without which completions cost the server more.
const SAVING: [&str; 2] = ["+mget", "+rename"];

/// Knowledge about the user's rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rights {
    /// Not checked yet.
    #[default]
    Untried,
    /// The check failed, for this reason.
    Unknown(String),
    /// The check succeeded.
    Known(MissingRights),
}

/// Missing rights, in the notation of `ACL SETUSER`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MissingRights {
    /// The prefix that was checked.
    pub(super) prefix: String,
    /// Rights without which calls are refused.
    pub(super) needed: Vec<String>,
    /// Rights without which waiting calls poll.
    pub(super) notifying: Vec<String>,
    /// Rights without which completions cost the server more.
    pub(super) saving: Vec<String>,
}

/// Reason for which the server refuses writes at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoWrites {
    OutOfMemory,
    Disk,
    TooFewReplicas,
    ReadOnly,
    NoPrimary,
}

impl NoWrites {
    /// Parses an error, which may be wrapped into that of a script (Redis 6).
    pub(super) fn parse(said: &str) -> Option<Self> {
        [
            ("OOM", Self::OutOfMemory),
            ("MISCONF", Self::Disk),
            ("NOREPLICAS", Self::TooFewReplicas),
            ("READONLY", Self::ReadOnly),
            ("MASTERDOWN", Self::NoPrimary),
            ("CLUSTERDOWN", Self::NoPrimary),
            // A script's text for it.
            ("cluster is down", Self::NoPrimary),
        ]
        .into_iter()
        .find_map(|(code, why)| said.contains(code).then_some(why))
    }
}

/// Sorts missing rights into required, notifying and saving ones, and names a missing prefix instead of its commands.
/// `saves`: whether idem would use such a command.
pub(super) fn classify(
    prefix: &str,
    pubsub_commands: [&str; 2],
    saves: impl Fn(&str) -> bool,
    refused: Vec<String>,
) -> MissingRights {
    let [publish, subscribe] =
        pubsub_commands.map(|command| format!("+{}", command.to_lowercase()));
    let is_needed =
        |right: &String| ON_KEYS.contains(&right.as_str()) || BESIDES.contains(&right.as_str());
    let is_saving = |right: &String| SAVING.contains(&right.as_str());
    let (mut saving, refused): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_saving);
    saving.retain(|right| saves(right));
    let (mut needed, mut notifying): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_needed);
    if ON_KEYS
        .iter()
        .all(|right| needed.iter().any(|r| r == right))
    {
        // All of them: the user has no right to the keys.
        needed.retain(|right| !ON_KEYS.contains(&right.as_str()));
        needed.insert(0, format!("~{prefix}:*"));
    }
    if notifying.contains(&publish) && notifying.contains(&subscribe) {
        // The commands or the channel: one ACL line grants both.
        notifying.insert(0, format!("&{prefix}:*"));
    }
    MissingRights {
        prefix: prefix.to_owned(),
        needed,
        notifying,
        saving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_write_is_parsed_in_every_form() {
        for said in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "@user_script: 63: -OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            assert_eq!(NoWrites::parse(said), Some(NoWrites::OutOfMemory));
        }
        assert_eq!(NoWrites::parse(""), None);
        let elsewhere = "Script attempted to access a non local key in a cluster node";
        assert_eq!(NoWrites::parse(elsewhere), None);
    }
}
