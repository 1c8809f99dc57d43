//! Notifications: of finished calls to watchers, and of resolutions to caches.

mod channels;
mod resolutions;
mod session;
mod subscriber;
mod subscriptions;

pub(super) use self::resolutions::{ResolutionListener, channel};
pub(super) use self::subscriber::Subscribers;
