//! Watches of a key: notification by each store, its content, and connections that do not
//! outlive the wait.

mod broken;
mod client;
mod redis;
mod refused;
mod runtimes;
