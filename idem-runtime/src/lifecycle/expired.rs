//! What an expired token is told where nobody runs and no answer is stored.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::identity::operation::RecordKey;
use crate::lifecycle::core::Core;
use crate::record::State;
use crate::store::ReadReply;

impl Core {
    /// Whether anything was begun with it. `None`: something is by now, so ask again.
    pub(crate) async fn expired(self: &Arc<Self>, key: &RecordKey) -> Option<Error> {
        let operation = key.operation();
        let found = match self.patiently(operation, || self.read(key)).await {
            Ok(ReadReply::Found { record, left }) => (record, left),
            Ok(_) => return Some(Error::new(ErrorKind::TokenExpired, operation.clone())),
            Err(error) => return Some(error),
        };
        let (header, left) = (found.0.header, found.1);
        match header.state {
            State::Released => Some(Error::new(ErrorKind::TokenExpired, operation.clone())),
            // Refused as expired, its user would be given a new one: and do again what may be done.
            State::Pending { .. } | State::Reconciling { .. } if header.lapsed(left) => {
                let error = self.unknown(operation, header.attempts, None, header.age(left));
                Some(error.detail(format!(
                    "attempt {} was abandoned, and its token has expired since",
                    header.attempts
                )))
            }
            _ => None,
        }
    }
}
