//! A password that changes while it is in use.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::{io, str, thread};

use idem_harness::RedisServer;
use idem_runtime::credentials::{Credentials, CredentialsProvider};
use tokio::task::JoinSet;
use tracing_subscriber::filter::LevelFilter;

use crate::shop::PASSWORD;

/// Gives the Redis user `app` all rights and this password alone. Ends its connections.
pub fn change_acl_user(server: &RedisServer, password: &str) {
    let password = format!(">{password}");
    let rules = [
        "on",
        "resetpass",
        &password,
        "allkeys",
        "allchannels",
        "allcommands",
    ];
    server.cli(&[&["ACL", "SETUSER", "app"][..], &rules].concat());
    server.cli(&["CLIENT", "KILL", "USER", "app"]);
}

/// How often the password changes.
const CHANGES: usize = 10;

/// The provider's calls after a change without the new password: both of one connection return the old one, and one
/// panics.
const LATE: usize = 3;

/// Calls that are made while it changes.
const BESIDE: usize = 19;

/// The first line with the password in this process's libraries' log.
static LOGGED: Mutex<Option<String>> = Mutex::new(None);

/// Reads this process's log, of `tracing` and `log`, at all levels.
struct Log;

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(line).unwrap_or_default();
        if text.contains(PASSWORD) {
            let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
            logged.get_or_insert(text.to_owned());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The current password of a user, and its provider. The last clone panics when dropped if a library logged the password.
#[derive(Clone)]
pub struct ChangingSecret(Arc<Inner>);

#[derive(Default)]
struct Inner {
    number: AtomicUsize,
    provided: AtomicUsize,
    /// The calls that are [`LATE`] still.
    late: AtomicUsize,
}

impl Default for ChangingSecret {
    fn default() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
            log.with_writer(|| Log).init();
        });
        Self(Arc::default())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = &*logged
            && !thread::panicking()
        {
            panic!("the password was logged: {line}");
        }
    }
}

impl ChangingSecret {
    /// The password of this moment.
    pub fn password(&self) -> String {
        Self::numbered(self.0.number.load(Ordering::SeqCst))
    }

    fn numbered(number: usize) -> String {
        format!("{PASSWORD}-{number}")
    }

    /// How often its provider was called.
    pub fn provided(&self) -> usize {
        self.0.provided.load(Ordering::SeqCst)
    }

    /// A provider of the current password of this user.
    pub fn provider(&self, user: &'static str) -> CredentialsProvider {
        let secret = self.clone();
        CredentialsProvider::from(move || {
            secret.0.provided.fetch_add(1, Ordering::SeqCst);
            let mut number = secret.0.number.load(Ordering::SeqCst);
            let next = |late: usize| late.checked_sub(1);
            match secret
                .0
                .late
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
            {
                Ok(1) => panic!("a provider that panics"),
                Ok(_) => number -= 1,
                Err(_) => {}
            }
            let credentials = Credentials::new(Self::numbered(number)).user(user);
            async move { Ok::<_, Infallible>(credentials) }
        })
    }

    /// Changes the password: first on the server, which is given the next one, then here.
    pub fn change(&self, on_server: impl FnOnce(&str)) {
        let next = self.0.number.load(Ordering::SeqCst) + 1;
        on_server(&Self::numbered(next));
        self.0.number.store(next, Ordering::SeqCst);
        self.0.late.store(LATE, Ordering::SeqCst);
    }

    /// Changes the password ten times, beside 19 numbered calls and before another: 200 calls.
    ///
    /// Returns the number of changes.
    pub async fn change_under_load<F>(
        &self,
        on_server: impl Fn(&str) + Send + Sync + 'static,
        call: impl Fn(usize) -> F,
    ) -> usize
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let on_server = Arc::new(on_server);
        for change in 0..CHANGES {
            let first = change * (BESIDE + 1);
            let mut calls: JoinSet<_> = (first..first + BESIDE).map(&call).collect();
            let (secret, on_server) = (self.clone(), Arc::clone(&on_server));
            // Blocking: it runs the client of a server.
            calls.spawn_blocking(move || secret.change(&*on_server));
            calls.join_all().await;
            call(first + BESIDE).await;
        }
        CHANGES
    }
}
