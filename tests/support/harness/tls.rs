//! The TLS port of a server.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::certificates::Certificates;
use crate::port::Port;
use crate::url::credentials;
use crate::{RedisServer, RedisServerBuilder};

#[derive(Debug)]
pub(crate) struct TlsPort {
    port: Port,
    certificates: Certificates,
}

impl TlsPort {
    /// Takes a TLS port if there is one, and sets it up. Writes the files into `dir`, and extends `args`.
    pub(crate) fn take(
        builder: &RedisServerBuilder,
        dir: &Path,
        args: &mut Vec<OsString>,
    ) -> io::Result<Option<Self>> {
        let Some(certificates) = &builder.certificates else {
            return Ok(None);
        };
        let port = Port::take()?;
        let clients = if builder.tls_client_auth { "yes" } else { "no" };
        args.extend(["--tls-port".into(), port.number().to_string().into()]);
        args.extend(["--tls-auth-clients".into(), clients.into()]);
        args.extend(certificates.write(dir)?.into_iter().map(OsString::from));
        Ok(Some(Self {
            port,
            certificates: certificates.clone(),
        }))
    }
}

/// For a server built with [`tls`](RedisServerBuilder::tls) or a variant of it.
impl RedisServer {
    /// The address of the TLS port; [`addr`](crate::Server::addr) is without TLS.
    pub fn tls_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.tls_port().port.number()).into()
    }

    /// The TLS URL for the default user, with its password if any.
    pub fn tls_url(&self) -> String {
        format!("rediss://{}{}", self.login(), self.tls_addr())
    }

    pub fn tls_url_as(&self, user: &str, password: &str) -> String {
        format!(
            "rediss://{}{}",
            credentials(user, password),
            self.tls_addr()
        )
    }

    /// The authority of the server's certificate, and the accepted client certificate.
    pub fn certificates(&self) -> &Certificates {
        &self.tls_port().certificates
    }

    fn tls_port(&self) -> &TlsPort {
        let tls = self.tls.as_ref();
        tls.expect("the server is built with `tls()`")
    }
}
