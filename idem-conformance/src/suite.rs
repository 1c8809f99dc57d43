//! The list of all cases.

use super::case::Case;
use super::{
    claims, completions, exact, journals, life, listings, notifications, races, resolving, room,
    sequences, unreadable,
};

/// All cases, in the order of their subjects. Those of rule 0 are sequences, which test all rules.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        claims::cases(),
        completions::cases(),
        life::cases(),
        exact::cases(),
        unreadable::cases(),
        resolving::cases(),
        journals::cases(),
        races::cases(),
        room::cases(),
        notifications::cases(),
        listings::cases(),
        sequences::cases(),
    ]
    .concat()
}
