//! The types for an implementation of [`Store`](super::Store) or of a [`ReadCache`].
//!
//! The requests and replies of the operations, the record and its parts, the transitions that decide the effect of an
//! operation on a record, and [`Watchers`], which a store need not write itself for waiting calls. A user of a store
//! needs none of them. The contract is at [`Store`](super::Store).

pub use super::admission::Admission;
pub use super::future::StoreFuture;
pub use super::invalidation::{Hearing, Listener};
pub use super::listing::{ListReply, ListRequest, Listed};
pub use super::read_cache::{Copied, ReadCache, is_final, supersedes};
pub use super::watch::{Feed, Watch, Watchers};
pub use crate::record::transition::{
    AppendReply, ClaimReply, ClaimRequest, CompleteReply, Current, Needs, ReadReply, ReleaseReply,
    Remains, RenewReply, ResolveReply, UNDECIDED, append, claim, complete, release,
    release_with_journal, released_life, renew, resolve,
};
pub use crate::record::{
    AnswerTypes, HEADER, Header, Journal, JournalKind, MAX_RETAIN, Owner, Record, State, Unreadable,
};
