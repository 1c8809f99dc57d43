//! The errors of `mysql_async`.

use mysql_async::{DriverError, Error, IoError};

use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;

/// Maps an error of `mysql_async`, whose own text may show a packet.
#[allow(
    unreachable_patterns,
    reason = "without a feature for TLS there is one kind of `IoError`"
)]
pub(super) fn session_error(error: Error) -> SqlError {
    match error {
        Error::Server(error) => {
            SqlError::server(Dialect::MYSQL, error.code.to_string(), &error.message)
        }
        Error::Driver(error @ DriverError::NoClientSslFlagFromServer) => SqlError::tls(error),
        Error::Driver(
            error @ (DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled),
        ) => SqlError::configuration(error),
        Error::Io(IoError::Io(error)) => SqlError::lost_or_untrusted(error),
        Error::Io(error) => SqlError::tls(error),
        error => SqlError::lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_no_packet_and_loses_the_connection() {
        let payload = b"4111-1111".to_vec();
        let error = session_error(DriverError::UnexpectedPacket { payload }.into());
        assert!(error.is_lost());
        assert!(!format!("{error:?}").contains("52, 49"), "{error:?}");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(session_error(refused.into()).is_lost());
    }
}
