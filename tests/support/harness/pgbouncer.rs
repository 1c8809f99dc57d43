//! A `PgBouncer` in front of a Postgres for tests.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::builder::find_program;
use crate::dir::TestDir;
use crate::port::Port;
use crate::server::{Description, Ready, started};
use crate::{DatabaseServer, Server, StartError};

/// The places of the program; the second is that of Debian's package, which is not in every user's PATH.
const PLACES: [&str; 2] = ["pgbouncer", "/usr/sbin/pgbouncer"];

/// A `pgbouncer` with transaction pooling on a loopback port, stopped on drop.
///
/// Every client is the user `idem` of the server, and needs no password.
#[derive(Debug)]
pub struct PgBouncer(Server);

impl PgBouncer {
    /// Starts one before the server, with settings of its section `[pgbouncer]`.
    pub fn start(server: &DatabaseServer, settings: &[(&str, &str)]) -> Self {
        started(|| Self::launch(server, settings))
    }

    fn launch(server: &DatabaseServer, settings: &[(&str, &str)]) -> Result<Self, StartError> {
        let program = program()?;
        let account = Account::below_root("postgres")?;
        let dir = TestDir::new("pgbouncer")?;
        let port = Port::take()?;
        let mut text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=idem\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             max_client_conn = 300\n",
            server.port(),
            port.number(),
        );
        for (name, value) in settings {
            let _ = writeln!(text, "{name} = {value}");
        }
        let file = dir.path().join("pgbouncer.ini");
        fs::write(&file, text)?;
        if let Some(account) = account {
            account.own(dir.path())?;
        }
        let ready = Ready::Says("process up");
        let mut description = Description::new("PgBouncer", program, vec![file.into()], ready);
        description.set_up = Box::new(move |command| {
            if let Some(account) = account {
                account.put_on(command);
            }
            Ok(())
        });
        Server::start(description, port, dir).map(Self)
    }
}

is_a!(PgBouncer.0: Server);

fn program() -> Result<PathBuf, StartError> {
    let mut found = PLACES
        .iter()
        .filter_map(|place| find_program(Path::new(place)));
    found.next().ok_or_else(|| {
        StartError::new(
            "no PgBouncer; install it (Debian, Ubuntu: `apt-get install pgbouncer`, Fedora: `dnf install \
             pgbouncer`, macOS: `brew install pgbouncer`)"
                .to_owned(),
        )
    })
}
