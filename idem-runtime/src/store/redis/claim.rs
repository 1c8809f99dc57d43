//! Claims by script (`script/claim.lua`); `fast` first tries a plain command.

mod fast;

pub(super) use self::fast::Claiming;
use super::arguments::{decimal, millis};
use super::core::RedisCore;
use super::reply::unexpected;
use crate::record::Fence;
use crate::store::pace::Crowded;
use crate::store::{
    Admission, ClaimReply, ClaimRequest, Header, JournalKind, Needs, RecordKey, State, StoreError,
};

impl RedisCore {
    /// The error of a claim that cannot be sent in time, if so.
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

    pub(super) async fn claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let name = key.name();
        match self.fast_claim(&name, request).await? {
            Some(reply) => Ok(reply),
            // Boxed: larger, and seldom needed.
            None => Box::pin(self.scripted_claim(&name, request)).await,
        }
    }

    async fn scripted_claim(
        &self,
        name: &str,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let lease = request.lease;
        let proposed = Header {
            state: if request.reconciles {
                State::Reconciling { lease }
            } else {
                State::Pending { lease }
            },
            owner: request.owner,
            fence: Fence::default(),
            attempts: 0,
            retain: request.retain,
            fingerprint: request.fingerprint,
            types: request.types,
            journal: JournalKind::None,
        };
        let retain = decimal(millis(request.retain));
        let max = decimal(request.max_attempts.map_or(0, |max| max.get().into()));
        let mut proposed = proposed.encode();
        if request.needs == Needs::Verdict {
            // Not a state of a record: a flag for the script.
            proposed[1] = b'S';
        }
        let needs_record = request.needs == Needs::Record;
        let words: &[u8] = match (request.any_type, needs_record, request.records_attempts) {
            (false, false, false) => b"",
            (true, false, false) => b"T",
            (false, true, false) => b"R",
            (true, true, false) => b"TR",
            (false, false, true) => b"L",
            (true, false, true) => b"TL",
            (false, true, true) => b"RL",
            (true, true, true) => b"TRL",
        };
        let arguments: [&[u8]; 4] = [&proposed, retain.as_bytes(), max.as_bytes(), words];
        let arguments = if words.is_empty() {
            &arguments[..3]
        } else {
            &arguments[..]
        };
        loop {
            let mut answer = self
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
