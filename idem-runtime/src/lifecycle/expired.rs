//! The error of an expired token without a running body or a stored answer.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::identity::operation::RecordKey;
use crate::lifecycle::core::Core;
use crate::record::State;
use crate::store::ReadReply;

impl Core {
    /// The error of a call with an expired token; `None`: a record has appeared since, so the call claims again.
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
            // An expired-token error would make the client request a new token, and repeat an effect that may have
            // happened.
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
