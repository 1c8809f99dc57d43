//! Whether the ledger agrees with the answers of the callers.

use super::{Findings, Violation, What};
use crate::books::Ledger;
use crate::history::{History, Told};
use crate::mix::Family;

/// Compares the ledger with the answers of the callers: of each answer one row, of no answer one at most.
pub(crate) fn check_ledger(history: &History, ledger: &Ledger, findings: &mut Findings) {
    let mut found = |key: &str, why: String| {
        findings.violations.push(Violation {
            what: What::Ledger,
            key: key.to_owned(),
            why,
        });
    };
    for (name, rows) in &ledger.0 {
        if rows.len() > 1 {
            found(name, format!("{} rows: {rows:?}", rows.len()));
        }
    }
    for (name, key) in &history.keys {
        if Family::of_key(name) != Family::Booked {
            continue;
        }
        let rows = ledger.0.get(&**name).map_or(&[][..], Vec::as_slice);
        for call in &key.calls {
            let Some((_, Told::Answer(text))) = &call.told else {
                continue;
            };
            let booked = match text.split_once(' ') {
                Some(("ok", answer)) => rows.first().is_some_and(|row| row == answer),
                _ => rows.is_empty(),
            };
            if !booked {
                let (process, id) = (call.process, call.id);
                found(
                    name,
                    format!("call {process}/{id} was told `{text}`, and the rows are {rows:?}"),
                );
                break;
            }
        }
    }
}
