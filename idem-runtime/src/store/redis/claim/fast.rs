//! The fast claim, without a script: one `SET … NX GET` grants a new key and replays a finished one.
//!
//! A script costs the server several times as much as a plain command, and nearly every call is one of these two
//! cases. The script decides every other stored state and every other reply of the server.
//!
//! The granted claim equals that of the script: the life of the record starts at the same write, so that no client
//! clock ends a lease. Its fence is the estimate of the server's time in `link/time`, less exact by the duration of a
//! reply, which is harmless for a key without a record.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::{RedisError, Value};

use crate::record::transition::{ClaimReply, ClaimRequest, Needs};
use crate::record::{Fence, Header, Journal, JournalKind, OutcomeKind, Record, State};
use crate::store::redis::arguments::{decimal, millis};
use crate::store::redis::core::RedisCore;
use crate::store::redis::durability::WriteConcern;
use crate::store::redis::failure::Failure;
use crate::store::redis::link::{Exchange, RoutedCommand};
use crate::store::redis::wire::{Words, WriteCommand};
use crate::store::{Boxed, RecordKey, StoreError};

impl RedisCore {
    fn may_claim_fast(&self, request: &ClaimRequest) -> bool {
        !request.dated && request.needs == Needs::Nothing && self.takes_fast_claims()
    }

    /// Claims without a script; `None`: the script must decide.
    pub(super) async fn fast_claim(
        &self,
        name: &str,
        request: &ClaimRequest,
    ) -> Result<Option<ClaimReply>, StoreError> {
        if !self.may_claim_fast(request) {
            return Ok(None);
        }
        let Some(now) = self.link.server_time(name) else {
            return Ok(None);
        };
        let reply = {
            let set = |words: &mut Words<'_>| write(words, name, request, now);
            let command = set_if_absent(name, &set);
            self.link.send(&command, WriteConcern::Replicated).await
        };
        self.fast_reply(request, now, reply)
    }

    /// Refuses a record that is too large.
    ///
    /// Only the plain command cannot check the length first. A client that can write such a record can write more of
    /// them, so this store makes its claims by script from now on, which returns the length only.
    fn check_claimed(&self, bytes: usize) -> Result<(), StoreError> {
        self.check_size(bytes)
            .inspect_err(|_| self.disable_fast_claims())
    }

    /// Reads the reply to the plain command; `None`: the script must decide.
    fn fast_reply(
        &self,
        request: &ClaimRequest,
        now: u64,
        reply: Result<Value, Failure>,
    ) -> Result<Option<ClaimReply>, StoreError> {
        match reply {
            Ok(Value::Nil) => Ok(Some(ClaimReply::Granted {
                fence: Fence::new(now),
                attempt: 1,
                fresh: true,
                journal: Journal::default(),
            })),
            Ok(Value::BulkString(bytes)) => {
                self.check_claimed(bytes.len())?;
                let record = Record::decode(bytes.into());
                Ok(record.ok().and_then(|record| verdict(record, request, now)))
            }
            // A text that the connection has discarded.
            Ok(Value::Int(bytes)) => {
                self.check_claimed(usize::try_from(bytes).unwrap_or(usize::MAX))?;
                Ok(None)
            }
            Ok(_) => Ok(None),
            Err(Failure::Reply(error)) if is_refusal(&error) => {
                if is_unknown_to(&error) {
                    self.disable_fast_claims();
                }
                Ok(None)
            }
            Err(failure) => Err(failure.store_error("a claim")),
        }
    }
}

/// A claim. The plain command is sent on the connection that is there; every other case is a boxed future.
///
/// By hand and small, as [`Completing`](crate::store::redis::complete::Completing) is.
pub(crate) struct Claiming<'a> {
    core: &'a RedisCore,
    key: &'a RecordKey,
    request: &'a ClaimRequest,
    stage: ClaimStage<'a>,
}

enum ClaimStage<'a> {
    Unsent,
    /// The plain command is in flight, with this time as its fence.
    Sent(Exchange<'a>, u64),
    Other(Boxed<'a, ClaimReply>),
}

impl<'a> Claiming<'a> {
    pub(crate) fn new(core: &'a RedisCore, key: &'a RecordKey, request: &'a ClaimRequest) -> Self {
        Self {
            core,
            key,
            request,
            stage: ClaimStage::Unsent,
        }
    }

    /// Sends the plain command. `None`: nothing was sent.
    fn begin(&self) -> Option<(Result<Exchange<'a>, Failure>, u64)> {
        let (core, request) = (self.core, self.request);
        if !core.may_claim_fast(request) {
            return None;
        }
        let ready = core.link.ready(WriteConcern::Replicated)?;
        let now = ready.server_time()?;
        self.key.with_name(|name| {
            let set = |words: &mut Words<'_>| write(words, name, request, now);
            Some((ready.begin(&set_if_absent(name, &set)), now))
        })
    }
}

impl Future for Claiming<'_> {
    type Output = Result<ClaimReply, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            core, key, request, ..
        } = *self;
        loop {
            let (reply, now) = match &mut self.stage {
                ClaimStage::Unsent => match self.begin() {
                    Some((Ok(exchange), now)) => {
                        self.stage = ClaimStage::Sent(exchange, now);
                        continue;
                    }
                    Some((Err(failure), now)) => (Err(failure), now),
                    None => {
                        self.stage = ClaimStage::Other(Box::pin(core.claim(key, request)));
                        continue;
                    }
                },
                ClaimStage::Sent(exchange, now) => (ready!(Pin::new(exchange).poll(cx)), *now),
                ClaimStage::Other(other) => return other.as_mut().poll(cx),
            };
            if let Some(reply) = core.fast_reply(request, now, reply)? {
                return Poll::Ready(Ok(reply));
            }
            self.stage = ClaimStage::Other(Box::pin(async move {
                core.scripted_claim(&key.name(), request).await
            }));
        }
    }
}

/// Writes the plain command.
fn write(words: &mut Words<'_>, name: &str, request: &ClaimRequest, now: u64) {
    let claim = Header {
        state: State::Pending {
            lease: request.lease,
        },
        owner: request.owner,
        fence: Fence::new(now),
        attempts: 1,
        retain: request.retain,
        fingerprint: request.fingerprint,
        types: request.types,
        journal: JournalKind::None,
    };
    let retain = decimal(millis(claim.retain));
    words.command(&[
        &[b"SET", name.as_bytes(), &claim.encode()],
        &[b"NX", b"GET", b"PX", retain.as_bytes()],
    ]);
}

/// The plain command with its routing.
fn set_if_absent<'a>(name: &'a str, set: &'a WriteCommand<'a>) -> RoutedCommand<'a> {
    RoutedCommand {
        claims: true,
        ..RoutedCommand::on_key(name, set)
    }
}

/// The reply for a stored record; `None`: the script must decide.
fn verdict(record: Record, request: &ClaimRequest, now: u64) -> Option<ClaimReply> {
    let header = &record.header;
    let State::Done {
        outcome: OutcomeKind::Value | OutcomeKind::Error | OutcomeKind::Tombstone,
        ..
    } = header.state
    else {
        return None;
    };
    if !header.fingerprint.matches(request.fingerprint) {
        return Some(ClaimReply::Mismatch);
    }
    // Age since the claim, which was not after the completion.
    let age = Duration::from_micros(now.saturating_sub(header.fence.get()));
    let left = header.retain.saturating_sub(age);
    Some(ClaimReply::Done { record, left })
}

/// Whether the server itself refused: a full memory, a replica, a missing right.
///
/// The script receives the same error, or succeeds.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some()
}

/// Whether the server, or a proxy, does not know the command in this form.
fn is_unknown_to(error: &RedisError) -> bool {
    error.code() == Some("ERR")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::fingerprint::Fingerprint;
    use crate::record::{AnswerTypes, Owner};

    const RETAIN: Duration = Duration::from_secs(100);

    fn asks(fingerprint: u8) -> ClaimRequest {
        ClaimRequest {
            owner: Owner::from_bytes([1; 16]),
            fingerprint: Fingerprint::from_bytes([fingerprint; 16]),
            types: AnswerTypes::UNKNOWN,
            any_type: false,
            lease: Duration::from_secs(30),
            retain: RETAIN,
            max_attempts: None,
            reconciles: false,
            needs: Needs::Nothing,
            dated: false,
            records_attempts: false,
        }
    }

    fn of(state: State) -> Record {
        let header = Header {
            state,
            owner: Owner::from_bytes([2; 16]),
            fence: Fence::new(5_000_000),
            attempts: 1,
            retain: RETAIN,
            fingerprint: Fingerprint::from_bytes([7; 16]),
            types: AnswerTypes::UNKNOWN,
            journal: JournalKind::None,
        };
        Record::decode(header.encode().to_vec().into()).unwrap()
    }

    #[test]
    fn only_final_states_are_decided_without_the_script() {
        let done = |outcome| State::Done { outcome, schema: 1 };
        let lease = Duration::from_secs(30);
        for state in [
            State::Pending { lease },
            State::Reconciling { lease },
            State::Released,
            done(OutcomeKind::Unknown),
        ] {
            assert_eq!(verdict(of(state), &asks(7), 6_000_000), None, "{state:?}");
            assert_eq!(verdict(of(state), &asks(8), 6_000_000), None, "{state:?}");
        }
        let finals = [
            OutcomeKind::Value,
            OutcomeKind::Error,
            OutcomeKind::Tombstone,
        ];
        for record in finals.map(|outcome| of(done(outcome))) {
            let other = verdict(record.clone(), &asks(8), 6_000_000);
            assert_eq!(other, Some(ClaimReply::Mismatch));
            let left = Duration::from_secs(99);
            let same = verdict(record.clone(), &asks(7), 6_000_000);
            assert_eq!(same, Some(ClaimReply::Done { record, left }));
        }
    }

    #[test]
    fn the_remaining_life_is_between_zero_and_the_retain_time() {
        let left = |now| {
            let state = State::Done {
                outcome: OutcomeKind::Value,
                schema: 1,
            };
            match verdict(of(state), &asks(7), now) {
                Some(ClaimReply::Done { left, .. }) => left,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(left(0), RETAIN);
        assert_eq!(left(5_000_000), RETAIN);
        assert_eq!(left(5_000_000 + 100_000_000), Duration::ZERO);
        assert_eq!(left(u64::MAX), Duration::ZERO);
    }
}
