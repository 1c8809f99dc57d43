//! draft-ietf-httpapi-idempotency-key-header-07, section by section. The names of the tests begin with the section.

mod enforcement;
mod errors;
mod keys;
mod security;
