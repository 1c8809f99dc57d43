//! The rule of the contract about which two replies differ.

/// The rules of [`Store`](idem_runtime::store::Store) in their order, each as a sentence.
pub(super) const RULES: [&str; 18] = [
    "each operation on a key happens at one moment",
    "the operations of an owner that does not hold the claim change nothing",
    "the same operation sent again has the effect and the reply of one",
    "a done record does not change, except by a resolution that has seen it",
    "a claimed key is granted to another owner when its lease is over, and not before",
    "each record expires, to the millisecond",
    "fences grow with every claim of a key",
    "attempts count every start of a body, and at `max_attempts` none is granted",
    "fingerprints and the types of answers are kept, and compared in every state",
    "an unreadable record is not replaced",
    "keys are separate: prefix, operation and digest each",
    "a full store refuses claims, and no completion",
    "an unknown outcome stays until a caller reconciles it or a resolution settles it",
    "watches are notified of every completion, release and resolution",
    "listeners are notified of every resolution of their prefix",
    "a listing gives every record that matches, and no other",
    "a claim begins no record that it needs",
    "a journal is kept by claims, renewals and releases, and comes with each grant",
];

/// Words that one of two replies has, and fields that differ, with their rules. The first decides; 0: any rule.
const SIGNS: &[(u8, &[&str])] = &[
    (15, &["notifies listeners"]),
    (16, &["the listing"]),
    (0, &["Failed", "Panicked"]),
    (10, &["Unreadable"]),
    (9, &["Mismatch", "OtherType"]),
    (8, &["Exhausted"]),
    (13, &["Reconcil", "Unknown"]),
    (4, &["Changed", "Adopted"]),
    (2, &["Superseded", "Lost", "late: true"]),
    (17, &["Claim(Absent"]),
    (4, &["Claim(Done"]),
    (5, &["Running"]),
    (6, &["Absent", "Renewed"]),
    (18, &["Appended", "Unsupported", "journal: "]),
    (8, &["attempt: ", "attempts: "]),
    (7, &["fence: "]),
    (9, &["fresh: ", "fingerprint: ", "types: "]),
    (5, &["lease_left: ", "lease: "]),
    (6, &["left: ", "retain: "]),
];

/// The number of the rule that the difference of two replies, as `Debug` shows them, is nearest to.
pub(super) fn nearest(expected: &str, observed: &str) -> u8 {
    let field = |text: &str, name: &str| {
        let (_, behind) = text.split_once(name)?;
        behind.split(',').next().map(str::to_owned)
    };
    let differs = |sign: &&str| match (field(expected, sign), field(observed, sign)) {
        (Some(one), Some(other)) => sign.ends_with(": ") && one != other,
        (None, None) => false,
        _ => !sign.ends_with(": "),
    };
    let is_of = |(_, signs): &&(u8, &[&str])| signs.iter().any(differs);
    match SIGNS.iter().find(is_of) {
        _ if expected.starts_with("Listed") && observed.starts_with("Listed") => 16,
        Some((rule, _)) => *rule,
        // Other bytes, of an answer or behind one.
        None if expected.contains("journal: Steps") || expected.contains("journal: Attempts") => 18,
        None if expected.contains("Done") => 4,
        None => 0,
    }
}
