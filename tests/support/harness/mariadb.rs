//! A `MariaDB` server for tests.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::account::Account;
use crate::builder::{find, find_program};
use crate::product::{APP, Facts, Product};
use crate::{DatabaseServer, DatabaseServerBuilder, StartError, template, tool};

/// Variable that names another server.
const SERVER: &str = "IDEM_MARIADB_SERVER";

/// A `mariadbd`, or `MySQL`'s `mysqld`, on a loopback port, stopped on drop.
///
/// It has a user `idem` with all rights and no password, a user `app` with a password,
/// and a database `idem` in which both have all rights. For its functions see
/// [`DatabaseServer`].
#[derive(Debug)]
pub struct MariaDbServer(DatabaseServer);

pub type MariaDbServerBuilder = DatabaseServerBuilder<MariaDbServer>;

impl MariaDbServer {
    /// Starts a server with an empty database.
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> MariaDbServerBuilder {
        DatabaseServerBuilder::new(|| Ok(Box::new(MariaDb::find()?)), Self)
    }
}

is_a!(MariaDbServer.0: DatabaseServer);

#[derive(Debug)]
struct MariaDb {
    server: PathBuf,
    /// `MySQL` has none: its server makes its own data directory.
    install: Option<PathBuf>,
    client: PathBuf,
    account: Option<Account>,
}

impl MariaDb {
    fn find() -> Result<Self, StartError> {
        // Debian does not have `/usr/sbin` in the `PATH` of users.
        let places = [
            "mariadbd",
            "/usr/sbin/mariadbd",
            "mysqld",
            "/usr/sbin/mysqld",
        ];
        let missing = || format!("no MariaDB; {}", advice());
        let server = find(SERVER, places, missing)?;
        // A link such as `mysqld` may lead to either product.
        let real = server.canonicalize()?;
        let names = ["mariadb-install-db", "mysql_install_db"];
        let alone = real.ends_with("mysqld") && beside(&real, &names).is_none();
        let install = (!alone).then(|| required(&real, &names)).transpose()?;
        let client = required(&real, &["mariadb", "mysql"])?;
        Ok(Self {
            server,
            install,
            client,
            account: Account::below_root("mysql")?,
        })
    }

    /// Settings for the creation and the use of a data directory.
    fn layout(&self, data: &Path) -> Vec<OsString> {
        let mut args = vec!["--no-defaults".into()];
        args.extend(
            [
                ("character-set-server", "utf8mb4"),
                // `loose`, because each product knows only one of them. The files are copied for each server.
                ("loose-innodb-log-file-size", "8M"),
                ("loose-innodb-redo-log-capacity", "8M"),
                ("innodb-buffer-pool-size", "32M"),
                // The system limits the number of native AIO contexts.
                ("innodb-use-native-aio", "0"),
                ("innodb-temp-data-file-path", "ibtmp1:5M:autoextend"),
                ("innodb-buffer-pool-load-at-startup", "0"),
            ]
            .iter()
            .flat_map(|(name, value)| self.setting(name, value)),
        );
        args.push(option("datadir", data));
        args
    }
}

impl Product for MariaDb {
    fn facts(&self) -> &'static Facts {
        &Facts {
            name: "MariaDB",
            scheme: "mysql",
            data_query: "SELECT @@datadir",
            quote: '`',
            stop: Signal::SIGTERM,
            tls: (
                &[("ssl-cert", "server.pem"), ("ssl-key", "server.key")],
                "FLUSH SSL",
            ),
            will: "",
        }
    }

    fn account(&self) -> Option<Account> {
        self.account
    }

    fn server(&self) -> &Path {
        &self.server
    }

    fn template(&self) -> Result<PathBuf, StartError> {
        let (app, password) = APP;
        // Without the first line, a server that has not loaded its users cannot create any.
        let setup = format!(
            "FLUSH PRIVILEGES;\n\
             CREATE DATABASE idem;\n\
             CREATE USER 'idem'@'%';\n\
             GRANT ALL PRIVILEGES ON *.* TO 'idem'@'%' WITH GRANT OPTION;\n\
             CREATE USER '{app}'@'%' IDENTIFIED BY '{password}';\n\
             GRANT ALL PRIVILEGES ON idem.* TO '{app}'@'%';\n"
        );
        let layout = self.layout(Path::new(""));
        let key = (
            template::identity(&self.server)?,
            &setup,
            layout,
            self.account,
        );
        template::template("mariadb", key, |dir| {
            let data = dir.path().join("data");
            fs::create_dir(&data)?;
            if let Some(account) = self.account {
                account.own(dir.path())?;
            }
            let mut args = self.layout(&data);
            if let Some(install) = &self.install {
                args.extend(
                    [
                        "--auth-root-authentication-method=normal",
                        "--skip-name-resolve",
                        "--skip-test-db",
                    ]
                    .map(OsString::from),
                );
                tool::run(install, &args, "", dir, self.account)?;
                let mut args = self.layout(&data);
                args.push("--bootstrap".into());
                tool::run(&self.server, &args, &setup, dir, self.account)?;
            } else {
                let file = dir.path().join("setup.sql");
                fs::write(&file, &setup)?;
                args.extend(["--initialize-insecure".into(), option("init-file", &file)]);
                tool::run(&self.server, &args, "", dir, self.account)?;
            }
            Ok(data)
        })
    }

    fn args(&self, port: u16, dir: &Path, durable: bool) -> Vec<OsString> {
        // Written with each commit either way, so that a commit survives a kill.
        let (at_commit, write_twice) = if durable { ("1", "1") } else { ("2", "0") };
        let mut args = self.layout(&dir.join("data"));
        args.extend(
            [
                ("bind-address", "127.0.0.1"),
                ("port", &port.to_string()),
                ("skip-networking", "0"),
                ("max-connections", "300"),
                ("skip-name-resolve", "1"),
                ("skip-log-bin", "1"),
                ("innodb-flush-log-at-trx-commit", at_commit),
                ("innodb-doublewrite", write_twice),
                // An additional port of MySQL's, the same for all servers.
                ("loose-mysqlx", "0"),
            ]
            .iter()
            .flat_map(|(name, value)| self.setting(name, value)),
        );
        if !durable {
            args.extend(self.setting("loose-innodb-flush-method", "nosync"));
        }
        args.extend([
            option("socket", &dir.join("sock")),
            option("pid-file", &dir.join("pid")),
            option("tmpdir", dir),
        ]);
        args
    }

    fn setting(&self, name: &str, value: &str) -> Vec<OsString> {
        vec![format!("--{name}={value}").into()]
    }

    fn client(&self, addr: SocketAddr, database: &str) -> Command {
        let mut command = Command::new(&self.client);
        command
            .args(["--no-defaults", "--protocol=tcp", "--connect-timeout=20"])
            .args(["--batch", "--raw", "--skip-column-names", "--user=idem"])
            .arg(format!("--host={}", addr.ip()))
            .arg(format!("--port={}", addr.port()))
            .arg(format!("--database={database}"))
            .env_remove("MYSQL_PWD");
        command
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(path);
    option
}

/// A program that comes with the server.
fn required(server: &Path, names: &[&str]) -> Result<PathBuf, StartError> {
    let found = beside(server, names);
    let found = found.or_else(|| names.iter().find_map(|name| find_program(Path::new(name))));
    found.ok_or_else(|| {
        StartError::new(format!(
            "no program `{}` comes with `{}`; {}",
            names[0],
            server.display(),
            advice()
        ))
    })
}

/// A program beside the server, as placed by packages and archives.
fn beside(server: &Path, names: &[&str]) -> Option<PathBuf> {
    let dir = server.parent()?;
    let root = dir.parent()?;
    let dirs = [dir, &root.join("bin"), &root.join("scripts")];
    let places = dirs
        .iter()
        .flat_map(|dir| names.iter().map(|name| dir.join(name)));
    places.into_iter().find_map(|path| find_program(&path))
}

fn advice() -> String {
    format!(
        "install it (Debian, Ubuntu: `apt-get install mariadb-server`, Fedora: `dnf install \
         mariadb-server`, macOS: `brew install mariadb`), or set {SERVER} to the path of a \
         mariadbd or mysqld"
    )
}
