//! The shop is killed half-way, or stopped.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use idem_harness::{TestDir, eventually};

use super::api::order;
use super::browser::{Visitor, order_of};
use super::http::Response;
use super::server::Server;

#[test]
fn killed_after_the_card_is_charged_and_before_the_order_is_written() {
    let dir = TestDir::new("checkout").unwrap();
    let file = dir.path().join("shop.db");
    let args = ["--file", file.to_str().unwrap()];
    for by_form in [true, false] {
        let mut shop = Server::start(&[&args[..], &["--by-hand", "--fresh"]].concat());
        let (visitor, form) = Visitor::arrives(&shop);
        let request = if by_form {
            visitor.request(&form)
        } else {
            order("ada", "k", r#"{"quantity": 1}"#)
        };
        thread::scope(|scope| {
            let (request, address) = (&request, shop.address.clone());
            let lost = scope.spawn(move || request.try_send(&address));
            shop.enter(1);
            shop.wait_for("charges", 1);
            assert_eq!(shop.sold(), (0, 1));
            shop.kill9();
            assert!(lost.join().unwrap().is_none());
        });

        let shop = Server::start(&args);
        let visitor = visitor.follows(&shop);
        // The form waits until the lease of the dead process has expired; the API answers with `Retry-After`.
        let mut answer = request.send(&shop.address);
        eventually("the lease of 3 s ends", || {
            let refused = answer.status == 409;
            if refused {
                assert!(!by_form, "a form waits for longer than a lease");
                let seconds = answer.header("retry-after").unwrap().parse().unwrap();
                assert!((1..=2).contains(&seconds), "{seconds}");
                thread::sleep(Duration::from_secs(seconds));
                answer = request.send(&shop.address);
            }
            !refused
        });
        if by_form {
            assert_eq!(order_of(&visitor.submit(&form)), order_of(&answer));
        } else {
            assert_eq!(answer.status, 201);
            assert!(request.send(&shop.address).is_replay());
        }
        assert_eq!(shop.count("started"), 1);
        assert_eq!(shop.sold(), (1, 1));
    }
}

#[test]
fn asked_to_stop_it_ends_what_a_client_began_that_is_gone() {
    let dir = TestDir::new("checkout").unwrap();
    let file = dir.path().join("shop.db");
    let args = ["--file", file.to_str().unwrap(), "--by-hand"];
    let mut shop = Server::start(&args);
    let (visitor, form) = Visitor::arrives(&shop);
    let request = order("ada", "k", r#"{"quantity": 1}"#);
    let gone = [
        request.begin(&shop.address),
        visitor.request(&form).begin(&shop.address),
    ];
    shop.wait_for("started", 2);
    drop(gone);
    shop.terminate();
    eventually("it stops", || TcpStream::connect(&shop.address).is_err());
    shop.enter(4);
    assert_eq!(shop.wait().code(), Some(0));

    let shop = Server::start(&args);
    assert_eq!(shop.sold(), (2, 2));
    let answers = [
        request.send(&shop.address),
        visitor.follows(&shop).submit(&form),
    ];
    assert!(answers.iter().all(Response::is_replay), "{answers:?}");
    assert_eq!(shop.count("started"), 0);
}
