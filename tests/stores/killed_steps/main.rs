//! Calls with steps in processes killed and stalled at every point. The signals are `kill -9` and SIGSTOP.
//!
//! A process prints each point, and stops there until the test has killed or stalled it. Each trial compares what the
//! processes print, and the effects that they had, with rules: at once with the rules of its call, and in the end with the
//! rules that hold however processes were interrupted.

mod books;
mod fleet;
mod in_tx;
mod site;
mod stories;

use std::process::ExitCode;

use idem_tests::bounds::bound;
use idem_tests::seeded::Seeded;
use libtest_mimic::{Arguments, Trial, run};

use self::fleet::Fleet;
use self::site::{Kind, Leases, Site};
use self::stories::{Fault, Plan, five, known_points, parallel, points, tell};

fn at_every_point() -> Vec<Plan> {
    let points = points();
    let mut plans: Vec<_> = points.iter().map(|point| Plan::at(&[&**point])).collect();
    plans.push(Plan::at(&["label/effect", "label/asked"]));
    plans
}

/// The same, where the next attempt stops as well, in its body: from there on its lease is renewed.
fn at_every_point_and_another(seeded: &mut Seeded) -> Vec<Plan> {
    let all = points();
    let begins = all.iter().position(|point| point == "start");
    let in_body = &all[begins.expect("each body begins")..];
    let mut any = || usize::try_from(seeded.below(in_body.len() as u64)).expect("a few points");
    let plans = all
        .iter()
        .map(|point| Plan::at(&[&**point, &in_body[any()]]));
    plans.collect()
}

/// Plans for all pairs of points, grouped by the first one; none in an ordinary run.
fn at_every_pair() -> Vec<Vec<Plan>> {
    let all = bound(Vec::new(), points());
    let pairs = |first: &String| {
        let plans = all.iter().map(|second| Plan::at(&[&**first, second]));
        plans.collect()
    };
    all.iter().map(pairs).collect()
}

/// Kills at each point, followed by an undisturbed attempt; kills at one point after the other; kills at random points.
fn steps_of_calls_killed_at_every_point_are_finished_once(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "killed"), Leases::Aged);
    let mut plans = at_every_point();
    plans.push(Plan::Each(points()));
    plans.push(Plan::Each(known_points()));
    plans.extend(vec![Plan::Random(6); bound(10, 60)]);
    let mut stories = five(&fleet, plans);
    tell(&mut fleet, &mut stories, &[Fault::Kill], &mut seeded);
    for plans in at_every_pair() {
        let mut stories = five(&fleet, plans);
        tell(&mut fleet, &mut stories, &[Fault::Kill], &mut seeded);
    }
    books::check(&fleet, 0);
}

/// Stalls at each point, until another process has taken the call over.
fn calls_stalled_at_every_point_keep_no_step_after_a_take_over(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "stalled"), Leases::Aged);
    // The other process ends the call; it stops as well, and is killed or stalled.
    let mut plans = at_every_point();
    plans.extend(at_every_point_and_another(&mut seeded));
    plans.extend(vec![Plan::Random(4); bound(10, 60)]);
    let faults = [Fault::Stall, Fault::Stall, Fault::Kill];
    let mut stories = five(&fleet, plans);
    tell(&mut fleet, &mut stories, &faults, &mut seeded);
    for plans in at_every_pair() {
        let mut stories = five(&fleet, plans);
        tell(&mut fleet, &mut stories, &faults, &mut seeded);
    }
    books::check(&fleet, 4);
}

/// Stalls at each point for longer than a lease: a stalled process finds out when it wakes up, and its bodies continue.
fn calls_stalled_for_longer_than_their_lease_start_no_step(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "lapsed"), Leases::Lapse);
    let mut plans = at_every_point();
    plans.extend(at_every_point_and_another(&mut seeded));
    let mut stories = five(&fleet, plans);
    tell(&mut fleet, &mut stories, &[Fault::Stall], &mut seeded);
    books::check(&fleet, 2);
}

/// Kills and stalls amid 28 parallel steps.
fn parallel_steps_of_interrupted_calls_are_finished_once(kind: Kind) {
    let (_, mut seeded) = Seeded::from_env();
    let mut fleet = Fleet::new(Site::start(kind, "many"), Leases::Aged);
    let faults = bound(5, 20);
    let mut stories = parallel(bound(3, 10), faults);
    tell(
        &mut fleet,
        &mut stories,
        &[Fault::Kill, Fault::Stall],
        &mut seeded,
    );
    books::check(&fleet, faults);
}

/// Kills at each point of a step that writes in a transaction.
fn a_killed_call_writes_one_row(kind: Kind) {
    let mut fleet = Fleet::new(Site::start(kind, "tx_killed"), Leases::Aged);
    fleet.site.create_rows();
    let (_, mut seeded) = Seeded::from_env();
    in_tx::kill(&mut fleet, &mut seeded);
    books::check(&fleet, 0);
}

/// The trials of every store, those with rows on every database.
fn main() -> ExitCode {
    let mut trials = Vec::new();
    for kind in Kind::ALL {
        macro_rules! add {
            ($($trial:ident)*) => {$(
                let name = format!("{}::{}", kind.name(), stringify!($trial));
                trials.push(Trial::test(name, move || {
                    $trial(kind);
                    Ok(())
                }));
            )*};
        }
        add!(
            steps_of_calls_killed_at_every_point_are_finished_once
            calls_stalled_at_every_point_keep_no_step_after_a_take_over
            calls_stalled_for_longer_than_their_lease_start_no_step
            parallel_steps_of_interrupted_calls_are_finished_once
        );
        if kind != Kind::Redis {
            add!(a_killed_call_writes_one_row);
        }
    }
    let mut arguments = Arguments::from_args();
    // Most wait for processes and servers.
    arguments.test_threads.get_or_insert(4);
    run(&arguments, trials).exit_code()
}
