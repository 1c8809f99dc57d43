//! The page and its form. The stories of the browser are in `tests/http/browser`.

use idem_examples::checkout::html::Text;
use idem_harness::eventually;

use super::browser::{Form, Visitor, notice, order_of};
use super::http::Request;
use super::server::Server;

fn shop() -> Server {
    Server::new(&["--slow", "20"])
}

#[test]
fn while_the_provider_is_down_the_form_stays_good_and_as_it_was() {
    let shop = shop();
    let (visitor, form) = Visitor::arrives(&shop);
    let down = form.with_card("tok_down").with_quantity(3);
    let page = visitor.submit(&down);
    assert_eq!(page.status, 503);
    assert!(notice(&page).contains("Press the button again"));
    assert_eq!(Form::of(&page), down, "what was sent is filled in");
    assert_eq!(visitor.form(), down, "in a new tab, too");
    // A changed form is refused with the reason.
    let changed = visitor.submit(&down.with_card("tok_visa"));
    assert_eq!(changed.status, 422);
    assert!(notice(&changed).contains("may have been paid"));
    assert_eq!(Form::of(&changed), down);
    let order = visitor.submit(&Form::of(&page));
    assert_eq!(order_of(&visitor.submit(&down)), order_of(&order));
    assert_eq!(shop.sold(), (1, 1));
    assert_eq!(shop.count("released"), 1);
}

#[test]
fn what_is_no_form_is_told_so_and_claims_nothing() {
    let shop = shop();
    let (visitor, form) = Visitor::arrives(&shop);
    let page = visitor.submit(&form.with_quantity(21));
    assert_eq!(page.status, 422);
    assert!(notice(&page).contains("could not be read"));
    assert_eq!(Form::of(&page), form);
    assert_eq!(shop.count("started"), 0);
    assert_eq!(visitor.submit(&form.with_quantity(20)).status, 303);
}

#[test]
fn an_expired_form_buys_nothing_and_a_used_one_still_leads_to_its_order() {
    let shop = Server::new(&["--slow", "0", "--life", "6"]);
    let (visitor, used) = Visitor::arrives(&shop);
    let order = visitor.submit(&used);
    let unused = visitor.form();
    eventually("the form ends", || visitor.form().token != unused.token);
    let page = visitor.submit(&unused);
    assert_eq!(page.status, 403);
    assert!(notice(&page).contains("open for too long"));
    assert_eq!(shop.sold(), (1, 1));
    assert_eq!(order_of(&visitor.submit(&used)), order_of(&order));
}

#[test]
fn an_unknown_address_is_a_page() {
    let page = Request::new("GET", "/nowhere&'").send(&shop().address);
    assert_eq!(page.status, 404);
    assert!(page.body.contains("/nowhere&amp;&#39;"), "{}", page.body);
}

#[test]
fn text_in_a_page_is_no_markup() {
    let text = Text("<a href='x'>\"&amp;\"</a> ok").to_string();
    let expected = "&lt;a href=&#39;x&#39;&gt;&quot;&amp;amp;&quot;&lt;/a&gt; ok";
    assert_eq!(text, expected);
    assert_eq!(Text("").to_string(), "");
}

#[test]
fn the_live_page_shows_digests_and_no_key_and_works_without_scripts() {
    let shop = shop();
    let (visitor, form) = Visitor::arrives(&shop);
    visitor.submit(&form);
    visitor.submit(&form);
    let live = visitor.get("/live");
    assert_eq!(live.status, 200);
    assert!(live.body.contains("<meta http-equiv=\"refresh\""));
    assert!(!live.body.contains(&form.token));
    let what: Vec<_> = live.body.match_indices("<tr data-what=\"").collect();
    assert_eq!(what.len(), 2);
    assert_eq!(live.between("<tr data-what=\"", "\""), Some("replayed"));
    let digest = live.between("<td><code>", "</code>").unwrap();
    assert_eq!(digest.len(), 8);
}

/// Another site's form has no cookie, and may not replace it.
#[test]
fn a_form_of_another_site_leaves_the_session_alone() {
    let shop = shop();
    let form = Request::new("POST", "/orders").form("token=x&quantity=1&card=tok_visa");
    let of = |site| form.clone().header("Sec-Fetch-Site", site);
    let own = of("same-origin").send(&shop.address);
    assert!(own.header("set-cookie").is_some());
    let foreign = of("cross-site").send(&shop.address);
    assert_eq!((foreign.status, foreign.header("set-cookie")), (403, None));
    assert_eq!(shop.sold(), (0, 0));
}
