//! Commands with their routing and options.

use redis::{Cmd, Value};

use crate::store::redis::failure::Failure;
use crate::store::redis::limits::Limits;
use crate::store::redis::wire::WriteCommand;

/// One command, or two that are sent together.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    One(&'a WriteCommand<'a>),
    /// Never sent to a node that is still importing the slot, which requires an `ASKING` before each of them.
    Pair(&'a WriteCommand<'a>, &'a WriteCommand<'a>),
}

/// A command with its routing and options.
#[derive(Clone, Copy)]
pub(crate) struct RoutedCommand<'a> {
    pub(crate) payload: Payload<'a>,
    /// The key of the command, if it has one.
    pub(crate) key: Option<&'a str>,
    /// The node is still importing the key's slot, and serves it only after `ASKING`.
    pub(crate) asking: bool,
    /// Its reply ends with the server's time.
    pub(crate) tells_time: bool,
    /// It is a claim: completions, releases and renewals are sent before it.
    pub(crate) claims: bool,
    /// Replicas that must have its write before it counts.
    pub(crate) replicas: Option<&'a ReplicaWait>,
}

impl<'a> RoutedCommand<'a> {
    pub(crate) fn new(command: &'a WriteCommand<'a>) -> Self {
        Self::of(None, Payload::One(command))
    }

    /// A command on this key.
    pub(crate) fn on_key(key: &'a str, command: &'a WriteCommand<'a>) -> Self {
        Self::of(Some(key), Payload::One(command))
    }

    /// Two commands, one right after the other. The reply is that of the second, or the first error.
    pub(crate) fn pair(
        key: &'a str,
        first: &'a WriteCommand<'a>,
        second: &'a WriteCommand<'a>,
    ) -> Self {
        Self::of(Some(key), Payload::Pair(first, second))
    }

    fn of(key: Option<&'a str>, payload: Payload<'a>) -> Self {
        Self {
            payload,
            key,
            asking: false,
            tells_time: false,
            claims: false,
            replicas: None,
        }
    }

    /// Whether it can be sent to a node that is still importing the slot.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self.payload, Payload::One(_))
    }
}

/// The wait of a write for a number of replicas: `WAIT`.
#[derive(Debug)]
pub(crate) struct ReplicaWait {
    wanted: u32,
    pub(super) command: Cmd,
}

impl ReplicaWait {
    /// Waits for half of the time limit of a reply, so that the reply to `WAIT` still arrives with their number.
    pub(crate) fn for_replicas(wanted: u32, limits: Limits) -> Self {
        let millis = (limits.response / 2).as_millis().max(1);
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(millis.to_string());
        Self { wanted, command }
    }

    /// Checks the reply to `WAIT`.
    pub(super) fn check(&self, replicas: &Value) -> Result<(), Failure> {
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
