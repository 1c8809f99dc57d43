//! Calls of one operation, whose settings are those of its name.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Plain,
    /// `max_attempts = 1`.
    Once,
    Finished,
    /// `on_cancel = unknown`, errors of class unknown, and an operator who resolves.
    Unknown,
    /// Errors of class unknown, and a reconcile hook.
    Reconciled,
    /// An operator who resets.
    Reset,
    /// Another payload after a system error.
    Corrected,
    /// In a transaction of a SQL database, with a ledger's row.
    Booked,
}

const FAMILIES: [(Family, char, &str); 8] = [
    (Family::Plain, 'p', "soak.plain"),
    (Family::Once, 'o', "soak.once"),
    (Family::Finished, 'f', "soak.finished"),
    (Family::Unknown, 'u', "soak.unknown"),
    (Family::Reconciled, 'r', "soak.reconciled"),
    (Family::Reset, 's', "soak.reset"),
    (Family::Corrected, 'c', "soak.corrected"),
    (Family::Booked, 'b', "soak.booked"),
];

impl Family {
    /// Of a key: its number says which.
    pub fn of(number: u64, books: bool) -> Self {
        match number % 16 {
            6 | 7 => Self::Once,
            8 | 9 => Self::Finished,
            10 => Self::Unknown,
            11 => Self::Reconciled,
            12 => Self::Reset,
            13 => Self::Corrected,
            14 | 15 if books => Self::Booked,
            _ => Self::Plain,
        }
    }

    pub fn of_key(key: &str) -> Self {
        let found = FAMILIES
            .iter()
            .find(|(_, letter, _)| key.starts_with(*letter));
        found.map_or(Self::Plain, |(family, ..)| *family)
    }

    /// The first letter of a family's key, and the operation's name.
    pub fn names(self) -> (char, &'static str) {
        let found = FAMILIES.iter().find(|(family, ..)| *family == self);
        let (_, letter, name) = found.expect("each has a row");
        (*letter, name)
    }
}
