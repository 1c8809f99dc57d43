//! The fast claim, without a script: one `SET … NX GET` grants a new key and replays a finished one.
//!
//! A script costs the server several times as much as a plain command, and nearly every call is one of these two
//! cases. The script decides every other stored state and every other reply of the server.
//!
//! The granted claim equals that of the script: the life of the record starts at the same write, so that no client
//! clock ends a lease. Its fence is the estimate of the server's time in `link/time`, less exact by the duration of a
//! reply, which is harmless for a key without a record.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use redis::{RedisError, Value};

use crate::record::transition::{ClaimReply, ClaimRequest, Needs};
use crate::record::{Fence, Header, Journal, JournalKind, OutcomeKind, Record, State};
use crate::store::redis::arguments::{decimal, millis};
use crate::store::redis::core::{RedisCore, Stage};
use crate::store::redis::durability::WriteConcern;
use crate::store::redis::failure::Failure;
use crate::store::redis::link::{Exchange, RoutedCommand, Words, WriteCommand};
use crate::store::{RecordKey, StoreError};

impl RedisCore {
    fn may_claim_fast(&self, request: &ClaimRequest) -> bool {
        !request.dated && request.needs == Needs::Nothing && self.takes_fast_claims()
    }

    /// A claim: the plain command on the connection that is there, or a boxed future of every other case.
    ///
    /// An `async` block would be several times as large, and this future is a part of every call.
    pub(crate) fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> impl Future<Output = Result<ClaimReply, StoreError>> + use<'a> {
        let mut stage = Stage::Unsent;
        poll_fn(move |cx| {
            loop {
                let (reply, now) = match &mut stage {
                    Stage::Unsent => match self.begin_claim(key, request) {
                        Some((Ok(exchange), now)) => {
                            stage = Stage::Sent(exchange, now);
                            continue;
                        }
                        Some((Err(failure), now)) => (Err(failure), now),
                        None => {
                            stage = Stage::Other(Box::pin(self.routed_claim(key, request)));
                            continue;
                        }
                    },
                    Stage::Sent(exchange, now) => (ready!(Pin::new(exchange).poll(cx)), *now),
                    Stage::Other(other) => return other.as_mut().poll(cx),
                };
                if let Some(reply) = self.fast_reply(request, now, reply)? {
                    return Poll::Ready(Ok(reply));
                }
                stage = Stage::Other(Box::pin(self.scripted_claim(key, request)));
            }
        })
    }

    /// Sends the plain command, with this time as its fence. `None`: nothing was sent.
    fn begin_claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Option<(Result<Exchange<'_>, Failure>, u64)> {
        if !self.may_claim_fast(request) {
            return None;
        }
        let ready = self.link.ready(WriteConcern::Replicated)?;
        let now = ready.server_time()?;
        key.with_name(|name| {
            let set = |words: &mut Words<'_>| write(words, name, request, now);
            Some((ready.begin(&set_if_absent(name, &set)), now))
        })
    }

    /// Sends the plain command to the node of the key, if it may be sent; or else the script decides.
    async fn routed_claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let name = &key.name();
        if self.may_claim_fast(request)
            && let Some(now) = self.link.server_time(name)
        {
            let set = |words: &mut Words<'_>| write(words, name, request, now);
            let command = set_if_absent(name, &set);
            let reply = self.link.send(&command, WriteConcern::Replicated).await;
            if let Some(reply) = self.fast_reply(request, now, reply)? {
                return Ok(reply);
            }
        }
        self.scripted_claim(key, request).await
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
