//! The list of all cases.

use super::case::Case;
use super::{
    at_hand, attempts, bodies, claims, completing, completions, fences, fingerprints, journals,
    keys, late, leases, life, listening, listings, races, reads, reconciled, reconciling,
    recorded_attempts, releases, renewals, repeats, resets, resolving, room, starting, types,
    unknown, unreadable, watching,
};

/// All cases, in the order of their subjects.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        claims::cases(),
        completions::cases(),
        completing::cases(),
        releases::cases(),
        renewals::cases(),
        journals::cases(),
        recorded_attempts::cases(),
        repeats::cases(),
        leases::cases(),
        life::cases(),
        late::cases(),
        fences::cases(),
        attempts::cases(),
        fingerprints::cases(),
        types::cases(),
        unreadable::cases(),
        keys::cases(),
        bodies::cases(),
        reads::cases(),
        at_hand::cases(),
        reconciling::cases(),
        reconciled::cases(),
        starting::cases(),
        unknown::cases(),
        resolving::cases(),
        resets::cases(),
        races::cases(),
        room::cases(),
        watching::cases(),
        listening::cases(),
        listings::cases(),
    ]
    .concat()
}
