//! Forms that are not good here, or not any more.

use std::time::{Duration, Instant};

use idem_harness::HANG_LIMIT;
use idem_tests_browser::Browser;

use super::shop::Shop;
use super::visitor::{FAST, buy, click, notice, open, token, visitor};

/// Puts another token into the form.
async fn put_token(browser: &Browser, token: &str) {
    let put = "document.querySelector('#order-form [name=token]').value = arguments[0];";
    browser.execute(put, vec![token.into()]).await.unwrap();
}

#[tokio::test]
async fn a_form_of_another_visitor_orders_nothing() {
    let shop = Shop::start(FAST);
    let (owner, other) = tokio::join!(visitor(&shop), visitor(&shop));
    let (theirs, own) = (token(&owner).await, token(&other).await);
    assert_ne!(theirs, own);
    put_token(&other, &theirs).await;
    click(&other, "#buy").await;
    notice(&other, 403, "not one that the shop gave you").await;
    shop.assert_sold(0).await;
    assert_eq!(shop.count("started"), 0);

    assert_eq!(token(&other).await, own, "their own form is before them");
    let bought = buy(&other).await;
    // Its worth to its owner has not changed.
    assert_ne!(buy(&owner).await, bought);
    shop.assert_sold(2).await;

    // Nor is the page of an order for any other visitor.
    let page = owner.current_url().await.unwrap();
    other.goto(page.as_str()).await.unwrap();
    other.wait_for_text("h1", "No such order").await;
}

#[tokio::test]
async fn a_visitor_whose_cookies_are_gone_gets_a_form_that_is_good() {
    let (shop, visitor) = open(FAST).await;
    visitor.delete_all_cookies().await.unwrap();
    click(&visitor, "#buy").await;
    notice(&visitor, 403, "not one that the shop gave you").await;
    shop.assert_sold(0).await;
    buy(&visitor).await;
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_form_that_was_open_for_too_long_is_replaced_by_one_that_is_good() {
    let mut shop = Shop::start_with(FAST, &["--life", "3"]);
    let visitor = visitor(&shop).await;
    let form = token(&visitor).await;
    let next = another_form(&visitor, &form).await;
    // From now on forms live as long as a busy machine may take, when that one has ended.
    shop.kill9();
    shop.restart_with(&["--life", "300"]);
    another_form(&visitor, &next).await;
    click(&visitor, "#buy").await;
    notice(&visitor, 403, "open for too long").await;
    shop.assert_sold(0).await;
    assert_ne!(token(&visitor).await, form);
    buy(&visitor).await;
    assert_eq!(shop.calls(), (1, 0));
    shop.assert_sold(1).await;
}

/// Waits until the cart has another form, and returns its token. The page stays as it is.
async fn another_form(browser: &Browser, form: &str) -> String {
    let look = "window.page = ''; const look = async () => { \
                try { window.page = await (await fetch('/', { cache: 'no-store' })).text(); } catch {} \
                setTimeout(look, 100); }; look();";
    browser.execute(look, []).await.unwrap();
    let begun = Instant::now();
    loop {
        let page = browser.execute("return window.page;", []).await.unwrap();
        let page: String = page.convert().unwrap();
        let after = page.split_once("name=\"token\" value=\"");
        let found = after.and_then(|(_, rest)| rest.split_once('"'));
        if let Some((token, _)) = found
            && token != form
        {
            return token.to_owned();
        }
        assert!(begun.elapsed() < HANG_LIMIT, "it does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn input_of_a_visitor_is_text_everywhere() {
    let (shop, visitor) = open(FAST).await;
    // A made-up card, which the bank cannot be queried for.
    let card = "\"><script>document.title = 'taken'</script>";
    let add = "const card = document.getElementById('card'); \
               card.options[0].value = arguments[0]; card.selectedIndex = 0;";
    visitor.execute(add, vec![card.into()]).await.unwrap();
    put_token(&visitor, card).await;
    click(&visitor, "#buy").await;
    notice(&visitor, 403, "not one that the shop gave you").await;
    assert_eq!(visitor.title().await.unwrap(), "Tea, 250 g");
    shop.assert_sold(0).await;
}
