//! Each operation of a store, with each loss of its connection: the reply and the record are those without a loss.

use bytes::Bytes;
use idem_runtime::store::author::{ClaimRequest, CompleteReply, Header, Journal, Remains, State};
use idem_runtime::store::{Fence, OutcomeKind};
use idem_tests::claims::{finished, take, unhurried};

use super::prelude::*;

on_each_server!(a_lost_connection_changes_no_reply_and_no_record);

/// An operation on a claimed record, or the claim itself.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Claim,
    TakeOver,
    Renew,
    Append,
    Complete,
    Release,
    Resolve,
    Read,
    Poll,
}

/// Each operation, its reply, and the state of the record afterwards.
const OPERATIONS: [(Operation, &str, &str); 9] = [
    (Operation::Claim, "Granted", "Pending 1"),
    (Operation::TakeOver, "Granted", "Pending 2"),
    (Operation::Renew, "Renewed", "Pending 1"),
    (Operation::Append, "Appended", "Pending 1"),
    (Operation::Complete, "Stored", "Done 1"),
    (Operation::Release, "Released", "Released 1"),
    (Operation::Resolve, "Resolved", "Done 1"),
    (Operation::Read, "Found", "Pending 1"),
    (Operation::Poll, "Found", "Pending 1"),
];

/// What becomes of the connections of the store.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Nothing,
    /// All of them are closed before the request.
    Closed,
    /// The connection is closed in place of an executed request's reply.
    Reply,
    /// All of them are silent, and the server gets no request.
    Forgotten,
    /// The connection of the executed request is silent.
    Silent,
    /// The same, and another connection replies meanwhile.
    SilentAlone,
}

const LOSSES: [Loss; 6] = [
    Loss::Nothing,
    Loss::Closed,
    Loss::Reply,
    Loss::Forgotten,
    Loss::Silent,
    Loss::SilentAlone,
];

/// The name of a variant.
fn variant(reply: impl std::fmt::Debug) -> String {
    let text = format!("{reply:?}");
    let word = text.split(|letter: char| !letter.is_alphanumeric()).next();
    word.unwrap_or_default().to_owned()
}

impl Operation {
    /// Makes the record that it finds.
    async fn prepare<B: Server>(self, calm: &SqlStore<B>, key: &RecordKey, owner: Owner) -> Header {
        let first = match self {
            Self::Claim | Self::TakeOver => Owner::random(),
            _ => owner,
        };
        let request = match self {
            Self::TakeOver => ClaimRequest::new(first, Duration::ZERO, Duration::from_mins(2)),
            _ => asks(first),
        };
        if let Self::Claim = self {
            return Header::new(State::Released, owner, Fence::new(0), request.retain);
        }
        let claim = take(calm, key, &request).await;
        if let Self::Resolve = self {
            let unknown = finished(&claim, OutcomeKind::Unknown, b"");
            let stored = calm.complete(key, None, &unknown).await.unwrap();
            assert_eq!(stored, CompleteReply::Stored { late: false });
            return Header::decode(&unknown).unwrap();
        }
        claim
    }

    async fn run<B: Server>(
        self,
        store: &SqlStore<B>,
        key: &RecordKey,
        owner: Owner,
        claim: &Header,
    ) -> Result<String, StoreError> {
        Ok(match self {
            Self::Claim | Self::TakeOver => {
                variant(store.claim(key, &asks(owner), &unhurried()).await?)
            }
            Self::Renew => variant(store.renew(key, claim).await?),
            Self::Append => {
                let journal = Journal::new(Bytes::from_static(b"a journal"));
                variant(store.append(key, claim, &journal, 0).await?)
            }
            Self::Complete => {
                let answer = finished(claim, OutcomeKind::Value, b"an answer");
                variant(store.complete(key, None, &answer).await?)
            }
            Self::Release => variant(store.release(key, &owner, Remains::Attempt, None).await?),
            Self::Resolve => {
                let mut resolution = *claim;
                resolution.owner = Owner::random();
                let resolution = finished(&resolution, OutcomeKind::Value, b"");
                variant(store.resolve(key, claim, None, &resolution).await?)
            }
            Self::Read => variant(store.read(key).await?),
            Self::Poll => variant(store.poll(key).await?),
        })
    }
}

/// Sends the operation to a store whose connections are lost like this. Returns its reply, and the record then.
async fn after<B: Server>(
    server: &Served,
    calm: &SqlStore<B>,
    (operation, loss): (Operation, Loss),
    number: u64,
) -> (String, String) {
    let proxy = Arc::new(TcpProxy::start(server.addr()));
    let url = server.url_at(proxy.addr());
    let store = open_hasty::<B>(&url, Duration::from_secs(4)).await;
    let (key, owner) = (elsewhere(number), Owner::random());
    let claim = operation.prepare(calm, &key, owner).await;
    // Several connections that have been used.
    let warm = (0..8).map(|_| store.read(&key));
    let warm = futures_util::future::join_all(warm).await;
    assert!(warm.iter().all(Result::is_ok), "{warm:?}");
    match loss {
        Loss::Nothing => {}
        Loss::Closed => {
            proxy.cut();
        }
        Loss::Reply => proxy.drop_next_reply(),
        Loss::Forgotten => proxy.forget_live(),
        Loss::Silent | Loss::SilentAlone => proxy.forget_next(),
    }
    let others = async {
        if let Loss::SilentAlone = loss {
            let proxy = Arc::clone(&proxy);
            let is_silent = move || proxy.wait_until(|seen| seen.swallowed_bytes > 0);
            tokio::task::spawn_blocking(is_silent).await.unwrap();
            store.read(&elsewhere(u64::MAX)).await.unwrap();
        }
    };
    let (reply, ()) = tokio::join!(operation.run(&store, &key, owner, &claim), others);
    let reply = reply.unwrap_or_else(|error| panic!("{operation:?}, {loss:?}: {error}"));
    let stats = proxy.stats();
    match loss {
        Loss::Nothing | Loss::Closed => {}
        Loss::Reply => assert_eq!(stats.dropped_replies, 1, "{operation:?}"),
        _ => assert!(stats.swallowed_bytes > 0, "{operation:?}, {loss:?}"),
    }
    let found = calm.read(&key).await.unwrap();
    let ReadReply::Found { record, .. } = found else {
        panic!("{operation:?}, {loss:?}: {found:?}");
    };
    let header = record.header;
    let record = format!("{} {}", variant(header.state), header.attempts);
    (reply, record)
}

async fn a_lost_connection_changes_no_reply_and_no_record<B: Server>() {
    let (server, calm) = served::<B>().await;
    for (number, loss) in (0..).zip(LOSSES) {
        // The operations beside each other, because a silent connection costs a part of the time-out.
        let rows = (0..).zip(OPERATIONS).map(async |(at, (operation, ..))| {
            after(&server, &calm, (operation, loss), number * 100 + at).await
        });
        let found = futures_util::future::join_all(rows).await;
        for ((operation, reply, record), found) in OPERATIONS.into_iter().zip(found) {
            let expected = (reply.to_owned(), record.to_owned());
            assert_eq!(found, expected, "{operation:?}, {loss:?}");
        }
    }
}
