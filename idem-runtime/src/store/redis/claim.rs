//! Claims: one `SET … NX GET`, or the script (`script/claim.lua`).
//!
//! A script costs the server several times as much as a plain command. So a claim that needs neither a stored record nor
//! the age of an answer is first sent as the plain command, which claims a key without a record, and otherwise returns
//! the record: a value, a business error or a tombstone is replayed, or is the answer to another request. Every other
//! record and every refusal of the server are left to the script; a command without a reply is an error of the claim.
//!
//! A claim granted by the plain command equals one of the script: the life of its record starts at the same write, so
//! that no client clock ends a lease. Its fence is the estimate of the server's time in `link/time`, which is behind that
//! clock by the duration of a reply; a key without a record has no earlier fence that it would have to exceed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{RedisError, Value};

use super::failure::Failure;
use super::link::{CommandInFlight, RoutedCommand};
use super::script::{millis, unexpected};
use super::server::WriteConcern;
use super::store::RedisCore;
use super::wire::{Words, WriteCommand, decimal};
use crate::record::transition::{ClaimReply, ClaimRequest, Needs};
use crate::record::{Fence, Header, Journal, OutcomeKind, Record, State};
use crate::store::pace::Crowded;
use crate::store::{Admission, Boxed, RecordKey, StoreError};

impl RedisCore {
    /// The error of a claim that cannot be sent in time.
    pub(super) fn overload(&self, key: &RecordKey, admission: &Admission) -> Option<StoreError> {
        let Crowded {
            waiting,
            retry_after,
        } = self.link.crowded(key, admission)?;
        let message = format!(
            "a claim: {waiting} others wait for the connection to Redis, longer than this one may, and it was not \
             sent; it may be made again in {retry_after:.1?}"
        );
        Some(StoreError::overloaded(message, retry_after))
    }

    /// Claims a key.
    ///
    /// The future is a part of every call: it has room for a command in flight on the shared connection, and boxes the
    /// rest, which is larger and seldom needed.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` holds its arguments twice"
    )]
    pub(super) fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> impl Future<Output = Result<ClaimReply, StoreError>> + Send + use<'a> {
        async move {
            let rest: Boxed<'a, _> = 'rest: {
                let (sent, now) = match self.begin_claim(key, request) {
                    Ok(sent) => sent,
                    Err(rest) => break 'rest rest,
                };
                let reply = sent.await;
                match self.plain_reply(request, now, reply)? {
                    Some(reply) => return Ok(reply),
                    None => Box::pin(self.scripted_claim(key, request)),
                }
            };
            rest.await
        }
    }

    /// Sends the claims of this store by script from now on.
    fn disable_plain_claims(&self) {
        self.plain_claims.store(false, Ordering::Relaxed);
    }

    fn may_claim_plainly(&self, request: &ClaimRequest) -> bool {
        !request.dated
            && request.needs == Needs::Nothing
            && self.plain_claims.load(Ordering::Relaxed)
    }

    /// Sends the plain command on the present connection, with its fence; or the rest of a claim that
    /// cannot be sent so.
    fn begin_claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> Result<(CommandInFlight<'a>, u64), Boxed<'a, ClaimReply>> {
        let begin = || {
            if !self.may_claim_plainly(request) {
                return None;
            }
            let ready = self.link.ready(WriteConcern::Replicated)?;
            let now = ready.server_time()?;
            key.with_name(|name| {
                let set = |words: &mut Words<'_>| write(words, name, request, now);
                Some((ready.begin(&set_if_absent(name, &set)), now))
            })
        };
        match begin() {
            Some((Ok(sent), now)) => Ok((sent, now)),
            Some((Err(failure), now)) => Err(Box::pin(async move {
                match self.plain_reply(request, now, Err(failure))? {
                    Some(reply) => Ok(reply),
                    None => self.scripted_claim(key, request).await,
                }
            })),
            None => Err(Box::pin(async move {
                match self.claim_routed(key, request).await? {
                    Some(reply) => Ok(reply),
                    None => self.scripted_claim(key, request).await,
                }
            })),
        }
    }

    /// Sends the plain command to the node of the key. `None`: the script must decide.
    async fn claim_routed(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Result<Option<ClaimReply>, StoreError> {
        if !self.may_claim_plainly(request) {
            return Ok(None);
        }
        let name = &*key.name();
        let Some(now) = self.link.server_time(name) else {
            return Ok(None);
        };
        let set = |words: &mut Words<'_>| write(words, name, request, now);
        let command = set_if_absent(name, &set);
        let reply = self.link.send(&command, WriteConcern::Replicated).await;
        self.plain_reply(request, now, reply)
    }

    /// Reads the reply to the plain command; `None`: the script must decide.
    fn plain_reply(
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
            // A full memory, a replica, a missing right: the script receives the same error, or succeeds.
            Err(Failure::Reply(error)) if error.code().is_some() => {
                if is_unknown_to(&error) {
                    self.disable_plain_claims();
                }
                Ok(None)
            }
            Err(failure) => Err(failure.store_error("a claim")),
        }
    }

    /// Refuses a record that is too large.
    ///
    /// Only the plain command cannot check the length first. A client that can write such a record can write more of
    /// them, so this store makes its claims by script from now on, which returns the length only.
    fn check_claimed(&self, bytes: usize) -> Result<(), StoreError> {
        self.check_size(bytes)
            .inspect_err(|_| self.disable_plain_claims())
    }

    async fn scripted_claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let name = &*key.name();
        let lease = request.lease;
        let state = if request.reconciles {
            State::Reconciling { lease }
        } else {
            State::Pending { lease }
        };
        let proposed = request.granted(state, Fence::default(), 0);
        let retain = decimal(millis(request.retain));
        let max = decimal(request.max_attempts.map_or(0, |max| max.get().into()));
        let mut proposed = proposed.encode();
        if request.needs == Needs::Verdict {
            // Not a state of a record: a flag for the script.
            proposed[1] = b'S';
        }
        let (mut flags, mut count) = ([0; 3], 0);
        for (is_set, flag) in [
            (request.any_type, b'T'),
            (request.needs == Needs::Record, b'R'),
            (request.records_attempts, b'L'),
        ] {
            flags[count] = flag;
            count += usize::from(is_set);
        }
        let flags = &flags[..count];
        let arguments: [&[u8]; 4] = [&proposed, retain.as_bytes(), max.as_bytes(), flags];
        let arguments = &arguments[..3 + usize::from(!flags.is_empty())];
        loop {
            let mut answer = self
                .link
                .run("a claim", &self.scripts.claim, name, arguments)
                .await?;
            if let Some(error) = answer.unreadable() {
                return Ok(ClaimReply::Unreadable(error));
            }
            return Ok(match answer.code {
                code @ (b'A' | b'F') => {
                    let journal = answer.journal();
                    let header = Header::decode(&answer.bytes()?).map_err(|_| unexpected())?;
                    let (fence, attempts) = (header.fence, header.attempts);
                    match header.state {
                        State::Reconciling { .. } => ClaimReply::Reconcile {
                            fence,
                            attempts,
                            journal,
                        },
                        _ => ClaimReply::Granted {
                            fence,
                            attempt: attempts,
                            fresh: code == b'F',
                            journal,
                        },
                    }
                }
                b'B' => ClaimReply::Running {
                    lease_left: answer.millis()?,
                },
                b'N' => ClaimReply::Absent,
                b'M' => ClaimReply::Mismatch,
                b'O' => ClaimReply::OtherType,
                b'X' => ClaimReply::Exhausted {
                    attempts: u16::try_from(answer.number()?).map_err(|_| unexpected())?,
                },
                b'D' | b'G' => match self.read_answer(name, answer, request.fingerprint).await? {
                    Some((Ok(record), left)) => ClaimReply::Done { record, left },
                    Some((Err(error), _)) => ClaimReply::Unreadable(error),
                    None => continue,
                },
                _ => return Err(unexpected()),
            });
        }
    }
}

/// Writes the plain command.
fn write(words: &mut Words<'_>, name: &str, request: &ClaimRequest, now: u64) {
    let lease = request.lease;
    let claim = request.granted(State::Pending { lease }, Fence::new(now), 1);
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

/// Whether the server, or a proxy, does not know this command form.
fn is_unknown_to(error: &RedisError) -> bool {
    error.code() == Some("ERR")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::fingerprint::Fingerprint;
    use crate::record::Owner;

    const RETAIN: Duration = Duration::from_secs(100);

    fn asks(fingerprint: u8) -> ClaimRequest {
        ClaimRequest {
            fingerprint: Fingerprint::from_bytes([fingerprint; 16]),
            dated: false,
            ..ClaimRequest::new(Owner::from_bytes([1; 16]), Duration::from_secs(30), RETAIN)
        }
    }

    fn of(state: State) -> Record {
        let owner = Owner::from_bytes([2; 16]);
        let header = Header {
            fingerprint: Fingerprint::from_bytes([7; 16]),
            ..Header::new(state, owner, Fence::new(5_000_000), RETAIN)
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
