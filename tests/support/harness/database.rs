//! Functions of all database servers.

use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use crate::dir::TestDir;
use crate::port::Port;
use crate::product::{APP, Product};
use crate::server::{Description, Family, Ready};
use crate::url::credentials;
use crate::{Certificates, FakeClock, Server, StartError, template};

/// A database server on a loopback port, stopped on drop: the common part of [`PostgresServer`](crate::PostgresServer)
/// and [`MariaDbServer`](crate::MariaDbServer).
///
/// It is a [`Server`].
#[derive(Debug)]
pub struct DatabaseServer {
    server: Server,
    product: Arc<dyn Product>,
}

impl DatabaseServer {
    pub(crate) fn launch(
        product: Box<dyn Product>,
        durable: bool,
        clock: Option<FakeClock>,
        certificates: Option<&Certificates>,
        settings: Vec<OsString>,
    ) -> Result<Self, StartError> {
        let product: Arc<dyn Product> = product.into();
        let template = product.template()?;
        let port = Port::take()?;
        let dir = if durable {
            TestDir::new(product.facts().scheme)
        } else {
            TestDir::in_memory(product.facts().scheme)
        }?;
        template::copy(&template, &dir.path().join("data"), product.account())?;
        let mut args = product.args(port.number(), dir.path(), durable);
        if let Some(certificates) = certificates {
            certificates.write(dir.path())?;
            args.extend(product.setting("ssl", "on"));
            for (name, file) in product.facts().tls.0 {
                let path = dir.path().join(file);
                args.extend(product.setting(name, &path.display().to_string()));
            }
        }
        if let Some(account) = product.account() {
            account.own(dir.path())?;
        }
        args.extend(settings);
        let place = dir.path().to_owned();
        let addr = (Ipv4Addr::LOCALHOST, port.number()).into();
        let (this, there) = (product.clone(), place.clone());
        let ready = Ready::Answers(Box::new(move || answers(&*this, addr, &there)));
        let mut description = Description::new(product.facts().name, product.server(), args, ready);
        let account = product.account();
        description.set_up = Box::new(move |command| {
            let clock = FakeClock::environment(clock.as_ref())?;
            command.env("LC_ALL", "C").envs(clock).current_dir(&place);
            if let Some(account) = account {
                account.put_on(command);
            }
            Ok(())
        });
        description.stop = Some(product.facts().stop);
        description.family = Family::Children;
        description.will = product.facts().will;
        Ok(Self {
            server: Server::start(description, port, dir)?,
            product,
        })
    }

    /// The URL of the database `idem` for the user `idem`. It has all rights.
    pub fn url(&self) -> String {
        self.url_of("idem")
    }

    /// The URL of another database, for the user `idem`.
    pub fn url_of(&self, database: &str) -> String {
        format!(
            "{}://idem@{}/{database}",
            self.product.facts().scheme,
            self.addr()
        )
    }

    /// Like [`url`](Self::url), for a server behind a [`TcpProxy`](crate::TcpProxy) at `addr`.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        format!("{}://idem@{addr}/idem", self.product.facts().scheme)
    }

    /// The URL of the database `idem` for `app` with its password.
    pub fn password_url(&self) -> String {
        self.url_as(APP.0, APP.1)
    }

    /// The URL of the database `idem` for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let login = credentials(user, password);
        format!(
            "{}://{login}{}/idem",
            self.product.facts().scheme,
            self.addr()
        )
    }

    /// Runs SQL in the database `idem` and returns the values: rows in lines, of columns between
    /// `|` (Postgres) or tabs (`MariaDB`).
    pub fn execute(&self, sql: &str) -> String {
        self.execute_in("idem", sql)
    }

    /// Like [`execute`](Self::execute), in another database.
    pub fn execute_in(&self, database: &str, sql: &str) -> String {
        match self.ask(database, sql) {
            Ok(values) => values,
            Err(error) => panic!("`{sql}` is refused: {error}"),
        }
    }

    /// Like [`execute`](Self::execute), for SQL that may fail.
    pub fn try_execute(&self, sql: &str) -> Result<String, String> {
        self.ask("idem", sql)
    }

    /// Creates another, empty database, and returns its URL.
    pub fn create_database(&self, name: &str) -> String {
        let quote = self.product.facts().quote;
        let quoted = name.replace(quote, &format!("{quote}{quote}"));
        self.execute(&format!("CREATE DATABASE {quote}{quoted}{quote}"));
        self.url_of(name)
    }

    /// Shows the certificate of these to later connections.
    pub fn replace_certificate(&self, certificates: &Certificates) {
        let replaced = certificates.write(self.dir());
        replaced.expect("the files may be written");
        self.execute(self.product.facts().tls.1);
    }

    fn ask(&self, database: &str, sql: &str) -> Result<String, String> {
        ask(&*self.product, self.addr(), database, sql)
    }
}

is_a!(DatabaseServer.server: Server);

/// Whether this server, not another on its port, has recovered its data.
fn answers(product: &dyn Product, addr: SocketAddr, dir: &Path) -> bool {
    // Cheaper than a client, which most of the time would come too early.
    let listens = TcpStream::connect(addr).is_ok();
    let place = || ask(product, addr, "idem", product.facts().data_query).ok();
    listens && place().is_some_and(|place| Path::new(&place).starts_with(dir))
}

fn ask(
    product: &dyn Product,
    addr: SocketAddr,
    database: &str,
    sql: &str,
) -> Result<String, String> {
    let mut command = product.client(addr, database);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut client = command.spawn().map_err(|error| error.to_string())?;
    let mut input = client.stdin.take().expect("stdin is piped");
    // In a thread of its own, because the output may have to be read first. A client that cannot connect
    // reads nothing, and prints the reason.
    let sql = sql.to_owned();
    let writer = thread::spawn(move || input.write_all(sql.as_bytes()));
    let output = client
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    drop(writer.join());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        self.kill();
        self.product.tidy(self.dir());
    }
}
