//! Compares the books with the log: was every request executed, and once?

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use crate::client::{Ending, Run};
use crate::ledger::Books;
use crate::provider::{Kind, Movement};
use crate::request::{Log, NotifyRequest, Receipt, Request};

/// All evidence after a run.
pub(crate) struct Evidence<'a> {
    log: &'a Log,
    endings: &'a [Ending],
    books: &'a Books,
    movements: Vec<Movement>,
    sent: Vec<NotifyRequest>,
}

/// One line of the check.
pub(crate) struct Finding {
    title: &'static str,
    /// Result, as worded when nothing is wrong.
    text: String,
    /// Discrepancies; empty if there are none.
    wrong: Vec<String>,
}

impl Finding {
    pub(crate) fn is_well(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (title, wrong) = (self.title, &self.wrong);
        if self.is_well() {
            return write!(f, "  ok    {title:<12} {}", self.text);
        }
        write!(f, "  WRONG {title:<12} {} found", wrong.len())?;
        wrong
            .iter()
            .take(3)
            .try_for_each(|wrong| write!(f, "\n          - {wrong}"))
    }
}

/// All requests and effects of one payment or refund.
#[derive(Default)]
struct Case<'a> {
    asked: Vec<(&'a Request, &'a Ending)>,
    booked: Vec<&'a Movement>,
    moved: Vec<&'a Movement>,
}

impl Case<'_> {
    fn ended(&self, wanted: fn(&Ending) -> bool) -> bool {
        self.asked.iter().any(|(_, ending)| wanted(ending))
    }
}

/// By kind, merchant and number.
type Cases<'a> = BTreeMap<(Kind, &'a str, &'a str), Case<'a>>;

impl<'a> Evidence<'a> {
    pub(crate) fn of(log: &'a Log, run: &'a Run) -> Self {
        Self {
            log,
            endings: &run.endings,
            books: &run.books,
            movements: run.service.provider.movements(),
            sent: run.service.gateway.sent(),
        }
    }

    /// Runs every check. The books agree with the log if no finding has a discrepancy.
    pub(crate) fn check(&self) -> Vec<Finding> {
        let cases = self.cases();
        vec![
            self.all_ended(),
            Self::once("payments", Kind::Payment, &cases),
            Self::once("refunds", Kind::Refund, &cases),
            self.messages(),
            amounts(&cases),
            same_answers(&cases),
            conflicts(&cases),
            self.journal(),
        ]
    }

    fn deliveries(&self) -> impl Iterator<Item = (&'a Request, &'a Ending)> {
        let requests = self.log.deliveries.iter().map(|delivery| &delivery.request);
        requests.zip(self.endings)
    }

    fn cases(&self) -> Cases<'_> {
        let mut cases = Cases::new();
        for (request, ending) in self.deliveries() {
            let kind = match request {
                Request::Pay(_) => Kind::Payment,
                Request::Refund(_) => Kind::Refund,
                Request::Notify(_) => continue,
            };
            let (merchant, id) = request.id();
            let case = cases.entry((kind, merchant, id)).or_default();
            case.asked.push((request, ending));
        }
        for row in &self.books.journal {
            let case = cases.entry((row.kind, &row.merchant, &row.id));
            case.or_default().booked.push(row);
        }
        for moved in &self.movements {
            let case = cases.entry((moved.kind, &moved.merchant, &moved.id));
            case.or_default().moved.push(moved);
        }
        cases
    }

    fn all_ended(&self) -> Finding {
        let count = |wanted: fn(&Ending) -> bool| {
            self.endings.iter().filter(|ending| wanted(ending)).count()
        };
        let ended = self.log.deliveries.iter().zip(self.endings);
        let wrong = ended.filter_map(|(delivery, ending)| match ending {
            Ending::GivenUp(error) => Some(format!("line {} was given up: {error}", delivery.line)),
            _ => None,
        });
        Finding {
            title: "deliveries",
            text: format!(
                "{} = {} with a receipt + {} with a business error + {} repeats refused + {} with \
                 another content + {} unknown",
                self.endings.len(),
                count(|ending| matches!(ending, Ending::Answered(_))),
                count(|ending| matches!(ending, Ending::Declined(_))),
                count(|ending| matches!(ending, Ending::DoneBefore)),
                count(|ending| matches!(ending, Ending::Mismatched)),
                count(|ending| matches!(ending, Ending::Unknown)),
            ),
            wrong: wrong.collect(),
        }
    }

    fn once(title: &'static str, kind: Kind, cases: &Cases<'_>) -> Finding {
        let (mut all, mut declined) = (0, 0);
        let (mut moved, mut wrong) = (Vec::new(), Vec::new());
        for ((_, merchant, id), case) in cases.iter().filter(|((of, ..), _)| *of == kind) {
            let answered = case.ended(|ending| matches!(ending, Ending::Answered(_)));
            let refused = case.ended(|ending| matches!(ending, Ending::Declined(_)));
            all += 1;
            match (case.moved.len(), case.booked.len()) {
                (1, 1) if answered => moved.push(case.booked[0]),
                (0, 0) if refused => declined += 1,
                (0, 0) => wrong.push(format!("{id} of {merchant} was lost")),
                (1, 1) => wrong.push(format!("{id} of {merchant} moved, and nobody was told")),
                (charged, booked) => wrong.push(format!(
                    "{id} of {merchant} moved {charged} times at the provider, {booked} times in the books"
                )),
            }
        }
        Finding {
            title,
            text: format!(
                "{all} = {} moved once ({}) + {declined} refused, nothing moved",
                moved.len(),
                sums(&moved),
            ),
            wrong,
        }
    }

    fn messages(&self) -> Finding {
        let mut messages: BTreeMap<(&str, &str), (usize, bool)> = BTreeMap::new();
        for (request, ending) in self.deliveries() {
            if matches!(request, Request::Notify(_)) {
                messages.entry(request.id()).or_default().1 |= *ending == Ending::Unknown;
            }
        }
        for message in &self.sent {
            messages.entry((&message.to, &message.text)).or_default().0 += 1;
        }
        let (mut once, mut unknown, mut wrong) = (0, 0, Vec::new());
        for ((to, _), (sent, unclear)) in &messages {
            match (sent, unclear) {
                (0 | 1, true) => unknown += 1,
                (1, false) => once += 1,
                (sent, _) => wrong.push(format!("a message to {to} was sent {sent} times")),
            }
        }
        Finding {
            title: "messages",
            text: format!(
                "{} = {once} sent once + {unknown} sent once or not at all, and reported",
                messages.len(),
            ),
            wrong,
        }
    }

    fn journal(&self) -> Finding {
        let mut explained: BTreeMap<(String, String), i64> = BTreeMap::new();
        for row in &self.books.journal {
            for (account, change) in row.changes() {
                let account = (account.to_owned(), row.currency.clone());
                *explained.entry(account).or_default() += change;
            }
        }
        let balances = &self.books.balances;
        let accounts: BTreeSet<_> = explained.keys().chain(balances.keys()).collect();
        let unequal = accounts
            .iter()
            .filter(|account| explained.get(*account) != balances.get(*account));
        let wrong = unequal.map(|account| {
            let (name, currency) = account;
            let (balance, rows) = (balances.get(*account), explained.get(*account));
            format!("{name} has {balance:?} {currency}, the rows say {rows:?}")
        });
        Finding {
            title: "journal",
            text: format!("explains the balances of {} accounts", balances.len()),
            wrong: wrong.collect(),
        }
    }

    /// Movements beyond the first of each payment or refund.
    fn repeated(&self, kind: Kind) -> Vec<&Movement> {
        let mut first = HashSet::new();
        let of_kind = self.movements.iter().filter(|moved| moved.kind == kind);
        of_kind
            .filter(|moved| !first.insert((&moved.merchant, &moved.id)))
            .collect()
    }

    /// The cost of repeats, in lines for people.
    pub(crate) fn damage(&self) -> String {
        let (charges, refunds) = (self.repeated(Kind::Payment), self.repeated(Kind::Refund));
        let payments: HashSet<_> = charges
            .iter()
            .map(|moved| (&moved.merchant, &moved.id))
            .collect();
        let messages: HashSet<_> = self.sent.iter().collect();
        format!(
            "  {:>7} payments charged more than once: {} charges too many, {}\n\
             \x20 {:>7} refunds too many: {} given away\n\
             \x20 {:>7} movements at the provider that are not in the books\n\
             \x20 {:>7} messages sent again\n",
            payments.len(),
            charges.len(),
            sums(&charges),
            refunds.len(),
            sums(&refunds),
            self.movements
                .len()
                .saturating_sub(self.books.journal.len()),
            self.sent.len() - messages.len()
        )
    }
}

/// Whether every amount in a row, charge or receipt was requested.
fn amounts(cases: &Cases<'_>) -> Finding {
    let (mut seen, mut wrong) = (0, Vec::new());
    for ((_, merchant, id), case) in cases {
        let offered: HashSet<_> = case
            .asked
            .iter()
            .filter_map(|(request, _)| money(request))
            .collect();
        let effects = case.booked.iter().chain(&case.moved);
        let mut amounts: Vec<_> = effects
            .map(|moved| (moved.amount, moved.currency.clone()))
            .collect();
        amounts.extend(case.asked.iter().filter_map(|(_, ending)| receipt(ending)));
        seen += amounts.len();
        for (amount, currency) in amounts.iter().filter(|amount| !offered.contains(amount)) {
            wrong.push(format!(
                "{id} of {merchant}: nobody asked for {amount} {currency}"
            ));
        }
    }
    Finding {
        title: "amounts",
        text: format!("{seen} in rows, charges and receipts, each one that was asked for"),
        wrong,
    }
}

/// Whether all repeats got the same answer.
fn same_answers(cases: &Cases<'_>) -> Finding {
    let (mut compared, mut wrong) = (0, Vec::new());
    for ((_, merchant, id), case) in cases {
        let answers: Vec<_> = case
            .asked
            .iter()
            .filter_map(|(_, ending)| answer(ending))
            .collect();
        compared += answers.len();
        let different = answers.iter().collect::<HashSet<_>>().len();
        if different > 1 {
            wrong.push(format!(
                "{id} of {merchant} got {different} different answers"
            ));
        }
    }
    Finding {
        title: "same answer",
        text: format!(
            "{compared} answers to payments and refunds, and each repeat got that of the first"
        ),
        wrong,
    }
}

/// Whether one content of an id was carried out: requests of another one were refused.
fn conflicts(cases: &Cases<'_>) -> Finding {
    let (mut ids, mut refused, mut wrong) = (0, 0, Vec::new());
    for ((_, merchant, id), case) in cases {
        let contents: HashSet<_> = case.asked.iter().map(|(request, _)| request).collect();
        ids += usize::from(contents.len() > 1);
        let carried_out = case
            .asked
            .iter()
            .filter(|(_, ending)| answer(ending).is_some());
        let winners: HashSet<_> = carried_out.map(|(request, _)| request).collect();
        if winners.len() > 1 {
            wrong.push(format!(
                "{id} of {merchant} was carried out with {} contents",
                winners.len()
            ));
        }
        for (request, ending) in &case.asked {
            let other = !winners.contains(request);
            if matches!(ending, Ending::GivenUp(_)) {
                continue;
            }
            refused += usize::from(other);
            if other != (**ending == Ending::Mismatched) {
                wrong.push(format!("{id} of {merchant}: wrongly told {ending:?}"));
            }
        }
    }
    Finding {
        title: "conflicts",
        text: format!(
            "{ids} ids came with two contents: the first claim won, and {refused} deliveries of the other were refused"
        ),
        wrong,
    }
}

fn money(request: &Request) -> Option<(u64, String)> {
    match request {
        Request::Pay(pay) => Some((pay.amount, pay.currency.clone())),
        Request::Refund(refund) => Some((refund.amount, refund.currency.clone())),
        Request::Notify(_) => None,
    }
}

fn receipt(ending: &Ending) -> Option<(u64, String)> {
    let Ending::Answered(text) = ending else {
        return None;
    };
    let receipt: Receipt = serde_json::from_str(text).ok()?;
    Some((receipt.amount, receipt.currency))
}

/// The answer that a caller received, except a refusal to answer.
fn answer(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Answered(text) => Some(text.clone()),
        Ending::Declined(error) => Some(error.to_string()),
        _ => None,
    }
}

/// The sum of each currency, for people.
fn sums(movements: &[&Movement]) -> String {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for moved in movements {
        *sums.entry(&moved.currency).or_default() += moved.amount;
    }
    let sums = sums
        .iter()
        .map(|(currency, sum)| format!("{}.{:02} {currency}", sum / 100, sum % 100));
    sums.collect::<Vec<_>>().join(" + ")
}
