//! Story 3: two tabs of one visitor.

use thirtyfour::WindowHandle;

use super::browser::Browser;
use super::shop::Shop;
use super::visitor::{
    arrive, begin, buy, click, element, impatient_visitor, notice, order, repeat, token,
};

async fn open_in(browser: &Browser, tab: &WindowHandle, shop: &Shop) {
    browser.switch_to_window(tab.clone()).await.unwrap();
    arrive(browser, shop.addr).await;
}

/// Changes the form in this tab, which is not sent yet.
async fn order_seven(browser: &Browser) {
    let quantity = element(browser, "#quantity").await;
    quantity.clear().await.unwrap();
    quantity.send_keys("7").await.unwrap();
}

#[tokio::test]
async fn two_tabs_of_one_cart_are_one_order() {
    let mut shop = Shop::by_hand();
    let visitor = impatient_visitor(&shop).await;
    let first = visitor.window().await.unwrap();
    let second = visitor.new_tab().await.unwrap();
    let form = token(&visitor).await;
    open_in(&visitor, &second, &shop).await;
    assert_eq!(token(&visitor).await, form);

    // Submitted at once.
    begin(&visitor, &shop).await;
    visitor.switch_to_window(first.clone()).await.unwrap();
    repeat(&visitor, &mut shop).await;
    let here = order(&visitor).await;
    visitor.switch_to_window(second.clone()).await.unwrap();
    assert_eq!(order(&visitor).await, here);
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;

    // One orders something else while the other is paid.
    open_in(&visitor, &first, &shop).await;
    open_in(&visitor, &second, &shop).await;
    order_seven(&visitor).await;
    begin(&visitor, &shop).await;
    visitor.switch_to_window(first.clone()).await.unwrap();
    click(&visitor, "#buy").await;
    notice(&visitor, 422, "submitted before with something else").await;
    visitor.switch_to_window(second.clone()).await.unwrap();
    shop.pay();
    order(&visitor).await;
    assert_eq!(visitor.text("#order-quantity").await.as_deref(), Some("7"));
    shop.assert_sold(2).await;

    // One orders something else when the other is paid.
    open_in(&visitor, &first, &shop).await;
    open_in(&visitor, &second, &shop).await;
    order_seven(&visitor).await;
    shop.pay();
    let bought = buy(&visitor).await;
    visitor.switch_to_window(first).await.unwrap();
    click(&visitor, "#buy").await;
    notice(&visitor, 422, "see your orders below").await;
    assert_eq!(visitor.text("#orders a").await, Some(bought));
    assert_eq!(shop.calls(), (3, 1));
    shop.assert_sold(3).await;
}
