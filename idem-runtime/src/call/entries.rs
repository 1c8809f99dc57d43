//! Lists the records of a store, for an operator.

use std::borrow::Cow;
use std::collections::HashSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::call::core::Core;
use crate::call::inspect::Entry;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::{Operation, RecordKey};
use crate::store::listing::{EXAMINED, EntryFilter};
use crate::store::{ListReply, ListRequest};

/// A listing of the records under the engine's prefix; see [`Engine::entries`](crate::Engine::entries).
///
/// # Listed records
///
/// Every record that is kept and matches from the first page until the last one is listed at least once. A record
/// that is created, changed, reset or expired meanwhile may or may not be listed. A page names no record twice; on
/// Redis, two pages may. Each entry shows its record as it was at one moment: [`resolve`](Entry::resolve) and
/// [`reset`](Entry::reset) change nothing if the record is another one by then.
///
/// The order of entries has no meaning.
///
/// # Cost
///
/// A step examines up to 1,000 records, without their answers, and a page takes as many steps as are needed to fill
/// it; no step delays a claim. Steps use a connection of their own.
///
/// | store | a listing reads | beside it |
/// | --- | --- | --- |
/// | memory | every record, a 32nd of them at a time | |
/// | PostgreSQL, MySQL, SQLite | the records of the operation, by the primary key, or the whole table without one | |
/// | Redis | every key of the database (`SCAN`), whatever prefix and operation | the right `+scan`; a server that was restarted or failed over in between may leave records out: begin again |
/// | Redis Cluster | the same on each primary | where a slot has moved to another node since: [`ErrorKind::InvalidCursor`] |
/// | layered | as the durable store | |
/// | your own | what [`Store::list`](crate::store::Store::list) does | [`ErrorKind::Unsupported`] where it has none |
///
/// # Operations
///
/// The name of a record in Redis contains 48 bytes of its operation, with `_` for characters other than letters, digits
/// and `.:_-`. Operations with longer names that begin alike are listed together, under that [name](Entry::operation).
/// Records of an engine whose prefix is this one, `:` and more, as in `shop` and `shop:eu`, are listed there as
/// operations of this one: choose other prefixes.
///
/// In a SQL store, a record whose operation has more than 251 bytes, or a zero byte, is listed by its
/// [`operation`](Self::operation) only; without one it is among the [`unreadable`](EntryPage::unreadable).
#[must_use = "a listing does nothing until a page is asked for"]
pub struct Entries {
    core: Arc<Core>,
    request: ListRequest,
    attempts: Option<NonZeroU16>,
    page_size: usize,
    is_over: bool,
    /// The page that is being filled.
    page: EntryPage,
    named: HashSet<RecordKey>,
}

/// A page of a [listing](Entries).
#[derive(Debug, Default)]
#[must_use = "a page only shows what is there"]
pub struct EntryPage {
    entries: Vec<Entry>,
    unreadable: u64,
    cursor: Option<String>,
}

impl EntryPage {
    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries by value, for `resolve` and `reset`.
    #[must_use]
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// The number of records that this version cannot read.
    ///
    /// They have another layout, or are no records at all, and are in no entry.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The position of the next page, for [`Entries::after`] in any process; `None` at the end.
    ///
    /// Opaque text. It holds no user data; on a Redis Cluster it names a node.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}

impl IntoIterator for EntryPage {
    type Item = Entry;
    type IntoIter = std::vec::IntoIter<Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl Entries {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            request: ListRequest::new(Arc::clone(&core.prefix)),
            attempts: None,
            page_size: 100,
            is_over: false,
            page: EntryPage::default(),
            named: HashSet::new(),
        }
    }

    /// Lists the records of this operation. Default: every operation.
    pub fn operation(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.request.operation = Some(Operation::new(name));
        self
    }

    /// Lists the records in this state. Default: [`EntryFilter::Any`].
    pub fn state(mut self, state: EntryFilter) -> Self {
        self.request.filter = state;
        self
    }

    /// Lists the records with at least this many attempts that count. Default: any number; for
    /// [`EntryFilter::Exhausted`], the [`max_attempts`](crate::EngineBuilder::max_attempts) of the engine.
    ///
    /// For a function with a `max_attempts` of its own, pass that number.
    pub fn min_attempts(mut self, attempts: NonZeroU16) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// The most entries of a page, 1 to 1,000. Default: 100. On Redis a page may have some more, where one bucket of
    /// its table has more.
    pub fn page_size(mut self, entries: usize) -> Self {
        self.page_size = entries.clamp(1, EXAMINED);
        self
    }

    /// The most records that a step examines, 1 to 1,000. Default: 1,000.
    ///
    /// On a server the commands of a step follow each other closely, and other clients wait for some of them. Smaller
    /// steps with pauses between them ([`next_step`](Self::next_step)) delay others less.
    pub fn step_size(mut self, records: usize) -> Self {
        self.request.examined = records.clamp(1, EXAMINED);
        self
    }

    /// Continues at the [`cursor`](EntryPage::cursor) of a page: in this process or another one, with the same prefix
    /// and operation, on the same store. State and page size may differ.
    pub fn after(mut self, cursor: impl Into<String>) -> Self {
        self.request.after = Some(cursor.into());
        self
    }

    /// The next page; `None` after the last one. A page is full unless it is the last one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store cannot list; [`ErrorKind::InvalidCursor`] if the cursor is that of
    /// another listing, or slots of a Redis cluster have moved; [`ErrorKind::StoreUnavailable`] if the store gave no
    /// reply to a step within [`claim_deadline`](crate::EngineBuilder::claim_deadline), or refused;
    /// [`ErrorKind::InvalidPolicy`] if [`Exhausted`](EntryFilter::Exhausted) records are requested from an engine with
    /// unlimited attempts, without [`min_attempts`](Self::min_attempts).
    ///
    /// The operation of the error is `*` where every operation is listed. After an error it may be called again, and
    /// continues at the same position.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again: it continues at the same position.
    pub async fn next_page(&mut self) -> Result<Option<EntryPage>, Error> {
        while !self.is_over && self.page.entries.len() < self.page_size {
            let limit = self.page_size - self.page.entries.len();
            let reply = self.step(limit).await?;
            self.page.unreadable += reply.unreadable;
            for listed in reply.found {
                if self.named.insert(listed.key.clone()) {
                    self.page.entries.push(Entry::listed(&self.core, listed));
                }
            }
        }
        self.named.clear();
        let mut page = std::mem::take(&mut self.page);
        if page.entries.is_empty() && page.unreadable == 0 {
            return Ok(None);
        }
        page.cursor = self.request.after.clone().filter(|_| !self.is_over);
        Ok(Some(page))
    }

    /// The entries of the next step, which examines up to [`step_size`](Self::step_size) records; `None` after the last one.
    ///
    /// A page may be empty. For a caller that limits its pace, or shows progress: [`next_page`](Self::next_page) takes as
    /// many steps as a page needs. Two steps may name one record.
    ///
    /// # Errors
    ///
    /// As [`next_page`](Self::next_page).
    ///
    /// # Cancel safety
    ///
    /// As [`next_page`](Self::next_page).
    pub async fn next_step(&mut self) -> Result<Option<EntryPage>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let reply = self.step(self.page_size).await?;
        let found = reply.found.into_iter();
        Ok(Some(EntryPage {
            entries: found
                .map(|listed| Entry::listed(&self.core, listed))
                .collect(),
            unreadable: reply.unreadable,
            cursor: self.request.after.clone().filter(|_| !self.is_over),
        }))
    }

    /// Counts the matching records.
    ///
    /// They are counted as they are listed, at the same cost; on Redis one may be counted twice. Unreadable records are
    /// not counted.
    ///
    /// # Errors
    ///
    /// As [`next_page`](Self::next_page).
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub async fn count(mut self) -> Result<u64, Error> {
        let mut count = 0;
        while !self.is_over {
            count += self.step(EXAMINED).await?.found.len() as u64;
        }
        Ok(count)
    }

    /// Makes one step, and moves the position behind it.
    async fn step(&mut self, limit: usize) -> Result<ListReply, Error> {
        let request = ListRequest {
            limit,
            min_attempts: self.min_attempts_of()?,
            after: self.position()?,
            ..self.request.clone()
        };
        let (core, operation) = (&self.core, self.named_operation());
        let reply = core.patiently(&operation, || core.list(&request)).await?;
        self.is_over = reply.next.is_none();
        let mark = self.mark();
        self.request.after = (reply.next.as_ref()).map(|next| format!("{mark}{next}"));
        Ok(reply)
    }

    /// The least number of attempts of a listed record.
    fn min_attempts_of(&self) -> Result<u16, Error> {
        let attempts = match self.request.filter {
            EntryFilter::Exhausted => self.attempts.or(self.core.defaults.max_attempts()),
            _ => return Ok(self.attempts.map_or(0, NonZeroU16::get)),
        };
        attempts.map(NonZeroU16::get).ok_or_else(|| {
            self.error(ErrorKind::InvalidPolicy).detail(
                "the engine's `max_attempts` is unlimited; name that of the operation with `min_attempts`",
            )
        })
    }

    /// The store's part of the cursor.
    fn position(&self) -> Result<Option<String>, Error> {
        let Some(cursor) = &self.request.after else {
            return Ok(None);
        };
        match cursor.strip_prefix(&self.mark()) {
            Some(position) => Ok(Some(position.to_owned())),
            None => Err(self.error(ErrorKind::InvalidCursor)),
        }
    }

    /// The prefix of this listing's cursors: one of another prefix or operation is refused.
    fn mark(&self) -> String {
        let mut hash = Sha256::new();
        for part in [
            Some(&*self.request.prefix),
            self.request.operation.as_ref().map(Operation::as_str),
        ] {
            hash.update([u8::from(part.is_some())]);
            hash.update((part.map_or(0, str::len) as u64).to_be_bytes());
            hash.update(part.unwrap_or_default());
        }
        let hash: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, ..] = hash;
        format!("{a:02x}{b:02x}{c:02x}{d:02x}.")
    }

    fn named_operation(&self) -> Operation {
        let operation = self.request.operation.clone();
        operation.unwrap_or_else(|| Operation::new("*"))
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.named_operation())
    }
}

debug_fields!(Entries { request, page_size });
