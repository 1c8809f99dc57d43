//! A Postgres server for tests.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use nix::sys::signal::Signal;

use crate::account::Account;
use crate::builder::find_program;
use crate::product::{APP, Facts, Product};
use crate::{DatabaseServer, DatabaseServerBuilder, StartError, template, tool};

/// Variable that names the directory of another Postgres's programs.
const BIN: &str = "IDEM_POSTGRES_BIN";

/// Where Debian's packages install each version, none of them in `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Authentication: the harness and most tests without a password, others with one.
const HBA: &str = "\
host all idem 127.0.0.0/8 trust
host all all 127.0.0.0/8 scram-sha-256
";

/// A `postgres` on a loopback port, stopped when the value is dropped.
///
/// It has a superuser `idem` without a password, a user `app` with one, and a database `idem`
/// that belongs to `app`. For its functions see [`DatabaseServer`].
#[derive(Debug)]
pub struct PostgresServer(DatabaseServer);

pub type PostgresServerBuilder = DatabaseServerBuilder<PostgresServer>;

impl PostgresServer {
    /// Starts a server with an empty database.
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> PostgresServerBuilder {
        DatabaseServerBuilder::new(|| Ok(Box::new(Postgres::find()?)), Self)
    }
}

is_a!(PostgresServer.0: DatabaseServer);

#[derive(Debug)]
struct Postgres {
    server: PathBuf,
    initdb: PathBuf,
    psql: PathBuf,
    account: Option<Account>,
}

impl Postgres {
    fn find() -> Result<Self, StartError> {
        let [server, initdb, psql] = find_programs()?;
        Ok(Self {
            server,
            initdb,
            psql,
            account: Account::below_root("postgres")?,
        })
    }
}

impl Product for Postgres {
    fn facts(&self) -> &'static Facts {
        &Facts {
            name: "Postgres",
            scheme: "postgres",
            data_query: "SHOW data_directory",
            quote: '"',
            stop: Signal::SIGINT,
            tls: (
                &[
                    ("ssl_cert_file", "server.pem"),
                    ("ssl_key_file", "server.key"),
                ],
                "SELECT pg_reload_conf()",
            ),
            will: include_str!("postgres_will.sh"),
        }
    }

    fn account(&self) -> Option<Account> {
        self.account
    }

    fn server(&self) -> &Path {
        &self.server
    }

    fn template(&self) -> Result<PathBuf, StartError> {
        let (user, password) = APP;
        // One statement in a line, the syntax of single-user mode.
        let setup = format!(
            "SET password_encryption = 'scram-sha-256'\n\
             CREATE ROLE {user} LOGIN PASSWORD '{password}'\n\
             CREATE DATABASE idem OWNER {user}\n"
        );
        let init = [
            "--username=idem",
            "--auth=trust",
            "--no-locale",
            "--encoding=UTF8",
            "--no-sync",
            // The WAL segments are copied for each server.
            "--wal-segsize=1",
            "--pgdata",
        ];
        let single = ["--single", "-c", "fsync=off", "-D"];
        let key = (
            template::identity(&self.server)?,
            init,
            &setup,
            HBA,
            self.account,
        );
        template::template("postgres", key, |dir| {
            if let Some(account) = self.account {
                account.own(dir.path())?;
            }
            let data = dir.path().join("data");
            let mut args: Vec<OsString> = init.map(OsString::from).into();
            args.push(data.clone().into());
            tool::run(&self.initdb, &args, "", dir, self.account)?;
            fs::write(data.join("pg_hba.conf"), HBA)?;
            let mut args: Vec<OsString> = single.map(OsString::from).into();
            args.extend([data.clone().into(), "postgres".into()]);
            tool::run(&self.server, &args, &setup, dir, self.account)?;
            Ok(data)
        })
    }

    fn args(&self, port: u16, dir: &Path, durable: bool) -> Vec<OsString> {
        let (port, on) = (port.to_string(), if durable { "on" } else { "off" });
        let settings = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", ""),
            ("max_connections", "300"),
            ("shared_buffers", "16MB"),
            // In the data directory, so that it does not outlive a killed server.
            ("dynamic_shared_memory_type", "mmap"),
            // A commit reaches the system's cache either way, and survives a kill.
            ("fsync", on),
            ("full_page_writes", on),
            ("synchronous_commit", "on"),
        ];
        let mut args = vec!["-D".into(), dir.join("data").into()];
        args.extend(
            settings
                .iter()
                .flat_map(|(name, value)| self.setting(name, value)),
        );
        args
    }

    fn setting(&self, name: &str, value: &str) -> Vec<OsString> {
        vec!["-c".into(), format!("{name}={value}").into()]
    }

    fn client(&self, addr: SocketAddr, database: &str) -> Command {
        let mut command = Command::new(&self.psql);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command
            .env("PGCONNECT_TIMEOUT", "20")
            .args([
                "-X",
                "-A",
                "-t",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "idem",
            ])
            .args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()])
            .args(["-d", database]);
        command
    }

    /// A small piece of shared memory marks a data directory as used. Systems allow some thousands of them, and a
    /// killed server leaves its own behind.
    fn tidy(&self, dir: &Path) {
        let lock = fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
        let memory = lock.lines().nth(6).unwrap_or_default();
        if let Some(id) = memory.split_whitespace().nth(1) {
            // `ipcrm` prints its own error, which does not concern the test.
            drop(Command::new("ipcrm").args(["-m", id]).status());
        }
    }
}

/// The programs in the named directory; otherwise in `PATH`, or of Debian's newest package.
fn find_programs() -> Result<[PathBuf; 3], StartError> {
    let names = ["postgres", "initdb", "psql"];
    // A link in `PATH` need not have the others beside it, nor be of the version of the others.
    let beside = find_program(Path::new("postgres")).and_then(|path| path.canonicalize().ok());
    let beside = beside.and_then(|path| path.parent().map(Path::to_owned));
    let mut dirs: Vec<_> = match env::var_os(BIN) {
        Some(dir) => vec![dir.into()],
        None => beside
            .into_iter()
            .chain(versions(Path::new(DEBIAN)))
            .collect(),
    };
    let is_there = |path: PathBuf| find_program(&path).is_some();
    dirs.retain(|dir| names.iter().all(|name| is_there(dir.join(name))));
    let dir = dirs.first().ok_or_else(|| {
        StartError::new(format!(
            "no Postgres with `initdb` and `psql`; install it (Debian, Ubuntu: `apt-get install \
             postgresql`, Fedora: `dnf install postgresql-server`, macOS: `brew install \
             postgresql`) or set {BIN} to the directory of its programs"
        ))
    })?;
    Ok(names.map(|name| dir.join(name)))
}

/// The newest first.
fn versions(debian: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(debian).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort_by(|one, two| two.cmp(one));
    found.into_iter().map(|(_, dir)| dir).collect()
}
