//! Story 1: a form that is sent twice.

use std::time::Duration;

use thirtyfour::Key;

use super::browser::Browser;
use super::shop::Shop;
use super::visitor::{self, APART, SLOW, arrive, element, order, unguard};

/// Two submissions in one go: the driver would wait for a page in between.
#[derive(Clone, Copy, Debug)]
enum Twice {
    Click(Duration),
    Enter,
}

/// The script that switches the button off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Runs,
    Removed,
    NoScripts,
}

impl Twice {
    async fn by(self, browser: &Browser) {
        match self {
            Self::Click(apart) => browser.click_twice("#buy", apart).await,
            Self::Enter => {
                let field = element(browser, "#quantity").await;
                let enter = || char::from(Key::Enter);
                let twice = browser
                    .action_chain_with_delay(None, Some(APART))
                    .click_element(&field)
                    .key_down(enter())
                    .key_up(enter())
                    .move_by_offset(0, 0)
                    .key_down(enter())
                    .key_up(enter());
                twice.perform().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_form_that_is_sent_twice_is_one_order() {
    let shop = Shop::start(SLOW);
    let (visitor, scriptless) =
        tokio::join!(visitor::visitor(&shop), Browser::without_javascript());
    let (mut orders, mut replays) = (0, 0);
    for (browser, twice, guard) in [
        (&visitor, Twice::Click(APART), Guard::Runs),
        (&visitor, Twice::Enter, Guard::Runs),
        (&visitor, Twice::Click(APART), Guard::Removed),
        (&visitor, Twice::Enter, Guard::Removed),
        (&scriptless, Twice::Click(APART), Guard::NoScripts),
    ] {
        arrive(browser, shop.addr).await;
        if guard == Guard::Removed {
            unguard(browser).await;
        }
        twice.by(browser).await;
        order(browser).await;
        orders += 1;
        replays += i64::from(guard != Guard::Runs);
        let row = format!("sent twice unless the guard runs: {twice:?}, {guard:?}");
        assert_eq!(shop.calls(), (orders, replays), "{row}");
        assert_eq!(shop.count("started"), orders, "{row}");
        shop.assert_sold(orders).await;
    }
    // Chromium gives up the first before anything is sent, or after: it is one order either way.
    arrive(&visitor, shop.addr).await;
    unguard(&visitor).await;
    Twice::Click(Duration::from_millis(60)).by(&visitor).await;
    order(&visitor).await;
    shop.assert_sold(orders + 1).await;
}
