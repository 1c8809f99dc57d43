//! The primary that the sentinels have named last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::query::{Primary, unavailable};
use crate::store::StoreError;
use crate::store::redis::address::Address;

/// The last known primary of a service, and the number of failovers seen.
#[derive(Debug)]
pub(super) struct Election {
    service: String,
    last: Mutex<Option<Primary>>,
    generation: AtomicU64,
}

impl Election {
    pub(super) fn new(service: String) -> Self {
        Self {
            service,
            last: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// Grows whenever another server has become the primary.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Records the primary of the latest failover. `by_most`: most of the sentinels have replied.
    pub(super) fn elect(&self, primary: &Primary, by_most: bool) -> Result<(), StoreError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && last.epoch > primary.epoch
            && !by_most
        {
            return Err(unavailable(
                "the only sentinels that answer do not know of the last failover",
            ));
        }
        if last
            .as_ref()
            .is_some_and(|last| last.address != primary.address)
        {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        *last = Some(primary.clone());
        Ok(())
    }

    /// A sentinel reports that another server is the primary, or is about to be.
    pub(super) fn announce(&self, said: &str) {
        let Some(address) = successor(said, &self.service) else {
            return;
        };
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().is_some_and(|last| last.address == address);
        // The next connection queries the sentinels for the primary.
        if !known {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A sentinel replies to a query that follows no failover message.
    pub(super) fn observe(&self, primary: &Primary) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = last
            .as_ref()
            .is_some_and(|last| last.epoch < primary.epoch && last.address != primary.address);
        if newer {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The new primary of this service in a message: `service old-host old-port host port`
/// (`+switch-master`), or `slave name host port @ service old-host old-port` (`+promoted-slave`).
fn successor(said: &str, service: &str) -> Option<Address> {
    let words: Vec<_> = said.split(' ').collect();
    let ([of, _, _, host, port] | [_, _, host, port, "@", of, _, _]) = words[..] else {
        return None;
    };
    let (host, port) = (host.to_owned(), port.parse().ok()?);
    (of == service).then_some(Address { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_epoch_of_another_server_begins_a_generation() {
        let primary = |epoch, port| Primary {
            epoch,
            address: Address {
                host: "10.0.0.1".to_owned(),
                port,
            },
        };
        let election = Election::new("payments".to_owned());
        election.elect(&primary(2, 6379), true).unwrap();
        for (seen, generation) in [
            (primary(3, 6379), 0),
            (primary(2, 6380), 0),
            (primary(3, 6380), 1),
        ] {
            election.observe(&seen);
            assert_eq!(election.generation(), generation, "{seen:?}");
        }
    }

    #[test]
    fn a_failover_message_names_the_successor() {
        let switched = "payments 10.0.0.1 6379 10.0.0.2 6380";
        let promoted = "slave 10.0.0.2:6380 10.0.0.2 6380 @ payments 10.0.0.1 6379";
        for said in [switched, promoted] {
            let found = successor(said, "payments").unwrap();
            assert_eq!(found.to_string(), "10.0.0.2:6380");
            assert_eq!(successor(said, "orders"), None);
        }
        assert_eq!(successor("", "payments"), None);
        assert_eq!(successor("payments a 1 b x", "payments"), None);
    }
}
