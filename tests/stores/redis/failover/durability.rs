//! Claims and answers that survive a failover, and those lost by it.
//!
//! After the failover another process repeats, on the new primary, every call whose body ran. With a lease of a
//! minute, a body that then runs a second time is one whose claim was lost.

use idem_harness::{Partition, until};
use idem_runtime::store::redis::Durability;
use idem_tests::trial::{Call, Client, ENOUGH, Fault, Seen, Trial};

const ONE: Durability = Durability::Replicated(1);

fn nothing_is_forgotten(seen: &Seen) {
    for client in seen.clients() {
        let tally = seen.tally(client);
        assert!(tally.executed >= ENOUGH, "{client}: {tally:?}");
        assert_eq!((tally.again, tally.differ), (0, 0), "{client}: {tally:?}");
    }
}

/// Calls made after the fault began.
fn late(seen: &Seen, client: Client) -> Vec<&Call> {
    let calls = seen.calls(client).iter();
    let late: Vec<_> = calls.filter(|call| call.began > seen.struck).collect();
    assert!(!late.is_empty(), "{client} called on");
    late
}

/// A client of the former primary starts no body, and reports the reason.
fn nothing_is_granted(seen: &Seen, client: Client, why: &str) {
    let late = late(seen, client);
    let granted = late.iter().filter(|call| call.ran).count();
    assert_eq!(granted, 0, "{client}: of {}", late.len());
    if late
        .iter()
        .filter_map(|call| call.refusal())
        .any(|said| said.contains(why))
    {
        return;
    }
    // On a busy machine the deadline of each call of the trial may have come first.
    until("a refusal has the reason", || {
        let call = seen.call(client);
        assert!(!call.ran, "{client}");
        match call.refusal() {
            Some(said) if said.contains(why) => Ok(()),
            said => Err(format!("{client}: not {why:?}, but {said:?}")),
        }
    });
}

/// Error of a client that needs a new connection and can query no sentinel whether its server is still
/// the primary.
fn cut_off_from(how: Partition) -> &'static str {
    match how {
        Partition::Cut => "asking the sentinel at ",
        Partition::Silent => "no reply to a claim",
    }
}

/// A client that knows sentinels finds the new primary, and its answers are stored there.
fn calls_work_again(seen: &Seen, client: Client) {
    until("a call is answered", || {
        let refusal = seen.call(client).refusal();
        refusal.map_or(Ok(()), |said| Err(format!("{client}: {said}")))
    });
    until("every answer is stored", || {
        let tally = seen.tally(client);
        assert_eq!((tally.again, tally.differ), (0, 0), "{client}: {tally:?}");
        match tally.held {
            0 => Ok(()),
            _ => Err(format!("{client}: {tally:?}")),
        }
    });
}

fn a_partition_forgets_nothing_that_is_replicated(how: Partition) {
    let seen = Trial::new(Fault::Parted(how), ONE).run();
    nothing_is_forgotten(&seen);
    nothing_is_granted(&seen, Client::Stays, "0 of 1 replicas have it");
    nothing_is_granted(&seen, Client::CutOff, cut_off_from(how));
    calls_work_again(&seen, Client::Follows);
    seen.topology().heal();
    calls_work_again(&seen, Client::CutOff);
    calls_work_again(&seen, Client::Follows);
    // A URL of one server always means that server, even after its role has changed.
    until("it is told that its server is a replica", || {
        let said = seen.call(Client::Stays).refusal();
        let said = said.ok_or("a replica granted a claim")?;
        if said.contains("this server is a replica") {
            Ok(())
        } else {
            Err(said)
        }
    });
}

#[test]
fn a_partition_that_cuts_links_forgets_nothing_that_is_replicated() {
    a_partition_forgets_nothing_that_is_replicated(Partition::Cut);
}

#[test]
fn a_silent_partition_forgets_nothing_that_is_replicated() {
    a_partition_forgets_nothing_that_is_replicated(Partition::Silent);
}

#[test]
fn a_killed_primary_forgets_nothing_that_is_replicated() {
    let seen = Trial::new(Fault::Killed, ONE).run();
    nothing_is_forgotten(&seen);
    nothing_is_granted(&seen, Client::Stays, "the connection to Redis is lost");
    calls_work_again(&seen, Client::Follows);
    seen.topology().heal();
    calls_work_again(&seen, Client::Follows);
}

#[test]
fn a_stopped_primary_that_comes_back_forgets_nothing_that_is_replicated() {
    let seen = Trial::new(Fault::Stopped, ONE).run();
    nothing_is_forgotten(&seen);
    nothing_is_granted(&seen, Client::Stays, "0 of 1 replicas have it");
    calls_work_again(&seen, Client::Follows);
}

/// With [`Durability::Acknowledged`] a former primary goes on granting, and all those claims are lost.
fn a_partition_loses_acknowledged_records(how: Partition) {
    let seen = Trial {
        // These calls wait for no replica, and all of them are executed again.
        tasks: 4,
        ..Trial::new(Fault::Parted(how), Durability::Acknowledged)
    };
    let seen = seen.run();
    for client in seen.clients() {
        let tally = seen.tally(client);
        assert!(tally.again >= ENOUGH, "{client}: {tally:?}");
        assert!(tally.differ >= ENOUGH, "{client}: {tally:?}");
    }
}

#[test]
fn a_partition_that_cuts_links_loses_acknowledged_records() {
    a_partition_loses_acknowledged_records(Partition::Cut);
}

#[test]
fn a_silent_partition_loses_acknowledged_records() {
    a_partition_loses_acknowledged_records(Partition::Silent);
}

/// The limit of [`Durability::Replicated`]: that replica must be one that can be promoted.
#[test]
fn a_replica_that_is_lost_with_the_primary_does_not_count() {
    let fault = Fault::PartedWithReplica(Partition::Cut);
    let seen = Trial::new(fault, ONE).run();
    let tally = seen.tally(Client::Stays);
    assert!(tally.again >= ENOUGH, "{tally:?}");
}

#[test]
fn all_replicas_forget_nothing_when_one_is_lost_with_the_primary() {
    let fault = Fault::PartedWithReplica(Partition::Cut);
    let seen = Trial::new(fault, Durability::Replicated(2)).run();
    nothing_is_forgotten(&seen);
    nothing_is_granted(&seen, Client::Stays, "1 of 2 replicas have it");
    nothing_is_granted(&seen, Client::CutOff, cut_off_from(Partition::Cut));
    // The group is one replica short, so the new primary cannot grant a claim either.
    nothing_is_granted(&seen, Client::Follows, "of 2 replicas have it");
    seen.topology().heal();
    for client in [Client::Follows, Client::CutOff] {
        calls_work_again(&seen, client);
    }
}
