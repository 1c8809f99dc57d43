//! Appends to the journal of a claim.

use super::arguments::{decimal, millis};
use super::core::RedisCore;
use super::reply::unexpected;
use crate::store::{AppendReply, HEADER, Header, Journal, RecordKey, StoreError};

impl RedisCore {
    pub(super) async fn append(
        &self,
        key: &RecordKey,
        claim: &Header,
        journal: &Journal,
        mut known: usize,
    ) -> Result<AppendReply, StoreError> {
        let journal = journal.as_bytes();
        self.check_size(HEADER + journal.len())?;
        let (name, claim) = (key.name(), (claim.encode(), decimal(millis(claim.retain))));
        // Nothing new: a renewal, on the engine's own thread.
        let topology = if known == journal.len() {
            &self.background
        } else {
            &self.link
        };
        loop {
            let sent = decimal(known as u64);
            let arguments: [&[u8]; 4] = [
                &claim.0,
                claim.1.as_bytes(),
                sent.as_bytes(),
                &journal[known..],
            ];
            let script = &self.scripts.append;
            let answer = topology.run("an append", script, &name, &arguments).await?;
            if let Some(error) = answer.unreadable() {
                return Ok(AppendReply::Unreadable(error));
            }
            match answer.code {
                b'C' => return Ok(AppendReply::Appended),
                b'L' => return Ok(AppendReply::Reasserted),
                b'S' => return Ok(AppendReply::Lost),
                // The record was lost, or is that of a server that lacks the last appends.
                b'K' if known > 0 => known = 0,
                _ => return Err(unexpected()),
            }
        }
    }
}
