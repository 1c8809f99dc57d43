//! Issue and verification of tokens.

use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, ErrorKind};
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;
use crate::identity::presented_token::{NONCE, PresentedToken, SecretId, TokenHeader, text};

const LEAST_SECRET: usize = 32;
const LIFE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));
/// The greatest difference between the clocks of two processes: a record outlives its token by as much.
const TOLERANCE: Duration = Duration::from_secs(60);

/// Issues and verifies one-time tokens.
///
/// A page with a form requests a token ([`Engine::issue_token`](crate::Engine::issue_token)) and carries it in a hidden
/// field; the call that the form makes has it as its [key](crate::token::token()). However often the form is sent, by double
/// clicks, reloads, the back button or two tabs, the body runs once, and every request gets its answer. After a system
/// error the token is usable again; after a success, or a business error, the same answer is replayed.
///
/// # Content
///
/// Operation, subject, engine prefix, expiry and 128 random bits, signed with HMAC-SHA-256; 80 characters of
/// `A–Z a–z 0–9 - _`. **Nothing is stored when a token is issued.** Verification needs no request to the store. The
/// first use is the claim of its record: one round trip, and of concurrent claims one is granted.
///
/// # Protection
///
/// - **Guessing and forging**: without the secret a client can neither make a token nor derive one from another.
///   Signatures are compared in constant time, and every invalid token is refused alike, as
///   [`ErrorKind::TokenInvalid`](crate::ErrorKind::TokenInvalid).
/// - **Another user's token**: a token works for its subject only, and for its operation only. Take the subject from
///   the session. A token proves that a subject may send a form, not who sends it: it is no login.
/// - **Being sent again**: every request gets the answer of the first, also when the token has expired since. Only its
///   subject receives it, but so does every client that is logged in as that subject. With other arguments the call is
///   a [`Mismatch`](crate::ErrorKind::Mismatch).
/// - **Expiry**: an expired token starts nothing ([`ErrorKind::TokenExpired`](crate::ErrorKind::TokenExpired)), no
///   reconcile hook either. If its body was interrupted before, the outcome is [`Unknown`](crate::ErrorKind::Unknown),
///   and the user should not be sent to a new form.
/// - **Short lives of answers**: a record lives for the rest of its token's life and a minute, even where `ttl` or
///   `error_ttl` are shorter, because otherwise a token could be used again while it is valid.
///
/// # Limits
///
/// - **Clocks**: those of the processes may differ by one minute. Beyond that a token may be refused too early, or used
///   once more after a `ttl` that is shorter than the difference. A token from more than a day and a minute ahead is
///   refused.
/// - **A store that loses its records** (`FLUSHALL`, a failover to a replica that lagged behind) loses the uses of
///   tokens: until they expire they can be used once more. `on_outage = run` has the same effect while the outage
///   lasts.
/// - **Two stores**: engines with one secret and one prefix accept each other's tokens. On different stores, each
///   accepts them once.
/// - **A stolen secret**: its holder can make tokens for every subject. Change it.
///
/// # Changing the secret
///
/// Deploy everywhere, one after the other:
///
/// 1. `TokenIssuer::new(old).also_accept(new)`: every process accepts the new secret before any process signs with it;
/// 2. `TokenIssuer::new(new).also_accept(old)`: every process signs with it;
/// 3. `TokenIssuer::new(new)`, once the answers of old tokens need not be replayed any more: `ttl`, or at least the
///    [`life`](Self::life) of a token.
///
/// ```
/// use std::time::Duration;
/// use idem_runtime::{Engine, store::memory::MemoryStore, token::TokenIssuer};
///
/// let secret = [7; 32]; // at least 32 random bytes from your secret store, the same in every process
/// let issuer = TokenIssuer::new(secret).life(Duration::from_secs(30 * 60));
/// let engine = Engine::builder(MemoryStore::new()).tokens(issuer).build()?;
/// let hidden = engine.issue_token("orders.submit", &("tenant", 42))?;
/// assert_eq!(hidden.len(), 80);
/// # Ok::<_, idem_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct TokenIssuer {
    signs: Secret,
    others: Vec<Secret>,
    life: Duration,
}

#[derive(Clone)]
struct Secret {
    id: SecretId,
    mac: Hmac<Sha256>,
    bytes: usize,
}

impl Secret {
    fn new(secret: &[u8]) -> Self {
        let mac = Hmac::new_from_slice(secret).expect("a secret of any length");
        let mut id = SecretId::default();
        let whole = Mac::chain_update(mac.clone(), "id of a token secret").finalize();
        id.copy_from_slice(&whole.into_bytes()[..3]);
        let bytes = secret.len();
        Self { id, mac, bytes }
    }

    /// The signature over all data of a token. The parts before the prefix have fixed lengths.
    fn sign(&self, head: &TokenHeader, digest: &KeyDigest, prefix: &str) -> Hmac<Sha256> {
        Mac::chain_update(self.mac.clone(), "idempotency token")
            .chain_update(head.encode())
            .chain_update(digest.as_bytes())
            .chain_update(prefix)
    }
}

impl TokenIssuer {
    /// Signs with this secret: at least 32 random bytes, the same in every process. A shorter one fails
    /// [`EngineBuilder::build`](crate::EngineBuilder::build).
    #[must_use]
    pub fn new(secret: impl AsRef<[u8]>) -> Self {
        Self {
            signs: Secret::new(secret.as_ref()),
            others: Vec::new(),
            life: Duration::from_secs(5 * 60),
        }
    }

    /// Also accepts tokens that were signed with this secret.
    #[must_use]
    pub fn also_accept(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.others.push(Secret::new(secret.as_ref()));
        self
    }

    /// The time in which a token can start a call; default 5 min, 1 s to 24 h.
    ///
    /// It limits the time that a person may take for the form. The answer is replayed for as long as it is stored.
    #[must_use]
    pub fn life(mut self, life: Duration) -> Self {
        self.life = life;
        self
    }

    /// An issuer with a random secret, valid only in this process.
    fn random() -> Self {
        let mut secret = [0; LEAST_SECRET];
        getrandom::fill(&mut secret).expect("the operating system gives random bytes");
        Self::new(secret)
    }

    fn secrets(&self) -> impl Iterator<Item = &Secret> {
        std::iter::once(&self.signs).chain(&self.others)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(short) = self.secrets().find(|secret| secret.bytes < LEAST_SECRET) {
            return Err(format!(
                "a secret of `TokenIssuer` has {} bytes; it must have at least {LEAST_SECRET}, and random ones",
                short.bytes
            ));
        }
        if self.life < LIFE.0 || self.life > LIFE.1 {
            return Err(format!(
                "`life` of `TokenIssuer` is {:?}; it must be {:?} to {:?}",
                self.life, LIFE.0, LIFE.1
            ));
        }
        Ok(())
    }

    pub(crate) fn issue(
        &self,
        nonce: [u8; NONCE],
        digest: &KeyDigest,
        prefix: &str,
        now: SystemTime,
    ) -> String {
        let until = since_1970(now) + self.life;
        let head = TokenHeader {
            secret: self.signs.id,
            expires: until.as_secs() + u64::from(until.subsec_nanos() > 0),
            nonce,
        };
        let mac = self.signs.sign(&head, digest, prefix).finalize();
        text(&head, &mac.into_bytes().into())
    }

    /// Whether this token was signed with one of these secrets.
    fn knows(&self, presented: &PresentedToken, prefix: &str) -> bool {
        let mut secrets = self
            .secrets()
            .filter(|secret| secret.id == presented.header.secret);
        secrets.any(|secret| {
            let signature = secret.sign(&presented.header, &presented.digest(), prefix);
            signature.verify_slice(&presented.mac).is_ok()
        })
    }
}

// Leaves out the secrets and everything derived from them.
debug_fields!(TokenIssuer { life });

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(Option<TokenIssuer>);

impl Tokens {
    pub(crate) fn new(issuer: TokenIssuer) -> Self {
        Self(Some(issuer))
    }

    pub(crate) fn random() -> Self {
        Self::new(TokenIssuer::random())
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.as_ref().map_or(Ok(()), TokenIssuer::check)
    }

    pub(crate) fn issuer(&self, operation: &Operation) -> Result<&TokenIssuer, Error> {
        self.0.as_ref().ok_or_else(|| {
            operation
                .error(ErrorKind::InvalidPolicy)
                .detail("the engine has no `TokenIssuer`: give it one with `EngineBuilder::tokens`")
        })
    }

    /// The minimum life of the record of this token; `None` if the token has expired.
    pub(crate) fn life_of(
        &self,
        presented: &PresentedToken,
        prefix: &str,
        operation: &Operation,
        now: SystemTime,
    ) -> Result<Option<Duration>, Error> {
        let invalid = || operation.error(ErrorKind::TokenInvalid);
        if !self.issuer(operation)?.knows(presented, prefix) {
            return Err(invalid());
        }
        let left = Duration::from_secs(presented.header.expires).saturating_sub(since_1970(now));
        if left > LIFE.1 + TOLERANCE {
            return Err(invalid().detail(
                "it is one of ours, and expires in more than a day: the clock of this process, or of the one that \
                 issued it, is wrong",
            ));
        }
        // In whole seconds, as records hold whole milliseconds.
        let life = Duration::from_secs(left.as_secs() + 1) + TOLERANCE;
        Ok((!left.is_zero()).then_some(life))
    }
}
