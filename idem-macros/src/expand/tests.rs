use super::attribute;
use proc_macro2::TokenStream;

/// Compares tokens, so that a golden file may be formatted and commented freely.
#[track_caller]
fn expands(args: &str, item: &str, golden: &str) {
    let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
    let spaceless = |tokens: &TokenStream| tokens.to_string().replace([' ', '\n'], "");
    let expanded = attribute(tokens(args), tokens(item));
    assert!(
        spaceless(&expanded) == spaceless(&tokens(golden)),
        "the expansion changed; it is now\n{expanded}"
    );
}

#[test]
fn an_async_fn_expands_as_documented() {
    expands(
        r#"op = "payments.pay", key = (req.merchant, order), scope = "tenant-{tenant}", ttl = "24h",
           on_error = judge, on_duplicate = reject, on_running = wait("5s"), engine = engine"#,
        "pub async fn pay(order: u64, req: Pay, #[idem(skip)] tenant: &str, #[cfg(eu)] vat: u8,
           #[idem(skip)] engine: &Engine) -> Result<Receipt, PayError> { #![allow(unused)] go(req).await }",
        include_str!("../../golden/async_fn.rs"),
    );
}

/// Application developers read the expansion when they debug, and every use compiles it.
#[test]
fn a_typical_expansion_is_short() {
    let golden = include_str!("../../golden/typical.rs");
    expands(
        r#"op = "payments.pay", key = req.order_no, ttl = "24h""#,
        "pub async fn pay(req: PayRequest) -> Result<Receipt, PayError> {
           let receipt = charge(&req).await?; Ok(receipt) }",
        golden,
    );
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    assert!(
        golden.lines().all(|line| line.len() <= 100),
        "as rustfmt would lay it out"
    );
    assert!(golden.lines().filter(code).count() <= 40);
}

#[test]
fn the_function_of_entry_follows_the_original() {
    expands(
        r#"op = "payments.pay", key = req.order_no, on_error = release, entry = pay_entry,
           label = redacted(&req.order_no, 4)"#,
        "#[expect(dead_code)] #[inline] pub async fn pay(mut req: PayRequest, #[idem(skip)] bank: &Bank)
           -> Result<Receipt, PayError> { bank.pay(req).await }",
        include_str!("../../golden/entry.rs"),
    );
}

#[test]
fn a_boxed_future_expands_as_documented() {
    expands(
        "",
        "fn pay<'life0, 'async_trait>(&'life0 self, id: u64)
           -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
           where 'life0: 'async_trait { Box::pin(async move { Ok(id) }) }",
        include_str!("../../golden/boxed_future.rs"),
    );
}

#[test]
fn every_setting_is_passed_on() {
    expands(
        r#"op = "payments.pay", scope = public, ttl = "7d", error_ttl = HOUR, lease = "10s", max_run = "15m",
           on_duplicate = replay, on_running = reject, on_cancel = unknown, on_panic = release,
           on_lease_lost = continue, on_unconfirmed = within_lease, on_outage = fail, on_other_type = accept,
           max_attempts = 7, count_errors = true, reconcile = bank.find(order), label = "order {order:>8}""#,
        "async fn pay(order: u64) -> Result<u64, PayError> { Ok(order) }",
        include_str!("../../golden/every_setting.rs"),
    );
}

#[test]
fn a_hook_borrows_the_compared_arguments() {
    expands(
        r#"op = "payments.pay", on_cancel = finish, max_attempts = unlimited, reconcile = Self::find"#,
        "fn pay<'async_trait>(self: Arc<Self>, id: u64, note: &'static str)
           -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
           { Box::pin(async move { Ok(id) }) }",
        include_str!("../../golden/finished_and_reconciled.rs"),
    );
}

#[test]
fn a_body_borrows_the_transaction_of_its_caller() {
    expands(
        r#"op = "payments.pay", ttl = forever, error_ttl = forever, tx = tx"#,
        "async fn pay(order: u64, mut tx: &mut PgTransaction<'_>) -> Result<u64, PayError> { go(&mut tx).await }",
        include_str!("../../golden/in_tx.rs"),
    );
}

#[test]
fn a_boxed_body_borrows_the_transaction() {
    expands(
        r#"op = "payments.pay", key = id, tx = tx"#,
        "fn pay<'life0, 'life1, 'async_trait>(&'life0 self, id: u64, #[idem(skip)] tx: &'life1 mut impl Sql)
           -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
           where 'life0: 'async_trait { Box::pin(async move { Ok(id) }) }",
        include_str!("../../golden/boxed_in_tx.rs"),
    );
}

#[test]
fn an_error_leaves_the_function_unchanged() {
    expands(
        "lease",
        "async fn pay(#[idem(skip)] id: u64) -> Result<u64, E> { #![allow(unused)] Ok(id) }",
        "::core::compile_error! { \"`lease` needs a value: `lease = ..`\" }
         async fn pay(id: u64) -> Result<u64, E> { #![allow(unused)] Ok(id) }",
    );
}
