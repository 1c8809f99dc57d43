//! Changes by one script each: renewal, append, release, resolution, and those of a copy.

use std::time::Duration;

use bytes::Bytes;

use super::notify::channel;
use super::script::{Script, millis};
use super::store::RedisCore;
use super::wire::decimal;
use crate::store::{
    AppendReply, HEADER, Header, Journal, Owner, RecordKey, ReleaseReply, Remains, RenewReply,
    ResolveReply, StoreError,
};

impl RedisCore {
    pub(super) async fn renew(
        &self,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let retain = decimal(millis(claim.retain));
        let arguments: [&[u8]; 2] = [&claim.encode(), retain.as_bytes()];
        let answer = self
            .background
            .run("a renewal", &self.scripts.renew, &key.name(), &arguments)
            .await?;
        let replies = [
            (b'C', RenewReply::Renewed),
            (b'L', RenewReply::Reasserted),
            (b'S', RenewReply::Lost),
        ];
        answer.among(RenewReply::Unreadable, replies)
    }

    /// Appends to the journal of a claim.
    pub(super) async fn append(
        &self,
        key: &RecordKey,
        claim: &Header,
        journal: &Journal,
        mut known: usize,
    ) -> Result<AppendReply, StoreError> {
        let journal = journal.as_bytes();
        self.check_size(HEADER + journal.len())?;
        let (name, script) = (key.name(), &self.scripts.append);
        let (claim, retain) = (claim.encode(), decimal(millis(claim.retain)));
        // Nothing new: a renewal, on the engine's own thread.
        let topology = if known == journal.len() {
            &self.background
        } else {
            &self.link
        };
        loop {
            let sent = decimal(known as u64);
            let (retain, sent) = (retain.as_bytes(), sent.as_bytes());
            let arguments: [&[u8]; 4] = [&claim, retain, sent, &journal[known..]];
            let answer = topology.run("an append", script, &name, &arguments).await?;
            if answer.code == b'K' && known > 0 {
                // The record was lost, or is that of a server that lacks the last appends.
                known = 0;
                continue;
            }
            let replies = [
                (b'C', AppendReply::Appended),
                (b'L', AppendReply::Reasserted),
                (b'S', AppendReply::Lost),
            ];
            return answer.among(AppendReply::Unreadable, replies);
        }
    }

    /// Releases a claim. `journals`: that for the record, and that seen by the caller.
    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
        journals: Option<(&Journal, Option<&Journal>)>,
    ) -> Result<ReleaseReply, StoreError> {
        // As the script reads it.
        let remains: &[u8] = match remains {
            Remains::Request => b"0",
            Remains::Attempt => b"1",
            Remains::Nothing => b"2",
        };
        let layout;
        let mut all: [&[u8]; 5] = [owner.as_bytes(), remains, &[], &[], &[]];
        let mut arguments = 2;
        if let Some((journal, seen)) = journals {
            self.check_size(HEADER + journal.as_bytes().len())?;
            layout = [journal.kind().layout()];
            (all[2], all[3]) = (journal.as_bytes(), &layout);
            all[4] = seen.map_or(&[], |seen| seen.as_bytes());
            arguments = 4 + usize::from(seen.is_some());
        }
        let (name, script) = (key.name(), &self.scripts.release);
        let answer = (self.link).run("a release", script, &name, &all[..arguments]);
        let answer = answer.await?;
        let replies = [
            (b'C', ReleaseReply::Released),
            (b'S', ReleaseReply::Superseded),
            (b'N', ReleaseReply::Absent),
        ];
        answer.among(ReleaseReply::Unreadable, replies)
    }

    /// Resolves a record for an operator.
    pub(super) async fn resolve(
        &self,
        key: &RecordKey,
        (seen, journal): (&Header, Option<&Journal>),
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let new = match Header::decode(record) {
            Ok(new) => new,
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let (seen, retain) = (seen.encode(), decimal(millis(new.retain)));
        let channel = channel(key.prefix());
        let mut arguments: Vec<&[u8]> = vec![&seen, record, retain.as_bytes(), channel.as_bytes()];
        arguments.extend(journal.map(|journal| &journal.as_bytes()[..]));
        let (name, script) = (key.name(), &self.scripts.resolve);
        let answer = self.link.run("a resolution", script, &name, &arguments);
        let answer = answer.await?;
        if answer.code == b'B' {
            let lease_left = answer.millis()?;
            return Ok(ResolveReply::Running { lease_left });
        }
        let replies = [
            (b'C', ResolveReply::Resolved),
            (b'S', ResolveReply::Changed),
            (b'N', ResolveReply::Absent),
        ];
        answer.among(ResolveReply::Unreadable, replies)
    }

    /// Keeps a copy of another store's record.
    pub(super) async fn keep(
        &self,
        key: &RecordKey,
        copy: &Bytes,
        left: Duration,
    ) -> Result<(), StoreError> {
        if left.as_millis() == 0 {
            return Ok(());
        }
        let left = decimal(millis(left));
        let script = &self.scripts.keep;
        self.change_copy("keeping a copy", script, key, &[copy, left.as_bytes()])
            .await
    }

    /// Removes a copy, of this owner's claim or any.
    pub(super) async fn forget(
        &self,
        key: &RecordKey,
        owner: Option<&Owner>,
    ) -> Result<(), StoreError> {
        let owner: &[u8] = owner.map_or(&[], |owner| owner.as_bytes());
        let script = &self.scripts.forget;
        self.change_copy("forgetting a copy", script, key, &[owner])
            .await
    }

    async fn change_copy(
        &self,
        what: &str,
        script: &Script,
        key: &RecordKey,
        arguments: &[&[u8]],
    ) -> Result<(), StoreError> {
        let answer = self.link.run(what, script, &key.name(), arguments).await?;
        answer.among(|_| (), [(b'C', ()), (b'S', ()), (b'N', ())])
    }
}
