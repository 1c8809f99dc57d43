//! Ends of a stream: what a repeat gets meanwhile and after.

use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use idem_runtime::http::StatusPolicy;
use idem_runtime::{OnRunning, Reconciled};

use super::super::bodies::next;
use super::shop::{BOLD, BOTH, FUSE, PANIC, Set, Shop, TRAILER, TWO, spawn_next};
use crate::client::{LOST, REUSED, RUNNING, data, order, others, patiently, ran, replayed};

/// What becomes of a stream after its first event.
#[derive(Clone, Copy, Debug)]
enum Then {
    Ends,
    /// And its destructor panics.
    EndsBadly,
    BreaksOff,
    Panics,
    /// Over a limit of 30 bytes. If its client has left, its destructor panics.
    GoesOn,
    /// The same, until the time of its handler is over.
    Outlasts,
}
use Then::{BreaksOff, Ends, EndsBadly, GoesOn, Outlasts, Panics};

#[tokio::test]
async fn each_end_of_a_stream_decides_what_a_repeat_gets() {
    let careful: Set = |layer| layer;
    let draft: Set = |layer| layer.status_policy(StatusPolicy::draft());
    let hooked: Set =
        |layer| layer.reconcile(|_, _| async { Reconciled::<Response<&str>>::NotLanded });
    let limited: Set = |layer| layer.max_response_bytes(30);
    let unrecorded: Set = |layer| layer.record_streams(false);
    let (value, unknown) = ("completed value", "completed unknown");
    let (large, endless) = (
        "unsaved: it is larger than 30",
        "unsaved: it is an upgrade, or a stream",
    );
    let both = replayed(BOTH);
    for (number, (set, meanwhile, then, event, repeat)) in [
        (careful, RUNNING, Ends, value, both),
        (careful, RUNNING, EndsBadly, value, both),
        (careful, RUNNING, BreaksOff, unknown, RUNNING),
        (careful, RUNNING, Panics, unknown, RUNNING),
        (careful, RUNNING, Outlasts, endless, LOST),
        (draft, RUNNING, BreaksOff, unknown, RUNNING),
        (limited, RUNNING, GoesOn, large, LOST),
        (unrecorded, LOST, GoesOn, endless, LOST),
        // The claim is held.
        (BOLD, RUNNING, Ends, value, both),
        (BOLD, RUNNING, BreaksOff, "released", ran("2")),
        (BOLD, RUNNING, Panics, "released", ran("2")),
        (BOLD, RUNNING, Outlasts, endless, LOST),
        (hooked, RUNNING, Ends, value, both),
        (hooked, RUNNING, EndsBadly, value, both),
        (hooked, RUNNING, Outlasts, endless, LOST),
    ]
    .into_iter()
    .enumerate()
    {
        for client_stays in [true, false] {
            let row = format!("row {number}, {then:?}, its client stays: {client_stays}");
            let mut shop = Shop::open(|layer| set(layer.on_running(OnRunning::Reject)));
            let again = (shop.fixture).orders(shop.layer.clone(), |run| run.to_string());
            let client = Some(shop.first().await).filter(|_| client_stays);
            shop.repeats(&row, &again, meanwhile).await;
            shop.then(then, client_stays).await;
            shop.fixture.saw(event, 1).await;
            assert!(shop.fixture.events.count("completed") <= 1, "{row}");
            assert_eq!(shop.fixture.events.count("lease lost"), 0, "{row}");
            let after = [(&row, order("another"), REUSED), (&row, order(""), repeat)];
            shop.fixture.walk(&again, after).await;
            if let Some(client) = client {
                shop.rest(then, client).await;
            } else if let Some(source) = &shop.source {
                patiently("a stream without a reader is dropped", source.closed()).await;
            }
        }
    }
}

impl Shop {
    async fn then(&mut self, then: Then, client_stays: bool) {
        match then {
            Ends => {
                self.write(TWO);
                let trailers = [(TRAILER, HeaderValue::from_static("7"))];
                let trailers = Frame::trailers(HeaderMap::from_iter(trailers));
                self.source().send(Ok(trailers)).unwrap();
            }
            EndsBadly => {
                self.write(FUSE);
                self.write(TWO);
            }
            BreaksOff => {
                let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
                self.source().send(Err(broken)).unwrap();
            }
            Panics => self.write(PANIC),
            GoesOn | Outlasts if !client_stays => {
                // Refused if nothing reads it any more.
                let _ = self.source().send(data(FUSE));
                others().await;
            }
            GoesOn | Outlasts => {}
        }
        match then {
            Ends | EndsBadly => self.end(),
            GoesOn => drop(self.source().send(data(TWO))),
            Outlasts => self.fixture.clock.advance(Duration::from_mins(16)),
            BreaksOff | Panics => {}
        }
    }

    /// The rest for a client that stays, after the first event.
    async fn rest(&mut self, then: Then, mut client: Response) {
        match then {
            BreaksOff => assert!(next(&mut client).await.unwrap().is_err()),
            Panics => {
                let rest = patiently("a panic", spawn_next(client)).await;
                assert!(rest.unwrap_err().is_panic(), "as the handler's");
                return;
            }
            Outlasts => self.write(TWO),
            Ends | EndsBadly | GoesOn => {}
        }
        if !matches!(then, BreaksOff) {
            assert_eq!(next(&mut client).await.unwrap().unwrap(), TWO.as_bytes());
        }
        if let Ends = then {
            let trailers = next(&mut client).await.unwrap().unwrap();
            assert!(trailers.is_empty(), "a frame without data");
        }
        if let GoesOn | Outlasts = then {
            self.write("more");
            assert_eq!(next(&mut client).await.unwrap().unwrap(), b"more");
            self.end();
        }
        assert!(next(&mut client).await.is_none());
    }
}
