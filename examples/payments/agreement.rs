//! Whether all repeats got the same answer, and the answer to their request.

use std::collections::HashSet;

use super::check::{Case, Evidence, Finding, count};
use super::client::Ending;
use super::ledger::Kind;
use super::request::{Operation, Receipt, Request};

/// The operations that move money.
pub(super) const MONEY: [(Operation, Kind); 2] = [
    (Operation::Pay, Kind::Payment),
    (Operation::Refund, Kind::Refund),
];

impl Evidence<'_> {
    pub(super) fn amounts(&self) -> Finding {
        let (mut seen, mut wrong) = (0, Vec::new());
        for (operation, kind) in MONEY {
            for ((merchant, id), case) in self.cases(operation, kind) {
                let offered = case.offered();
                let rows = case.rows.iter().map(|r| (r.amount, r.currency.as_str()));
                let moved = case.moved.iter().map(|m| (m.amount, m.currency.as_str()));
                let receipts = case.asked.iter().filter_map(|(_, ending)| receipt(ending));
                let told: Vec<_> = receipts.map(|r| (r.amount, r.currency)).collect();
                let told = told.iter().map(|(amount, c)| (*amount, c.as_str()));
                for amount in rows.chain(moved).chain(told) {
                    seen += 1;
                    if !offered.contains(&amount) {
                        let (amount, currency) = amount;
                        wrong.push(format!(
                            "{id} of {merchant}: nobody asked for {amount} {currency}"
                        ));
                    }
                }
            }
        }
        Finding {
            title: "amounts",
            text: format!(
                "{} in rows, charges and receipts, each one that was asked for",
                count(seen)
            ),
            wrong,
        }
    }

    pub(super) fn same_answers(&self) -> Finding {
        let (mut compared, mut wrong) = (0, Vec::new());
        for (operation, kind) in MONEY {
            for ((merchant, id), case) in self.cases(operation, kind) {
                let endings = case.asked.iter().map(|(_, ending)| ending);
                let answers: Vec<String> = endings.filter_map(|ending| answer(ending)).collect();
                compared += answers.len();
                let different: HashSet<_> = answers.iter().collect();
                if different.len() > 1 {
                    wrong.push(format!(
                        "{id} of {merchant} got {} different answers",
                        different.len()
                    ));
                }
            }
        }
        Finding {
            title: "same answer",
            text: format!(
                "{} answers to payments and refunds, and each repeat got that of the first",
                count(compared)
            ),
            wrong,
        }
    }

    pub(super) fn conflicts(&self) -> Finding {
        let (mut ids, mut refused, mut wrong) = (0, 0, Vec::new());
        for (operation, kind) in MONEY {
            for ((merchant, id), case) in self.cases(operation, kind) {
                let contents: HashSet<_> = case.asked.iter().map(|(r, _)| r).collect();
                if contents.len() > 1 {
                    ids += 1;
                }
                let carried_out = case.asked.iter().filter(|(_, e)| answer(e).is_some());
                let winners: HashSet<_> = carried_out.map(|(request, _)| request).collect();
                if winners.len() > 1 {
                    wrong.push(format!(
                        "{id} of {merchant} was carried out with {} contents",
                        winners.len()
                    ));
                }
                let ended = case.asked.iter();
                for (request, ending) in ended.filter(|(_, e)| !matches!(e, Ending::GivenUp(_))) {
                    let other = !winners.contains(request);
                    refused += usize::from(other);
                    if other != (**ending == Ending::Mismatched) {
                        wrong.push(format!("{id} of {merchant}: wrongly told {ending:?}"));
                    }
                }
            }
        }
        Finding {
            title: "conflicts",
            text: format!(
                "{ids} ids came with two contents: the first claim won, and {} deliveries of the \
                 other were refused",
                count(refused)
            ),
            wrong,
        }
    }
}

impl Case<'_> {
    fn offered(&self) -> HashSet<(u64, &str)> {
        self.asked.iter().filter_map(|(r, _)| money(r)).collect()
    }
}

fn money(request: &Request) -> Option<(u64, &str)> {
    match request {
        Request::Pay(pay) => Some((pay.amount, &pay.currency)),
        Request::Refund(refund) => Some((refund.amount, &refund.currency)),
        Request::Notify(_) => None,
    }
}

fn receipt(ending: &Ending) -> Option<Receipt> {
    match ending {
        Ending::Answered(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// The answer that a caller received, unless it is a refusal to answer.
fn answer(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Answered(text) => Some(text.clone()),
        Ending::Declined(error) => Some(error.to_string()),
        _ => None,
    }
}
