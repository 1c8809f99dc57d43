//! Differences of a protocol over HTTP: gRPC.

use std::fmt;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use super::body::Collected;
use super::problem::Problem;
use super::status::KeyVerdict;

/// A protocol with messages in frames, and its status in trailers.
pub(crate) trait Protocol: fmt::Debug + Send + Sync {
    /// The time in which the client of a request expects its response.
    fn timeout(&self, request: &HeaderMap) -> Option<Duration>;

    /// The problem of a request that is not one message.
    fn not_unary(&self) -> Problem;

    /// A counter that gets the data of a body, piece by piece.
    fn counter(&self) -> Counter;

    /// The equivalent HTTP status of a response; `None`: it has no status.
    fn status(&self, headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Option<StatusCode>;

    /// A verdict of the service in place of the policy's.
    fn verdict(&self, headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Option<KeyVerdict>;

    /// The body of a response whose trailers are among its headers.
    fn collected(&self, headers: &mut HeaderMap, body: Bytes) -> Collected;
}

pub(crate) type Counter = Box<dyn FnMut(&[u8]) -> Messages + Send>;

/// The number of complete messages in a body so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    None,
    One,
    /// One, and the beginning of another.
    More,
}
