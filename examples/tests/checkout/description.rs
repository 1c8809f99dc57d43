//! The `OpenAPI` description against the server.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use serde_json::Value;

use super::api::order;
use super::charges::charge;
use super::http::{Request, Response};
use super::server::Server;

/// A path, a function that makes a request of a key and a body, and three bodies.
type Post<'a> = (&'a str, &'a dyn Fn(&str, &str) -> Request, [&'a str; 3]);
type Seen = BTreeMap<String, BTreeSet<String>>;

/// Every status that the server answers here is described, and no other; 500, which takes a server that
/// dies at the wrong moment, is described and not seen here.
#[test]
fn paths_and_statuses_are_those_of_the_server() {
    let shop = Server::start(&["--store", "memory", "--slow", "2000"]);
    let file = Request::new("GET", "/openapi.json").send(&shop.address);
    assert_eq!(file.header("content-type"), Some("application/json"));
    let description = file.document();
    assert_eq!(description["openapi"], "3.1.0");

    let mut seen = Seen::new();
    let mut see = |path: &str, response: &Response| {
        check_content(&description, path, response);
        let statuses = seen.entry(path.to_owned()).or_default();
        statuses.insert(response.status.to_string());
    };
    let long = "x".repeat(70_000);
    let posts: [Post<'_>; 2] = [
        (
            "post /api/orders",
            &|key, body| order("ada", key, body),
            [
                r#"{"quantity": 1}"#,
                r#"{"quantity": 1, "card": "tok_chargeDeclined"}"#,
                r#"{"quantity": 1, "card": "tok_down"}"#,
            ],
        ),
        (
            "post /v1/charges",
            &charge,
            [
                "amount=1&currency=eur&source=tok_visa",
                "amount=1&currency=eur&source=tok_chargeDeclined",
                "amount=1&currency=eur&source=tok_down",
            ],
        ),
    ];
    for (number, (path, post, [good, declined, down])) in posts.iter().enumerate() {
        let running = post("running", good);
        thread::scope(|scope| {
            let begun = shop.count("started");
            let first = scope.spawn(|| running.send(&shop.address));
            shop.wait_for("started", begun + 1);
            let second = running.send(&shop.address);
            assert_eq!(second.status, 409);
            assert!(second.header("retry-after").is_some());
            see(path, &second);
            see(path, &first.join().unwrap());
        });
        let bare = Request::new("POST", path.split_once(' ').unwrap().1);
        for request in [
            post("running", declined),
            post("declined", declined),
            post("down", down),
            post("long", &long),
            post("\u{e9}", good),
            post("unreadable", "{"),
            bare.header("Idempotency-Key", "nobody"),
        ] {
            see(path, &request.send(&shop.address));
        }
        assert_eq!(shop.count("charges"), number as u64 + 1);
    }
    let made = order("ada", "running", r#"{"quantity": 1}"#).send(&shop.address);
    let find = |path: &str| Request::new("GET", path).header("Authorization", "Bearer ada");
    let location = made.header("location").unwrap();
    for request in [
        find(location),
        find("/api/orders/none"),
        Request::new("GET", location),
    ] {
        see("get /api/orders/{id}", &request.send(&shop.address));
    }
    assert_eq!(seen, described(&description));
}

/// The described statuses, without the statuses that this test cannot cause.
fn described(description: &Value) -> Seen {
    let mut described = Seen::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            let unseen: &[&str] = match method.as_str() {
                "post" => &["500"],
                // The books are in memory here, and do not close.
                _ => &["503"],
            };
            let statuses = responses.keys().map(String::clone).collect();
            let hidden = unseen.iter().copied().map(str::to_owned).collect();
            let statuses: BTreeSet<String> = statuses;
            assert!(statuses.is_superset(&hidden));
            let statuses = statuses.difference(&hidden).cloned().collect();
            described.insert(format!("{method} {path}"), statuses);
        }
    }
    described
}

/// The content type of a response, and the members that its schema requires.
fn check_content(description: &Value, path: &str, response: &Response) {
    let (method, route) = path.split_once(' ').unwrap();
    let responses = &description["paths"][route][method]["responses"];
    let told = resolve(description, &responses[response.status.to_string()]);
    assert!(
        told.is_object(),
        "{path} answers {}: {}",
        response.status,
        response.body
    );
    let content_type = response.header("content-type").unwrap();
    let schema = resolve(description, &told["content"][content_type]["schema"]);
    let document = response.document();
    for member in schema["required"].as_array().unwrap() {
        assert!(
            document.get(member.as_str().unwrap()).is_some(),
            "{path} {}: no {member} in {document}",
            response.status
        );
    }
}

fn resolve<'a>(description: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(pointer) => description
            .pointer(pointer.trim_start_matches('#'))
            .unwrap(),
        None => value,
    }
}
