//! gRPC: a layer for servers of tonic.
//!
//! [`GrpcLayer`] makes the unary calls of a server idempotent by a key in their metadata, whatever their services are:
//! it stores the message, the metadata and the status of the first call, and a repeat gets them. It is the
//! [`IdempotencyLayer`](crate::http::IdempotencyLayer) of HTTP, with all its settings, over another protocol.
//!
//! | the call | the code | the reason | to be repeated |
//! |---|---|---|---|
//! | has no key, and needs one | `INVALID_ARGUMENT` | `KEY_MISSING` | no |
//! | has a key that is not one string, empty, too long, or two of them | `INVALID_ARGUMENT` | `KEY_INVALID` | no |
//! | has a key, and a method that is not listed | `INVALID_ARGUMENT` | `METHOD_NOT_LISTED` | no |
//! | has a key, and none or several messages in its request | `UNIMPLEMENTED` | `NOT_UNARY` | no |
//! | has a key, and is no gRPC, but gRPC-Web for example | `UNIMPLEMENTED` | `NOT_GRPC` | no |
//! | has no caller that the scope recognizes | `UNAUTHENTICATED` | `CALLER_UNKNOWN` | no |
//! | has a request that is too long | `RESOURCE_EXHAUSTED` | `BODY_TOO_LARGE` | no |
//! | has a request that is too slow, or breaks off | `UNAVAILABLE` | `BODY_TIMEOUT`, `BODY_UNREADABLE` | yes |
//! | is the first with its key | the method's | | |
//! | would run, and too many are running | `UNAVAILABLE` | `TOO_MANY_RUNNING` | yes, after 1 s |
//! | would run, and its caller's quota is used up | `RESOURCE_EXHAUSTED` | `QUOTA_EXCEEDED` | yes, after the quota's time |
//! | has a key that came with another call | `FAILED_PRECONDITION` | `KEY_REUSED` | no |
//! | repeats a running request, after the wait | `UNAVAILABLE` | `REQUEST_RUNNING` | yes, after 2 s at most |
//! | repeats a finished request | the first one's: message, metadata, status, details | | |
//! | repeats a finished request, where repeats are refused | `ALREADY_EXISTS` | `REQUEST_REPEATED` | no |
//! | repeats one of unknown outcome, or whose attempts have all crashed | `UNKNOWN` | `OUTCOME_UNKNOWN`, `ATTEMPTS_EXHAUSTED` | no |
//! | repeats one whose answer was a stream, or too large | `DATA_LOSS` | `ANSWER_LOST` | no |
//! | comes while the store is down, or the engine shuts down | `UNAVAILABLE` | `UNAVAILABLE` | yes, after 1 s |
//! | was executed, and its answer is not stored yet | `UNAVAILABLE` | `ANSWER_UNCONFIRMED` | yes, after 1 s |
//!
//! idem's own refusals have a [`google.rpc.ErrorInfo`](tonic_types::ErrorInfo) with the reason, the domain
//! `idem-runtime`, and `retryable`: whether the call is worth sending again as it is, with the same key. Where a time is
//! known, they have a [`google.rpc.RetryInfo`](tonic_types::RetryInfo), and `grpc-retry-pushback-ms` for clients that
//! repeat by themselves ([A6](https://github.com/grpc/proposal/blob/master/A6-client-retries.md)). They are headers of a
//! response without a message, and contain no key, no argument and no answer.
//!
//! Why these codes: a client repeats `UNAVAILABLE` by itself and nothing else ([AIP-194](https://google.aip.dev/194)), and
//! it is the code of a call that the client may repeat alone, `ABORTED` that of one which it repeats at a higher level
//! ([`google.rpc.Code`](https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto)). A reused key is
//! not `ALREADY_EXISTS`, which many clients take for success. A call of unknown outcome is neither repeated nor reported
//! as not done: `UNKNOWN`, as an outer layer of idem reads it.
//!
//! # A key in the message
//!
//! The layer sees metadata and bytes. The `request_id` of [AIP-155](https://google.aip.dev/155) is a field of the message,
//! which the function of the service reads: there [`#[idempotent]`](macro@crate::idempotent) takes it,
//! `key = request.request_id` with `scope = …`. Its error converts by `From<idem_runtime::Error>`, which a
//! [`Status`](tonic::Status) has.
//!
//! A method has one of both: the layer [passes](GrpcLayer::pass) it if its function has the attribute. A method with
//! both has two records and two claims, each with its round trips, and a refusal of the function is the method's answer:
//!
//! | the function refuses | the layer's key |
//! |---|---|
//! | with a code that [releases](GrpcLayer#statuses), such as `UNAVAILABLE` | released: a repeat calls the function again |
//! | as `FAILED_PRECONDITION` or `ALREADY_EXISTS` | keeps the refusal |
//! | as `UNKNOWN`, `DATA_LOSS` or `INTERNAL` | unknown: an operator settles its record too: [`GrpcLayer::entry`] |
//!
//! With a [`sort`](GrpcLayer::sort) that gives [`Release`](crate::http::KeyVerdict::Release) for a status whose
//! `ErrorInfo` has the domain `idem-runtime`, each refusal of the function releases the layer's key, and the function's
//! record decides alone. It must not be the status of another service that the method has called.
//!
//! # Limits
//!
//! - No streams: a method with a stream of requests or responses is passed, or refused.
//! - Not that two encodings of one message are one request: [the message](GrpcLayer#the-message).
//! - Neither the metadata that are [never stored](GrpcLayer#metadata), nor the order of metadata of different names.
//! - Nothing about a service behind this one: give it a derived key
//!   ([`Context::derive_key`](crate::Context::derive_key)).
//! - As everywhere, not that a method runs once if its process dies half-way: after the lease it runs again, unless
//!   `max_attempts` is 1 or a [reconcile hook](crate::http::IdempotencyLayer::reconcile) knows better.

mod layer;
mod methods;
mod refusal;
mod service;
mod status;
mod wire;

pub use self::layer::GrpcLayer;
pub use self::service::GrpcIdempotency;
pub use self::wire::reply;
