//! A server over HTTP against the sentences of a specification.
//!
//! Each [`Specification`] has a table: a row for each of its sentences that concerns idempotency, with its section, the
//! sentence in other words, a test and its result. [`check`] makes the requests of all tests to a running server, in
//! whatever language it is written, and returns the [`Report`].
//!
//! | result | meaning |
//! |---|---|
//! | passed | the server obeys the sentence |
//! | failed | it does not: the expected and the actual response |
//! | not checked | the [`Target`] lacks an ability that the test needs, or no client can see it |
//! | cannot be met | no layer of idem-runtime does it, for a reason |
//!
//! A test on a server of your own:
//!
//! ```no_run
//! use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
//! use idem_conformance::http::{Operation, Specification, Target, check};
//!
//! # async fn test() -> Result<(), Box<dyn std::error::Error>> {
//! let of = |token| HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(token))]);
//! let session = Operation::post("/checkout_sessions").json(r#"{"items": ["tea", "cake"], "quantity": {number}}"#);
//! let target = Target::new("http://127.0.0.1:8080".parse()?, session)
//!     .caller(of("Bearer one"))
//!     .other_caller(of("Bearer two"))
//!     .failing(Operation::post("/broken"));
//! let report = check(Specification::Acp, &target).await?;
//! assert!(report.failed().is_empty(), "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! `report.failed()` has the names of the rows that failed: a server that deviates on purpose compares them with a list.
//!
//! # From a shell
//!
//! The program of the feature `command` makes a run, and prints the table or, with `--markdown`, a page:
//!
//! ```sh
//! cargo install idem-conformance --features command
//! idem-conformance acp https://shop.example \
//!     --header 'authorization: Bearer one' --other-header 'authorization: Bearer two' \
//!     --operation 'POST /checkout_sessions {"items": ["tea", "cake"], "quantity": {number}}' \
//!     --elsewhere 'POST /checkout_sessions/7 {"quantity": {number}}' \
//!     --effects 'GET /orders' --effects-at /total
//! ```
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | no row failed, but those named by `--allow` |
//! | 1 | a row failed |
//! | 2 | wrong arguments, or a server that does not answer the operation with 2xx: no row was tested |

mod change;
mod check;
mod client;
mod json;
mod key;
mod operation;
mod refusal;
mod report;
mod response;
mod result;
mod row;
mod run;
mod specification;
mod table;
mod target;
mod tester;

pub use self::operation::{InvalidOperation, Operation};
pub use self::report::Report;
pub use self::result::RowResult;
pub use self::row::{Level, Row};
pub use self::run::{Unusable, check};
pub use self::specification::{Specification, UnknownSpecification};
pub use self::target::Target;
