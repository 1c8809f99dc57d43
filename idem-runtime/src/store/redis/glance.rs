//! What a call that waits looks at.
//!
//! It was told, most of the time, that the other call has finished, and a plain `GET` shows its answer: a
//! script, which nobody has run for a while, takes the server longer by a tenth of all that this call has
//! waited since. How long the answer will still be kept a `GET` does not say; see [`Store::glance`].
//! Whatever else stands there, the script reads.
//!
//! [`Store::glance`]: crate::store::Store::glance

use super::Inner;
use crate::record::{Record, State};
use crate::store::{ReadReply, RecordKey, StoreError};

impl Inner {
    pub(super) async fn glance(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        match self.large(&self.own, &key.name(), 0).await {
            Ok(Some(bytes)) => {
                if let Ok(record) = Record::decode(bytes)
                    && matches!(record.header.state, State::Done { .. })
                {
                    self.readable(record.as_bytes().len())?;
                    let left = record.header.retain;
                    return Ok(ReadReply::Found { record, left });
                }
            }
            Ok(None) => return Ok(ReadReply::Absent),
            Err(error) if error.is_transient() => return Err(error),
            // Something of another type, say: the script has words for it.
            Err(_) => {}
        }
        self.read(key).await
    }
}
