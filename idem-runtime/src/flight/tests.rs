use super::*;
use crate::error::ErrorKind;
use crate::operation::Operation;

const KEY: KeyDigest = KeyDigest::from_bytes([7; 32]);
const SECOND: Duration = Duration::from_secs(1);

/// A leader, and somebody who waits for what it finds out.
fn pair(flights: &Flights) -> (Ticket, Follower) {
    let join = || flights.join(&KEY, Fingerprint::NONE, Duration::ZERO, SECOND);
    let (Join::Lead(ticket), Join::Follow(follower, _)) = (join(), join()) else {
        panic!("the first leads, and the second follows")
    };
    (ticket, follower)
}

fn refused() -> Landing {
    Landing::Refused {
        error: Error::new(ErrorKind::Mismatch, Operation::new("pay")),
        max_attempts: None,
    }
}

#[tokio::test]
async fn who_was_told_is_not_asked_to_ask() {
    let flights = Flights::new();
    let (ticket, mut follower) = pair(&flights);
    ticket.land(|| Some(refused()));
    ticket.give_up();
    ticket.land(|| unreachable!("they were told"));
    drop(ticket);
    let landing = follower.landing().await;
    assert!(matches!(landing, Some(Landing::Refused { .. })));
}

#[tokio::test]
async fn who_was_asked_to_ask_is_told_nothing_by_a_ticket_that_was_given_up() {
    let flights = Flights::new();
    let (ticket, mut follower) = pair(&flights);
    ticket.give_up();
    assert!(follower.landing().await.is_none());
    // Whoever asks leads, and another ticket is about that.
    let (next, mut waits) = pair(&flights);
    ticket.land(|| unreachable!("it was given up"));
    drop(ticket);
    next.land(|| Some(refused()));
    let landing = waits.landing().await;
    assert!(matches!(landing, Some(Landing::Refused { .. })));
}
