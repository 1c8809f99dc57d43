//! One key shared by several processes, on Redis.

mod random_kills;
mod redis;
