//! Responses that are streams: recorded while they are sent, and replayed.

mod clients;
mod crashes;
mod ends;
mod leases;
mod limits;
mod shop;
mod storing;
mod types;
