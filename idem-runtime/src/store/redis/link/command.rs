//! Commands with their routing and options.

use redis::{Cmd, Value};

use crate::store::redis::failure::Failure;
use crate::store::redis::timeouts::Patience;

/// Builds a command where it is sent. A command kept in a call's future would be copied for each of
/// its possible paths.
pub(crate) type Making<'a> = dyn Fn() -> Cmd + Send + Sync + 'a;

/// One command, or two that are sent together.
#[derive(Clone, Copy)]
pub(crate) enum Sent<'a> {
    One(&'a Making<'a>),
    /// Never sent to a node that is still importing the slot. Such a node needs an
    /// `ASKING` before each of them.
    Both(&'a Making<'a>, &'a Making<'a>),
}

/// A command with its routing and options.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) sent: Sent<'a>,
    /// The key of the command, if it has one.
    pub(crate) key: Option<&'a str>,
    /// The node is still importing the key's slot, and serves it only after `ASKING`.
    pub(crate) asking: bool,
    /// Its reply ends with the server's time.
    pub(crate) tells_time: bool,
    /// It is a claim: completions, releases and renewals are sent before it.
    pub(crate) claims: bool,
    /// Its write must be on so many replicas before it counts.
    pub(crate) kept: Option<&'a Kept>,
}

impl<'a> Order<'a> {
    pub(crate) fn new(command: &'a Making<'a>) -> Self {
        Self::of(None, Sent::One(command))
    }

    /// A command on this key.
    pub(crate) fn about(key: &'a str, command: &'a Making<'a>) -> Self {
        Self::of(Some(key), Sent::One(command))
    }

    /// Two commands, one right after the other. The reply is that of the second, or the first error.
    pub(crate) fn both(key: &'a str, first: &'a Making<'a>, second: &'a Making<'a>) -> Self {
        Self::of(Some(key), Sent::Both(first, second))
    }

    fn of(key: Option<&'a str>, sent: Sent<'a>) -> Self {
        Self {
            sent,
            key,
            asking: false,
            tells_time: false,
            claims: false,
            kept: None,
        }
    }

    /// Whether it can be sent to a node that is still importing the slot.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self.sent, Sent::One(_))
    }
}

/// How many replicas must have a write.
#[derive(Debug)]
pub(crate) struct Kept {
    wanted: u32,
    pub(super) command: Cmd,
}

impl Kept {
    /// Waits for so many replicas, for half of the time limit of a reply. So the reply still arrives, and
    /// carries their number.
    pub(crate) fn by(wanted: u32, patience: Patience) -> Self {
        let millis = (patience.response / 2).as_millis().max(1);
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(millis.to_string());
        Self { wanted, command }
    }

    pub(super) fn judge(&self, replicas: &Value) -> Result<(), Failure> {
        let replicas = match replicas {
            Value::Int(replicas) => u32::try_from(*replicas).unwrap_or_default(),
            _ => 0,
        };
        if replicas >= self.wanted {
            return Ok(());
        }
        Err(Failure::Unreplicated {
            replicas,
            wanted: self.wanted,
        })
    }
}
