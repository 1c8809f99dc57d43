//! The login of a connection to a `RabbitMQ` broker.

use std::io;

use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties, ErrorKind};

use super::{PATIENCE, RabbitSettings};
use idem_runtime::credentials::Credentials;

const REFUSED: &str = "RabbitMQ refuses the credentials of the provider, also after a second call of it; check its \
                       source of secrets, and the password of the user";

impl RabbitSettings {
    /// Connects, with the credentials of the provider.
    pub(super) async fn connect(&self) -> lapin::Result<Connection> {
        let Some(provider) = &self.credentials else {
            return self.connect_to(self.uri.clone()).await;
        };
        let connect = |credentials| self.connect_to(self.uri_with(credentials));
        let connected = provider.log_in(PATIENCE, connect, is_refused).await;
        match connected.map_err(io::Error::other)? {
            // An error that passes, because the next credentials may be others.
            Err(error) if is_refused(&error) => Err(io::Error::other(REFUSED).into()),
            connected => connected,
        }
    }

    async fn connect_to(&self, uri: AMQPUri) -> lapin::Result<Connection> {
        let properties = ConnectionProperties::default().with_connection_name("idem".into());
        #[cfg(feature = "rabbitmq-tls")]
        if let Some(tls) = &self.tls {
            return tls.connect(uri, properties).await;
        }
        Connection::connect_uri(uri, properties).await
    }

    fn uri_with(&self, credentials: Credentials) -> AMQPUri {
        let (user, password) = credentials.into_parts();
        let mut uri = self.uri.clone();
        let login = &mut uri.authority.userinfo;
        login.password = password;
        if let Some(user) = user {
            login.username = user;
        }
        uri
    }
}

fn is_refused(error: &lapin::Error) -> bool {
    match error.kind() {
        ErrorKind::ProtocolError(error) => {
            *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)
        }
        _ => false,
    }
}
