use super::attribute;
use proc_macro2::TokenStream;

/// Compares tokens, so that golden files may be formatted and commented.
#[track_caller]
fn expands(args: &str, item: &str, golden: &str) {
    let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
    let spaceless = |tokens: &TokenStream| tokens.to_string().replace([' ', '\n'], "");
    let expanded = attribute(tokens(args), tokens(item));
    assert!(
        spaceless(&expanded) == spaceless(&tokens(golden)),
        "the expansion of `{args}` changed; it is now\n{expanded}"
    );
}

macro_rules! golden {
    ($($name:ident: $args:literal, $item:literal;)*) => {
        $(#[test]
        fn $name() {
            expands($args, $item, include_str!(concat!("../../golden/", stringify!($name), ".rs")));
        })*
    };
}

golden! {
    async_fn:
        r#"op = "payments.pay", key = (req.merchant, order), scope = "tenant-{tenant}", ttl = "24h",
           on_error = judge, on_duplicate = reject, on_running = wait("5s"), engine = engine"#,
        "pub async fn pay(order: u64, req: Pay, #[idem(skip)] tenant: &str, #[cfg(eu)] vat: u8,
           #[idem(skip)] engine: &Engine) -> Result<Receipt, PayError> { #![allow(unused)] go(req).await }";
    typical:
        r#"op = "payments.pay", key = req.order_no, ttl = "24h""#,
        "pub async fn pay(req: PayRequest) -> Result<Receipt, PayError> {
           let receipt = charge(&req).await?; Ok(receipt) }";
    entry:
        r#"op = "payments.pay", key = req.order_no, on_error = release, entry = pay_entry,
           label = redacted(&req.order_no, 4)"#,
        "#[expect(dead_code)] #[inline] pub async fn pay(mut req: PayRequest, #[idem(skip)] bank: &Bank)
           -> Result<Receipt, PayError> { bank.pay(req).await }";
    boxed_future:
        "",
        "fn pay<'life0, 'async_trait>(&'life0 self, id: u64)
           -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
           where 'life0: 'async_trait { Box::pin(async move { Ok(id) }) }";
    every_setting:
        r#"op = "payments.pay", scope = public, ttl = "7d", error_ttl = HOUR, lease = "10s", max_run = "15m",
           on_duplicate = replay, on_running = reject, on_cancel = unknown, on_panic = release,
           on_lease_lost = continue, on_unconfirmed = within_lease, on_outage = fail, on_other_type = accept,
           max_attempts = 7, count_errors = true, reconcile = bank.find(order), label = "order {order:>8}""#,
        "async fn pay(order: u64) -> Result<u64, PayError> { Ok(order) }";
    chosen_life:
        r#"op = "quotes.ask", key = pair, on_error = judge, ttl = ("7d", |quote| quote.valid_for)"#,
        "async fn ask(pair: Pair) -> Result<Quote, QuoteError> { rates(pair).await }";
    finished_and_reconciled:
        r#"op = "payments.pay", on_cancel = finish, max_attempts = unlimited, reconcile = Self::find"#,
        "fn pay<'async_trait>(self: Arc<Self>, id: u64, note: &'static str)
           -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
           { Box::pin(async move { Ok(id) }) }";
    in_tx:
        r#"op = "payments.pay", ttl = forever, error_ttl = forever, tx = tx"#,
        "async fn pay(order: u64, mut tx: &mut PgTransaction<'_>) -> Result<u64, PayError> { go(&mut tx).await }";
    boxed_in_tx:
        r#"op = "payments.pay", key = id, tx = tx"#,
        "fn pay<'life0, 'life1, 'async_trait>(&'life0 self, id: u64, #[idem(skip)] tx: &'life1 mut impl Sql)
           -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
           where 'life0: 'async_trait { Box::pin(async move { Ok(id) }) }";
}

/// Every use compiles the expansion, and its readers debug it.
#[test]
fn a_typical_expansion_is_short() {
    let golden = include_str!("../../golden/typical.rs");
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    assert!(
        golden.lines().all(|line| line.len() <= 100),
        "as rustfmt would lay it out"
    );
    assert!(golden.lines().filter(code).count() <= 40);
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
