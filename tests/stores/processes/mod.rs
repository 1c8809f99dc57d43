//! One key shared by several processes, on Redis and on SQL databases.

mod random_kills;
mod redis;
mod sql;
