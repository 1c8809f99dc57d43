//! Parts that the tests share.

mod memory;
mod redis;

pub use memory::InMemory;
pub use redis::{InRedis, Redis};
