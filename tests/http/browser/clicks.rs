//! Story 1: a form that is sent twice.

use std::time::Duration;

use thirtyfour::Key;

use super::browser::Browser;
use super::shop::Shop;
use super::visitor::{self, APART, arrive, element, order, unguard};

/// Two submissions in one go: the driver would wait for a page in between.
#[derive(Clone, Copy, Debug)]
enum Twice {
    Click,
    Enter,
}

/// Counts the submissions of the page, sent or not.
const COUNT: &str = "sessionStorage.submits = 0; \
    document.addEventListener('submit', () => sessionStorage.submits++);";

/// The script that switches the button off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Runs,
    Removed,
    NoScripts,
}

impl Twice {
    async fn by(self, browser: &Browser, apart: Duration) {
        match self {
            Self::Click => browser.click_twice("#buy", apart).await,
            Self::Enter => {
                let field = element(browser, "#quantity").await;
                let enter = || char::from(Key::Enter);
                let twice = browser
                    .action_chain_with_delay(None, Some(apart))
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
    let mut shop = Shop::by_hand();
    let (visitor, scriptless) =
        tokio::join!(visitor::visitor(&shop), Browser::without_javascript());
    let (mut orders, mut replays, mut submitted) = (0, 0, 0);
    for (browser, twice, guard) in [
        (&visitor, Twice::Click, Guard::Runs),
        (&visitor, Twice::Enter, Guard::Runs),
        (&visitor, Twice::Click, Guard::Removed),
        (&visitor, Twice::Enter, Guard::Removed),
        (&scriptless, Twice::Click, Guard::NoScripts),
    ] {
        arrive(browser, shop.addr).await;
        match guard {
            Guard::Runs => drop(browser.execute(COUNT, []).await.unwrap()),
            Guard::Removed => unguard(browser).await,
            Guard::NoScripts => {}
        }
        let (repeats, apart) = match guard {
            // A second click while the first is sent: Chromium gives up one of two submissions.
            Guard::Runs => (0, Duration::ZERO),
            Guard::Removed | Guard::NoScripts => (1, APART),
        };
        submitted += 1 + repeats;
        tokio::join!(
            twice.by(browser, apart),
            shop.pay_after("submitted", submitted)
        );
        order(browser).await;
        orders += 1;
        replays += repeats;
        let row = format!("sent twice unless the guard runs: {twice:?}, {guard:?}");
        if guard == Guard::Runs {
            let counted = browser.execute("return sessionStorage.submits", []).await;
            assert_eq!(counted.unwrap().json(), "1", "{row}");
        }
        assert_eq!(shop.calls(), (orders, replays), "{row}");
        assert_eq!(shop.count("started"), orders, "{row}");
        assert_eq!(shop.count("submitted"), submitted, "{row}");
        shop.assert_sold(orders).await;
    }
    // Chromium gives up the first before anything is sent, or after: it is one order either way.
    arrive(&visitor, shop.addr).await;
    unguard(&visitor).await;
    let sent = shop.pay_after("submitted", submitted + 1);
    let soon = Duration::from_millis(60);
    tokio::join!(Twice::Click.by(&visitor, soon), sent);
    order(&visitor).await;
    shop.assert_sold(orders + 1).await;
}
