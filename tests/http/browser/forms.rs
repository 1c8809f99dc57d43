//! Story 5: forms that are refused, and pages that are the answer to a form. The text of the answers is tested in
//! `examples/tests/checkout/form.rs`.

use super::browser::Browser;
use super::shop::Shop;
use super::visitor::{arrive, buy, click, notice, order, pay_with, token, visitor};

async fn put_token(browser: &Browser, token: &str) {
    let put = "document.querySelector('#order-form [name=token]').value = arguments[0];";
    browser.execute(put, vec![token.into()]).await.unwrap();
}

#[tokio::test]
async fn a_form_that_is_refused_leaves_one_that_is_good() {
    let shop = Shop::start();
    let (owner, other) = tokio::join!(visitor(&shop), visitor(&shop));
    let (theirs, own) = (token(&owner).await, token(&other).await);
    assert_ne!(theirs, own);
    put_token(&other, &theirs).await;
    click(&other, "#buy").await;
    notice(&other, 403, "not one that the shop gave you").await;
    assert_eq!(token(&other).await, own, "their own form is before them");
    // Input of a visitor is text everywhere: a made-up card, which the bank cannot be queried for.
    let card = "\"><script>document.title = 'taken'</script>";
    let add = "const card = document.getElementById('card'); \
               card.options[0].value = arguments[0]; card.selectedIndex = 0;";
    other.execute(add, vec![card.into()]).await.unwrap();
    put_token(&other, card).await;
    click(&other, "#buy").await;
    notice(&other, 403, "not one that the shop gave you").await;
    assert_eq!(other.title().await.unwrap(), "Tea, 250 g");
    assert_eq!(shop.count("started"), 0);
    shop.assert_sold(0).await;

    pay_with(&other, "tok_visa").await;
    let bought = buy(&other).await;
    // Its worth to its owner has not changed.
    assert_ne!(buy(&owner).await, bought);
    shop.assert_sold(2).await;
    // Nor is the page of an order for any other visitor.
    let page = owner.current_url().await.unwrap();
    other.goto(page.as_str()).await.unwrap();
    other.wait_for_text("h1", "No such order").await;

    // A visitor whose cookies are gone gets a form that is good.
    arrive(&owner, shop.addr).await;
    owner.delete_all_cookies().await.unwrap();
    click(&owner, "#buy").await;
    notice(&owner, 403, "not one that the shop gave you").await;
    shop.assert_sold(2).await;
    buy(&owner).await;
    shop.assert_sold(3).await;
}

/// A reload sends the form again whose answer the page is.
#[tokio::test]
async fn a_reload_of_an_answer_gets_it_again_or_pays_at_last() {
    let shop = Shop::start();
    let visitor = visitor(&shop).await;
    let form = token(&visitor).await;
    pay_with(&visitor, "tok_chargeDeclined").await;
    click(&visitor, "#buy").await;
    notice(&visitor, 402, "The card was declined").await;
    let next = token(&visitor).await;
    assert_ne!(next, form);
    visitor.refresh().await.unwrap();
    notice(&visitor, 402, "The card was declined").await;
    assert_eq!(token(&visitor).await, next);
    assert_eq!(shop.calls(), (1, 1));
    shop.assert_sold(0).await;

    // The provider cannot be reached the first time.
    pay_with(&visitor, "tok_down").await;
    click(&visitor, "#buy").await;
    notice(&visitor, 503, "The payment provider cannot be reached").await;
    assert_eq!(token(&visitor).await, next, "the form stays good");
    visitor.refresh().await.unwrap();
    let first = order(&visitor).await;
    // Back is the page that the form led to.
    visitor.refresh().await.unwrap();
    assert_eq!(order(&visitor).await, first);
    assert_eq!((shop.count("released"), shop.calls()), (1, (2, 1)));
    shop.assert_sold(1).await;
}
