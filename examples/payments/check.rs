//! Compares the books with the log: was every request executed, and once?

use std::collections::BTreeMap;
use std::fmt;

use super::client::Ending;
use super::delivery::Log;
use super::ledger::{Books, Kind, Row};
use super::money::{Sums, thousands};
use super::provider::Movement;
use super::request::{NotifyRequest, Operation, Request};
use super::run::Run;

/// All evidence after a run.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// The requests.
    pub log: &'a Log,
    /// How each delivery ended.
    pub endings: Vec<Ending>,
    /// The service's books.
    pub books: Books,
    /// Movements of the provider.
    pub movements: Vec<Movement>,
    /// Messages of the gateway.
    pub sent: Vec<NotifyRequest>,
    /// Whether answers may come from an earlier run, whose books are gone.
    pub rerun: bool,
}

/// One line of the check.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Subject of the check.
    pub title: &'static str,
    /// Result, as worded when nothing is wrong.
    pub text: String,
    /// Discrepancies; empty if there are none.
    pub wrong: Vec<String>,
}

impl Finding {
    /// Whether there are no discrepancies.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wrong.len() {
            0 => write!(f, "  ok    {:<12} {}", self.title, self.text)?,
            1 => write!(f, "  WRONG {:<12} 1 case", self.title)?,
            cases => write!(f, "  WRONG {:<12} {cases} cases", self.title)?,
        }
        for wrong in self.wrong.iter().take(3) {
            write!(f, "\n          - {wrong}")?;
        }
        match self.wrong.len().saturating_sub(3) {
            0 => Ok(()),
            more => write!(f, "\n          - and {more} more"),
        }
    }
}

/// All requests and effects of one payment or refund.
#[derive(Default)]
pub(super) struct Case<'a> {
    pub(super) asked: Vec<(&'a Request, &'a Ending)>,
    pub(super) rows: Vec<&'a Row>,
    pub(super) moved: Vec<&'a Movement>,
}

impl Case<'_> {
    fn answered(&self) -> bool {
        let mut endings = self.asked.iter().map(|(_, ending)| ending);
        endings.any(|ending| matches!(ending, Ending::Answered(_)))
    }

    fn declined(&self) -> bool {
        let mut endings = self.asked.iter().map(|(_, ending)| ending);
        endings.any(|ending| matches!(ending, Ending::Declined(_)))
    }
}

pub(super) type Cases<'a> = BTreeMap<(&'a str, &'a str), Case<'a>>;

impl<'a> Evidence<'a> {
    /// Evidence of a `run`.
    #[must_use]
    pub fn of(log: &'a Log, run: &Run, rerun: bool) -> Self {
        Self {
            log,
            endings: run.endings.clone(),
            books: run.books.clone(),
            movements: run.service.provider.movements(),
            sent: run.service.gateway.sent(),
            rerun,
        }
    }

    /// Runs every check. The books agree with the log if no finding has a discrepancy.
    #[must_use]
    pub fn check(&self) -> Vec<Finding> {
        vec![
            self.all_ended(),
            self.once("payments", Operation::Pay, Kind::Payment),
            self.once("refunds", Operation::Refund, Kind::Refund),
            self.messages(),
            self.amounts(),
            self.same_answers(),
            self.conflicts(),
            self.provider_and_ledger(),
            self.journal(),
        ]
    }

    pub(super) fn deliveries(&self) -> impl Iterator<Item = (&'a Request, &Ending)> {
        let requests = self.log.deliveries.iter().map(|delivery| &delivery.request);
        requests.zip(&self.endings)
    }

    pub(super) fn cases(&self, operation: Operation, kind: Kind) -> Cases<'_> {
        let mut cases = Cases::new();
        for (request, ending) in self.deliveries() {
            if request.operation() == operation {
                let case = cases.entry(request.id()).or_default();
                case.asked.push((request, ending));
            }
        }
        for row in self.books.journal.iter().filter(|row| row.kind == kind) {
            let case = cases.entry((&row.merchant, &row.id)).or_default();
            case.rows.push(row);
        }
        for moved in self.movements.iter().filter(|moved| moved.kind == kind) {
            let case = cases.entry((&moved.merchant, &moved.id)).or_default();
            case.moved.push(moved);
        }
        cases
    }

    fn all_ended(&self) -> Finding {
        let ended = |wanted: fn(&Ending) -> bool| {
            let ended = self.endings.iter().filter(|ending| wanted(ending));
            count(ended.count())
        };
        let wrong = self.log.deliveries.iter().zip(&self.endings);
        let wrong = wrong.filter_map(|(delivery, ending)| match ending {
            Ending::GivenUp(error) => Some(format!("line {} was given up: {error}", delivery.line)),
            _ => None,
        });
        Finding {
            title: "deliveries",
            text: format!(
                "{} = {} with a receipt + {} with a business error + {} repeats refused + {} with \
                 another content + {} unknown",
                count(self.endings.len()),
                ended(|ending| matches!(ending, Ending::Answered(_))),
                ended(|ending| matches!(ending, Ending::Declined(_))),
                ended(|ending| matches!(ending, Ending::DoneBefore)),
                ended(|ending| matches!(ending, Ending::Mismatched)),
                ended(|ending| matches!(ending, Ending::Unknown)),
            ),
            wrong: wrong.collect(),
        }
    }

    fn once(&self, title: &'static str, operation: Operation, kind: Kind) -> Finding {
        let (mut moved, mut earlier, mut declined) = (0, 0, 0);
        let (mut sums, mut wrong) = (Sums::default(), Vec::new());
        let cases = self.cases(operation, kind);
        for ((merchant, id), case) in &cases {
            match (case.moved.len(), case.rows.len()) {
                (1, 1) if case.answered() => {
                    moved += 1;
                    sums.add(&case.rows[0].currency, case.rows[0].amount.cast_signed());
                }
                (0, 0) if case.answered() && self.rerun => earlier += 1,
                (0, 0) if case.declined() => declined += 1,
                (0, 0) => wrong.push(format!("{id} of {merchant} was lost")),
                (1, 1) => wrong.push(format!("{id} of {merchant} moved, and nobody was told")),
                (charged, booked) => wrong.push(format!(
                    "{id} of {merchant} moved {} at the provider, {} in the books",
                    times(charged),
                    times(booked)
                )),
            }
        }
        let earlier = if self.rerun {
            format!(" + {earlier} answered from an earlier run")
        } else {
            String::new()
        };
        Finding {
            title,
            text: format!(
                "{} = {moved} moved once ({sums}){earlier} + {declined} refused, nothing moved",
                cases.len()
            ),
            wrong,
        }
    }

    fn messages(&self) -> Finding {
        let mut messages: BTreeMap<(&str, &str), (usize, bool)> = BTreeMap::new();
        for (request, ending) in self.deliveries() {
            if request.operation() == Operation::Notify {
                let (_, unknown) = messages.entry(request.id()).or_default();
                *unknown |= *ending == Ending::Unknown;
            }
        }
        for message in &self.sent {
            messages.entry((&message.to, &message.text)).or_default().0 += 1;
        }
        let (mut once, mut earlier, mut unknown, mut wrong) = (0, 0, 0, Vec::new());
        for ((to, _), (sent, unclear)) in &messages {
            match (sent, unclear) {
                (0 | 1, true) => unknown += 1,
                (1, false) => once += 1,
                (0, false) if self.rerun => earlier += 1,
                (sent, _) => wrong.push(format!("a message to {to} was sent {}", times(*sent))),
            }
        }
        let earlier = if self.rerun {
            format!(" + {earlier} by an earlier run")
        } else {
            String::new()
        };
        Finding {
            title: "messages",
            text: format!(
                "{} = {once} sent once{earlier} + {unknown} sent once or not at all, and reported",
                messages.len()
            ),
            wrong,
        }
    }

    fn provider_and_ledger(&self) -> Finding {
        let mut pairs: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for moved in &self.movements {
            pairs.entry(&moved.number).or_default().0 += 1;
        }
        for row in &self.books.journal {
            pairs.entry(&row.movement).or_default().1 += 1;
        }
        let unequal = pairs.iter().filter(|(_, times)| **times != (1, 1));
        let wrong = unequal.map(|(number, (moved, booked))| {
            format!(
                "{number}: {} at the provider, {} in the books",
                times(*moved),
                times(*booked)
            )
        });
        Finding {
            title: "provider",
            text: format!(
                "{} movements there, {} rows in the books, in pairs",
                count(self.movements.len()),
                count(self.books.journal.len())
            ),
            wrong: wrong.collect(),
        }
    }

    fn journal(&self) -> Finding {
        let mut rebuilt: BTreeMap<(String, String), i64> = BTreeMap::new();
        let mut total = Sums::default();
        for row in &self.books.journal {
            let amount = row.amount.cast_signed();
            for (account, change) in [(&row.from, -amount), (&row.to, amount)] {
                let account = (account.clone(), row.currency.clone());
                *rebuilt.entry(account).or_default() += change;
            }
        }
        let mut wrong = Vec::new();
        for (account, balance) in &self.books.balances {
            total.add(&account.1, *balance);
            let explained = rebuilt.remove(account).unwrap_or_default();
            if explained != *balance {
                let (name, currency) = account;
                wrong.push(format!(
                    "{name} has {balance} {currency}, the rows say {explained}"
                ));
            }
        }
        wrong.extend(
            rebuilt
                .keys()
                .map(|(name, _)| format!("{name} has rows and no balance")),
        );
        if !total.is_zero() {
            wrong.push(format!("all balances together are {total}, not zero"));
        }
        Finding {
            title: "journal",
            text: format!(
                "explains the balances of {} accounts, and their sum is zero",
                self.books.balances.len()
            ),
            wrong,
        }
    }
}

/// A number, formatted for people.
pub(super) fn count(number: usize) -> String {
    thousands(number as u64)
}

fn times(number: usize) -> String {
    match number {
        0 => "not at all".to_owned(),
        1 => "once".to_owned(),
        more => format!("{more} times"),
    }
}
