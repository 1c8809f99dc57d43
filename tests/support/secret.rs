//! A password that changes while it is in use.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use idem_runtime::credentials::{Credentials, CredentialsProvider};
use tokio::task::JoinSet;

use crate::shop::PASSWORD;

/// Tasks that make calls at the same time.
const TASKS: usize = 8;

/// Calls of each of them.
const CALLS: usize = 25;

/// Calls between two changes.
const EVERY: usize = 20;

/// The current password of a user, and the provider of it. Clones share both.
#[derive(Clone, Default)]
pub struct ChangingSecret(Arc<Inner>);

#[derive(Default)]
struct Inner {
    number: AtomicUsize,
    changing: Mutex<()>,
    provided: AtomicUsize,
}

impl ChangingSecret {
    /// The password of this moment.
    #[must_use]
    pub fn password(&self) -> String {
        Self::numbered(self.0.number.load(Ordering::SeqCst))
    }

    fn numbered(number: usize) -> String {
        format!("{PASSWORD}-{number}")
    }

    /// How often its provider was called.
    #[must_use]
    pub fn provided(&self) -> usize {
        self.0.provided.load(Ordering::SeqCst)
    }

    /// A provider of the current password of this user.
    #[must_use]
    pub fn provider(&self, user: &'static str) -> CredentialsProvider {
        let secret = self.clone();
        CredentialsProvider::from(move || {
            secret.0.provided.fetch_add(1, Ordering::SeqCst);
            let credentials = Credentials::new(secret.password()).user(user);
            async move { Ok::<_, Infallible>(credentials) }
        })
    }

    /// Changes the password: first on the server, which is given the next one, then here.
    pub fn change(&self, on_server: impl FnOnce(&str)) {
        let changing = self.0.changing.lock();
        let _changing = changing.unwrap_or_else(PoisonError::into_inner);
        let next = self.0.number.load(Ordering::SeqCst) + 1;
        on_server(&Self::numbered(next));
        self.0.number.store(next, Ordering::SeqCst);
    }

    /// Makes 200 numbered calls in 8 tasks, and changes the password after every 20 of them, while the others go on.
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
        let (on_server, made) = (Arc::new(on_server), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let calls: Vec<_> = (0..CALLS)
                .map(|number| call(task * CALLS + number))
                .collect();
            let (secret, on_server, made) =
                (self.clone(), Arc::clone(&on_server), Arc::clone(&made));
            tasks.spawn(async move {
                for call in calls {
                    call.await;
                    if (made.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(EVERY) {
                        let (secret, on_server) = (secret.clone(), Arc::clone(&on_server));
                        // Blocking: it runs the client of a server.
                        let changing = move || secret.change(&*on_server);
                        tokio::task::spawn_blocking(changing)
                            .await
                            .expect("the server is up");
                    }
                }
            });
        }
        tasks.join_all().await;
        TASKS * CALLS / EVERY
    }
}

impl fmt::Debug for ChangingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangingSecret").finish_non_exhaustive()
    }
}
