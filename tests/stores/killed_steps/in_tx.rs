//! Calls whose second step writes a row in a transaction, interrupted at each of its points.

use std::collections::BTreeSet;
use std::slice;

use idem_tests::seeded::Seeded;

use crate::fleet::{Fleet, Process, Said};
use crate::stories::{Fault, Plan, Story, tell};

/// The points, and whether the row is committed there.
const POINTS: [(&str, bool); 6] = [
    ("before", false),
    ("opened", false),
    ("part", false),
    ("effect", false),
    ("written", false),
    ("recorded", true),
];

/// What a process says of the step.
fn result(value: usize, process: usize) -> Said {
    let value = value as u64;
    let how = if value == process as u64 {
        Said::Kept
    } else {
        Said::Read
    };
    how("book".to_owned(), value)
}

fn answer(process: usize, value: usize) -> Said {
    Said::Answer(format!("p{process},charge=1,book={value},ship=1"))
}

fn call(process: &mut Process, number: usize, stop: &str) {
    process.send(format!("call {number} book 0 {stop}").trim_end());
}

fn stops(process: &mut Process, number: usize, place: &str) {
    let said = process.said_of(&number.to_string());
    let at = Said::At(format!("book/{place}"));
    assert_eq!(said.last(), Some(&at), "{number}: {said:?}");
}

/// Calls each number in another process, and compares answers and rows: the number of the process whose row counts.
fn check(fleet: &mut Fleet, rows: &[(usize, usize, Said)]) {
    let mut process = fleet.spawn(true);
    for (number, ..) in rows {
        call(&mut process, *number, "");
    }
    fleet.rests(
        &mut process,
        rows.iter().map(|(number, ..)| (number.to_string(), 1)),
    );
    for (number, writer, answer) in rows {
        let said = process.said_of(&number.to_string());
        assert_eq!(
            said.as_slice(),
            slice::from_ref(answer),
            "a duplicate of {number}"
        );
        let written = fleet.site.rows(*number);
        assert_eq!(
            written,
            [i64::try_from(*writer).expect("a few")],
            "rows of {number}"
        );
    }
}

/// Kills a process at each point, one after the other, because its transaction may lock others out. Another one
/// continues.
pub(crate) fn kill(fleet: &mut Fleet, seeded: &mut Seeded) {
    let mut rows = Vec::new();
    for (number, (place, _)) in POINTS.into_iter().enumerate() {
        let plan = Plan::at(&[&format!("book/{place}")]);
        let mut story = [Story::new(number.to_string(), plan)];
        tell(fleet, &mut story, &[Fault::Kill], seeded);
        let [story] = story;
        let end = story.end.expect("it has ended");
        // What it returned is what `books` compares, as the results of its steps.
        let results = fleet.said.iter().filter(|(_, key, _)| *key == story.key);
        let mut booked = results.filter_map(|(_, _, said)| match said {
            Said::Kept(step, value) if step == "book" => usize::try_from(*value).ok(),
            _ => None,
        });
        let writer = booked.next().expect("it has booked");
        assert_eq!(booked.next(), None, "it has booked twice");
        rows.push((number, writer, end));
    }
    check(fleet, &rows);
}

/// Stalls a process at each point for longer than its lease, until another one has taken its calls over and has come
/// to the transaction, or waits for that of the stalled process. Only the stalled process can end its transaction.
pub(crate) fn stall(fleet: &mut Fleet) {
    // A stalled process that has written keeps all others from writing to such a database, so that none takes over.
    let one_writer = fleet.site.has_locks_of_processes();
    let points = POINTS.into_iter();
    let points =
        points.filter(|(place, _)| !one_writer || !["part", "effect", "written"].contains(place));
    // Each twice: the other process stops before it comes to the transaction, or it does not stop.
    let stories: Vec<_> = points
        .flat_map(|point| [(point, true), (point, false)])
        .enumerate()
        .collect();
    let keys = || stories.iter().map(|(number, _)| number.to_string());
    // It waits for locks of the database, which transactions of other calls hold for a moment.
    let mut zombie = fleet.spawn(true);
    for (number, ((place, _), _)) in &stories {
        call(&mut zombie, *number, &format!("book/{place}"));
    }
    fleet.rests(&mut zombie, keys().map(|key| (key, 1)));
    for (number, ((place, _), _)) in &stories {
        stops(&mut zombie, *number, place);
    }
    zombie.stall();

    let mut other = fleet.spawn(true);
    for (number, (_, stops)) in &stories {
        call(&mut other, *number, if *stops { "book/opened" } else { "" });
    }
    // With its first step, which has returned what is recorded, it has taken the call over. A call that does not stop
    // may then wait for a transaction of the stalled process.
    let mut moving: BTreeSet<_> = stories
        .iter()
        .map(|(number, (_, stops))| (number.to_string(), *stops))
        .collect();
    while !moving.is_empty() {
        let (key, said) = fleet.line(&mut other);
        moving.remove(&(key, matches!(said, Said::At(_))));
    }

    zombie.wake();
    for (number, _) in &stories {
        zombie.send(&format!("go {number}"));
    }
    fleet.rests(&mut zombie, keys().map(|key| (key, 1)));
    let mut rows = Vec::new();
    let refused = |step: &str| Said::Refused(step.to_owned(), "Running".to_owned());
    for (number, ((place, committed), _)) in &stories {
        // What it has written before the other process could, it commits.
        let writes = *committed || *place == "written";
        let said = zombie.said_of(&number.to_string());
        let said: Vec<_> = said.into_iter().filter(|said| !said.is_end()).collect();
        let expected = match (*committed, writes) {
            (true, _) => vec![refused("ship")],
            (false, true) => vec![result(zombie.number, zombie.number), refused("ship")],
            (false, false) => vec![refused("book"), refused("ship")],
        };
        assert_eq!(said, expected, "a zombie of {number} at {place}");
        let by = if writes { zombie.number } else { other.number };
        rows.push((*number, by, answer(other.number, by)));
        other.send(&format!("go {number}"));
    }
    fleet.ends(&mut other, keys());
    for (number, writer, end) in &rows {
        let key = number.to_string();
        let mut said = other.said_of(&key);
        let mut ship: fn(String, u64) -> Said = Said::Kept;
        // A database undoes a transaction to resolve a deadlock with one of another call.
        if said.last() == Some(&Said::End("TransactionAborted".to_owned())) {
            call(&mut other, *number, "");
            fleet.rests(&mut other, [(&key, 1)]);
            (said, ship) = (other.said_of(&key), Said::Read);
        }
        said.retain(|said| !matches!(said, Said::At(_)));
        let expected = [
            Said::Read("charge".to_owned(), 1),
            result(*writer, other.number),
            ship("ship".to_owned(), 1),
            end.clone(),
        ];
        assert_eq!(said, expected, "the other process, of {number}");
    }
    fleet.kill(&mut zombie);
    check(fleet, &rows);
}
