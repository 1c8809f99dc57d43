//! One key shared by several processes, on Redis.

mod redis;
