//! Calls with steps in processes that are killed with `kill -9`, and stalled with SIGSTOP, at every point of them.
//!
//! A process prints each point, and stops there until the test has killed or stalled it. Each trial compares what the
//! processes print, and the effects that they had, with a model of a call, and with rules that do not know the model.

mod books;
mod fleet;
mod in_tx;
mod ledger;
mod model;
mod parallel;
mod site;
mod stories;

use std::thread;

use idem_tests::bounds::bound;
use idem_tests::seeded::Seeded;

use self::fleet::Fleet;
use self::model::Point;
use self::site::{Kind, Leases, Site};
use self::stories::{Fault, Plan, tell};

/// A plan for each point of a call, and for that in a hook.
fn at_every_point() -> Vec<Plan> {
    let mut plans: Vec<_> = Point::all()
        .into_iter()
        .map(|point| Plan::At(vec![point]))
        .collect();
    plans.push(Plan::At(Point::asked().to_vec()));
    plans
}

/// The same, where the next attempt stops as well, in its body: from there on its lease is renewed.
fn at_every_point_and_another(seeded: &mut Seeded) -> Vec<Plan> {
    let all = Point::all();
    let begins = all.iter().position(|point| *point == Point::Start);
    let in_body = &all[begins.expect("each body begins")..];
    let mut any = || usize::try_from(seeded.below(in_body.len() as u64)).expect("a few points");
    let plans = all
        .iter()
        .map(|point| Plan::At(vec![*point, in_body[any()]]));
    plans.collect()
}

/// Plans for all pairs of points, those with the same first one together; none in an ordinary run.
fn at_every_pair() -> Vec<Vec<Plan>> {
    let all = bound(Vec::new(), Point::all());
    let pairs = |first: Point| all.iter().map(move |second| Plan::At(vec![first, *second]));
    all.iter().map(|first| pairs(*first).collect()).collect()
}

/// Kills at each point, followed by an undisturbed attempt; kills at one point after the other; kills at random points.
fn killed(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "killed"), Leases::Aged);
    let mut plans = at_every_point();
    plans.extend([true, false].map(Plan::each));
    plans.extend(vec![Plan::Random(6); bound(10, 60)]);
    let mut stops = tell(&mut fleet, plans, &[Fault::Kill], &mut seeded);
    for plans in at_every_pair() {
        stops += tell(&mut fleet, plans, &[Fault::Kill], &mut seeded);
    }
    books::check(&fleet, 0);
    eprintln!(
        "{kind:?}: {stops} calls killed, {} processes",
        fleet.processes()
    );
}

/// Stalls at each point, until another process has taken the call over.
fn stalled(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "stalled"), Leases::Aged);
    // The other process ends the call; it stops as well, and is killed or stalled.
    let mut plans = at_every_point();
    plans.extend(at_every_point_and_another(&mut seeded));
    plans.extend(vec![Plan::Random(4); bound(10, 60)]);
    let faults = [Fault::Stall, Fault::Stall, Fault::Kill];
    let mut stops = tell(&mut fleet, plans, &faults, &mut seeded);
    for plans in at_every_pair() {
        stops += tell(&mut fleet, plans, &faults, &mut seeded);
    }
    books::check(&fleet, 4);
    eprintln!(
        "{kind:?}: {stops} calls stalled or killed, {} processes",
        fleet.processes()
    );
}

/// Stalls at each point for longer than a lease. Both trials at once, because they wait most of the time.
fn stalled_for_longer_than_a_lease(kind: Kind) {
    let trial = |name: &str, leases| {
        let (_, mut seeded) = Seeded::from_env();
        let mut fleet = Fleet::new(Site::start(kind, name), leases);
        let mut plans = at_every_point();
        plans.extend(at_every_point_and_another(&mut seeded));
        let stops = tell(&mut fleet, plans, &[Fault::Stall], &mut seeded);
        books::check(&fleet, 2);
        let processes = fleet.processes();
        eprintln!("{kind:?}, {leases:?}: {stops} calls stalled, {processes} processes");
    };
    thread::scope(|scope| {
        scope.spawn(|| trial("cancelled", Leases::LapseAndCancel));
        trial("continued", Leases::LapseAndContinue);
    });
}

/// Kills amid 32 parallel steps.
fn killed_amid_parallel_steps(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "many_killed"), Leases::Aged);
    let kills = parallel::kill(&mut fleet, bound(2, 20), &mut seeded);
    let repeated = books::check(&fleet, 0);
    eprintln!("{kind:?}: {kills} kills amid parallel steps, {repeated} effects repeated");
}

/// Stalls amid 32 parallel steps.
fn stalled_amid_parallel_steps(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "many_stalled"), Leases::Aged);
    let stalls = bound(4, 20);
    let refused = parallel::stall(&mut fleet, bound(3, 10), stalls, &mut seeded);
    let repeated = books::check(&fleet, stalls);
    eprintln!(
        "{kind:?}: {stalls} stalls amid parallel steps, {refused} results refused, {repeated} effects repeated"
    );
    assert!(refused > 0, "no stalled step woke up");
}

/// Kills at each point of a step that writes a row in a transaction.
fn killed_in_a_transaction(kind: Kind) {
    let mut fleet = Fleet::new(Site::start(kind, "tx_killed"), Leases::Aged);
    fleet.site.create_rows();
    in_tx::kill(&mut fleet);
    books::check(&fleet, 0);
}

/// Stalls at each point of a step that writes a row in a transaction.
fn stalled_in_a_transaction(kind: Kind) {
    let mut fleet = Fleet::new(Site::start(kind, "tx_stalled"), Leases::LapseAndContinue);
    fleet.site.create_rows();
    in_tx::stall(&mut fleet);
    books::check(&fleet, 1);
}

/// The trials on a store.
macro_rules! trials {
    ($name:ident, $kind:ident) => {
        mod $name {
            use crate::site::Kind;

            #[test]
            fn steps_of_calls_killed_at_every_point_are_finished_once() {
                crate::killed(Kind::$kind);
            }

            #[test]
            fn parallel_steps_of_killed_calls_are_finished_once() {
                crate::killed_amid_parallel_steps(Kind::$kind);
            }

            #[test]
            fn parallel_steps_of_stalled_calls_are_not_kept_after_a_take_over() {
                crate::stalled_amid_parallel_steps(Kind::$kind);
            }

            #[test]
            fn calls_stalled_at_every_point_keep_no_step_after_a_take_over() {
                crate::stalled(Kind::$kind);
            }

            #[test]
            fn calls_stalled_for_longer_than_their_lease_start_no_step() {
                crate::stalled_for_longer_than_a_lease(Kind::$kind);
            }
        }
    };
}

/// Those on a store in a database.
macro_rules! trials_with_rows {
    ($name:ident, $kind:ident) => {
        mod $name {
            use crate::site::Kind;

            #[test]
            fn a_killed_call_writes_one_row() {
                crate::killed_in_a_transaction(Kind::$kind);
            }

            #[test]
            fn a_stalled_call_commits_no_second_row() {
                crate::stalled_in_a_transaction(Kind::$kind);
            }
        }
    };
}

trials!(sqlite, Sqlite);
trials!(redis, Redis);
trials!(cluster, Cluster);
trials!(postgres, Postgres);
trials!(mariadb, MariaDb);
trials!(layered, Layered);

trials_with_rows!(sqlite_rows, Sqlite);
trials_with_rows!(postgres_rows, Postgres);
trials_with_rows!(mariadb_rows, MariaDb);
trials_with_rows!(layered_rows, Layered);
