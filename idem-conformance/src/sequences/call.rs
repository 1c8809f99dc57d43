//! A call of a store, and its reply.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::admin::EntryFilter;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::author::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, JournalKind,
    ListRequest, Owner, ReadReply, Record, ReleaseReply, Remains, RenewReply, ResolveReply, State,
    Unreadable,
};
use idem_runtime::store::{OutcomeKind, StoreError, StoreErrorKind};

use super::setting::Setting;
use crate::fixture::Plant;

/// More steps than any listing of three records needs.
const MOST_STEPS: usize = 10_000;

/// The bytes of a record, shown as what they say.
#[derive(Clone)]
pub(super) struct Written(pub(super) Bytes);

impl Written {
    pub(super) fn record(&self) -> Result<Record, Unreadable> {
        Record::decode(self.0.clone())
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.record() {
            Ok(record) => record.fmt(f),
            Err(why) => write!(f, "{} bytes that are {why:?}", self.0.len()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) filter: EntryFilter,
    pub(super) min_attempts: u16,
    pub(super) limit: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Call {
    Claim {
        key: usize,
        request: ClaimRequest,
    },
    Complete {
        key: usize,
        /// The claim that is passed with it.
        claim: Option<Header>,
        record: Written,
    },
    Release {
        key: usize,
        owner: Owner,
        remains: Remains,
        /// The one to write.
        journal: Option<Journal>,
        seen: Option<Journal>,
    },
    Renew {
        key: usize,
        claim: Header,
    },
    Append {
        key: usize,
        claim: Header,
        journal: Journal,
        known: usize,
    },
    Resolve {
        key: usize,
        seen: Header,
        journal: Option<Journal>,
        record: Written,
    },
    Read {
        key: usize,
    },
    Poll {
        key: usize,
    },
    AtHand {
        key: usize,
        print: Fingerprint,
    },
    List(Listing),
    Watch {
        key: usize,
    },
    Listen,
    Plant {
        key: usize,
        bytes: Written,
        life: Duration,
    },
    Advance {
        by: Duration,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Reply {
    #[default]
    Nothing,
    Claim(ClaimReply),
    Complete(CompleteReply),
    Release(ReleaseReply),
    Renew(RenewReply),
    Append(AppendReply),
    Resolve(ResolveReply),
    Read(ReadReply),
    Poll(ReadReply),
    AtHand(Option<(Record, Duration)>),
    /// Headers and remaining lives by key number, and the unreadable records' number.
    Listed((BTreeMap<usize, (Header, Duration)>, u64)),
    /// The store cannot list.
    CannotList,
    Failed(String),
    /// The store panicked with this text.
    Panicked(String),
}

impl Reply {
    /// The remaining lease or life, and the record that has it.
    pub(super) fn parts(&mut self) -> Option<(&mut Duration, Option<&mut Record>)> {
        match self {
            Self::Claim(ClaimReply::Running { lease_left })
            | Self::Complete(CompleteReply::Superseded { lease_left })
            | Self::Resolve(ResolveReply::Running { lease_left }) => Some((lease_left, None)),
            Self::Claim(ClaimReply::Done { record, left })
            | Self::Complete(CompleteReply::Adopted { record, left })
            | Self::Read(ReadReply::Found { record, left })
            | Self::Poll(ReadReply::Found { record, left }) => Some((left, Some(record))),
            Self::AtHand(Some((_, left))) => Some((left, None)),
            _ => None,
        }
    }
}

pub(super) fn is_answered(state: State) -> bool {
    matches!(state, State::Done { outcome, .. } if outcome != OutcomeKind::Unknown)
}

/// The bytes of a record. Behind an answer its attempts are followed by their length.
pub(super) fn encoded(header: &Header, body: &[u8], journal: &Journal) -> Written {
    let mut header = *header;
    header.journal = journal.kind();
    let mut bytes = [&header.encode()[..], body, journal.as_bytes()].concat();
    if is_answered(header.state) && header.journal != JournalKind::None {
        let length = u32::try_from(journal.as_bytes().len()).expect("few attempts are kept");
        bytes.extend(length.to_be_bytes());
    }
    Written(bytes.into())
}

/// The reply of a call, or its panic.
pub(super) async fn caught(reply: impl Future<Output = Reply>) -> Reply {
    let mut reply = pin!(reply);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| reply.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Poll::Ready(Reply::Panicked(text.unwrap_or_default()))
        })
    })
    .await
}

fn replied<T>(reply: Result<T, StoreError>, wrap: impl FnOnce(T) -> Reply) -> Reply {
    match reply {
        Ok(reply) => wrap(reply),
        Err(error) => Reply::Failed(format!("{error} ({:?})", error.kind())),
    }
}

impl Call {
    pub(super) fn key(&self) -> Option<usize> {
        match self {
            Self::Claim { key, .. }
            | Self::Complete { key, .. }
            | Self::Release { key, .. }
            | Self::Renew { key, .. }
            | Self::Append { key, .. }
            | Self::Resolve { key, .. }
            | Self::Read { key }
            | Self::Poll { key }
            | Self::AtHand { key, .. }
            | Self::Watch { key }
            | Self::Plant { key, .. } => Some(*key),
            Self::List(_) | Self::Listen | Self::Advance { .. } => None,
        }
    }

    /// Sends the call. `Watch` is the driver's, which keeps its result.
    pub(super) async fn send(&self, setting: &Setting) -> Reply {
        let (store, keys) = (&setting.store, &setting.keys);
        match self {
            Self::Claim { key, request } => {
                let admission = Admission::new(setting.fixture.patience());
                let reply = store.claim(&keys[*key], request, &admission).await;
                replied(reply, Reply::Claim)
            }
            Self::Complete { key, claim, record } => {
                let reply = store.complete(&keys[*key], claim.as_ref(), &record.0);
                replied(reply.await, Reply::Complete)
            }
            Self::Release {
                key,
                owner,
                remains,
                journal,
                seen,
            } => {
                let journals = journal.as_ref().map(|journal| (journal, seen.as_ref()));
                let reply = store.release(&keys[*key], owner, *remains, journals);
                replied(reply.await, Reply::Release)
            }
            Self::Renew { key, claim } => {
                replied(store.renew(&keys[*key], claim).await, Reply::Renew)
            }
            Self::Append {
                key,
                claim,
                journal,
                known,
            } => {
                let reply = store.append(&keys[*key], claim, journal, *known).await;
                replied(reply, Reply::Append)
            }
            Self::Resolve {
                key,
                seen,
                journal,
                record,
            } => {
                let reply = store.resolve(&keys[*key], seen, journal.as_ref(), &record.0);
                replied(reply.await, Reply::Resolve)
            }
            Self::Read { key } => replied(store.read(&keys[*key]).await, Reply::Read),
            Self::Poll { key } => replied(store.poll(&keys[*key]).await, Reply::Poll),
            Self::AtHand { key, print } => Reply::AtHand(store.at_hand(&keys[*key], *print)),
            Self::List(listing) => listed(setting, listing).await,
            Self::Plant { key, bytes, life } => {
                let (bytes, life) = (bytes.0.to_vec(), *life);
                let plant = Plant::Bytes { bytes, life };
                let planted = setting.fixture.plant(&keys[*key], plant).await;
                assert!(planted, "the fixture must be able to plant bytes");
                Reply::Nothing
            }
            Self::Advance { by } => {
                setting.fixture.advance(*by).await;
                Reply::Nothing
            }
            Self::Listen => {
                setting.listen().await;
                Reply::Nothing
            }
            Self::Watch { .. } => Reply::Nothing,
        }
    }
}

/// All steps of a listing of the first two keys' operation.
async fn listed(setting: &Setting, listing: &Listing) -> Reply {
    let mut request = ListRequest::new(setting.fixture.prefix());
    request.operation = Some(setting.keys[0].operation().clone());
    request.filter = listing.filter;
    request.min_attempts = listing.min_attempts;
    request.limit = listing.limit;
    let (mut found, mut unreadable) = (BTreeMap::new(), 0);
    for _ in 0..MOST_STEPS {
        let reply = match setting.store.list(&request).await {
            Ok(reply) => reply,
            Err(error) if error.kind() == StoreErrorKind::Unsupported => return Reply::CannotList,
            Err(error) => return Reply::Failed(format!("{error} ({:?})", error.kind())),
        };
        unreadable += reply.unreadable;
        for listed in reply.found {
            let Some(key) = setting.keys.iter().position(|key| *key == listed.key) else {
                return Reply::Failed(format!("{:?} was listed", listed.key));
            };
            found.insert(key, (listed.header, listed.left));
        }
        match reply.next {
            Some(next) => request.after = Some(next),
            None => return Reply::Listed((found, unreadable)),
        }
    }
    Reply::Failed("the listing has no end".to_owned())
}
