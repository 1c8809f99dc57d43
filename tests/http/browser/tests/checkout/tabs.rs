//! Two tabs of one visitor.

use idem_tests_browser::Browser;
use idem_tests_browser::thirtyfour::WindowHandle;

use super::shop::Shop;
use super::visitor::{
    FAST, SLOW, arrive, begin, buy, click, element, notice, open_impatient, order, token,
};

/// Opens the shop in one more tab, and leaves the visitor there: the tabs.
async fn second_tab(browser: &Browser, shop: &Shop) -> (WindowHandle, WindowHandle) {
    let first = browser.window().await.unwrap();
    let second = browser.new_tab().await.unwrap();
    browser.switch_to_window(second.clone()).await.unwrap();
    arrive(browser, shop.addr).await;
    (first, second)
}

#[tokio::test]
async fn two_tabs_of_one_cart_that_submit_at_once_are_one_order() {
    let (shop, visitor) = open_impatient(SLOW).await;
    let form = token(&visitor).await;
    let (first, second) = second_tab(&visitor, &shop).await;
    assert_eq!(token(&visitor).await, form);
    begin(&visitor, &shop).await;
    visitor.switch_to_window(first).await.unwrap();
    click(&visitor, "#buy").await;
    assert_eq!(shop.calls(), (0, 0), "neither is answered");
    let here = order(&visitor).await;
    visitor.switch_to_window(second).await.unwrap();
    assert_eq!(order(&visitor).await, here);
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;
}

/// Changes the form in this tab, which is not sent yet.
async fn order_seven(browser: &Browser) {
    let quantity = element(browser, "#quantity").await;
    quantity.clear().await.unwrap();
    quantity.send_keys("7").await.unwrap();
}

#[tokio::test]
async fn a_tab_that_orders_something_else_is_shown_the_order() {
    let (shop, visitor) = open_impatient(FAST).await;
    let (first, _) = second_tab(&visitor, &shop).await;
    order_seven(&visitor).await;
    let bought = buy(&visitor).await;
    visitor.switch_to_window(first).await.unwrap();
    click(&visitor, "#buy").await;
    notice(&visitor, 422, "see your orders below").await;
    assert_eq!(visitor.text("#orders a").await, Some(bought));
    assert_eq!(shop.calls(), (1, 0));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_tab_that_orders_something_else_meanwhile_buys_nothing_more() {
    let (shop, visitor) = open_impatient(SLOW).await;
    let (first, second) = second_tab(&visitor, &shop).await;
    order_seven(&visitor).await;
    begin(&visitor, &shop).await;
    visitor.switch_to_window(first).await.unwrap();
    click(&visitor, "#buy").await;
    notice(&visitor, 422, "submitted before with something else").await;
    visitor.switch_to_window(second).await.unwrap();
    order(&visitor).await;
    assert_eq!(visitor.text("#order-quantity").await.as_deref(), Some("7"));
    shop.assert_sold(1).await;
}
