//! The terminal of an operator in one night: the guide's page `operator` shows it.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use idem_harness::TestDir;
use idem_runtime::Engine;
use idem_runtime::observe::TracingObserver;
use idem_runtime::store::sql::Sqlite;
use tracing_subscriber::fmt::MakeWriter;

use crate::filled::{PAY, PREFIX, PayError, Receipt, Site, receipt, sql};

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../idem-runtime/src/docs/operator.md"
);
const HEADING: &str = "## One night at the shell\n";
/// Writes the page anew.
const OVERWRITE: &str = "IDEM_TRANSCRIPT";

/// The service's log.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Finds a page that differs from the command's output.
#[tokio::test]
async fn the_guide_shows_what_an_operator_sees() {
    let dir = TestDir::new("night").unwrap();
    let url = format!("sqlite://{}", dir.path().join("records.db").display());
    let store = sql::<Sqlite>(url.clone()).await;
    let site = Site::new(url, Arc::new(store)).with(&[("IDEM_OPERATOR", "zoe")]);
    let engine = Engine::builder(Arc::clone(&site.store))
        .prefix(PREFIX)
        .instance("pay-7f9c")
        .observer(TracingObserver)
        .build()
        .unwrap();
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_writer(log.clone());
    let logged = tracing::subscriber::set_default(subscriber.finish());
    let pay = async |order: &str, bank: Result<Receipt, PayError>| {
        let call = engine
            .operation(PAY)
            .key(order)
            .label(&format_args!("order {order}"));
        let sent = call.run(|cx| async move {
            let _ = cx.derive_key("bank.charge");
            bank
        });
        sent.await
    };
    pay("o-6", Ok(receipt("r-6"))).await.unwrap();
    pay("o-7", Err(PayError::NoReply)).await.unwrap_err();
    drop(logged);

    let mut night = String::new();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    night.push_str("# The alarm: a line in the log of the service.\n");
    night.push_str(&log);
    let mut idem = |comment: &str, line: &str| {
        writeln!(night, "\n# {comment}\n$ idem {line}").unwrap();
        let consent = if line.starts_with("resolve") {
            " --yes"
        } else {
            ""
        };
        let ran = site.idem(format!("{line}{consent}"));
        night.push_str(&ran.out);
        night.push_str(&ran.err);
    };
    let key = format!("{PAY} --key '\"o-7\"'");
    idem("What else is unknown?", "ls --state unknown --oldest");
    idem("What happened to it?", &format!("why {key}"));
    let derived = format!("show {key} --derive bank.charge");
    idem("Under which key did the bank get it?", &derived);
    idem(
        "The bank's search finds the charge ch_81 under that key: it happened. The answer that callers get:",
        &format!(r#"resolve {key} --value '{{"id": "ch_81"}}'"#),
    );
    let value = r#"--value '{"number": "r-7", "cents": 1250}' --reason 'the bank has ch_81'"#;
    idem(
        "In the form of the function's value:",
        &format!("resolve {key} {value}"),
    );
    idem(
        "And for the colleague of the morning:",
        &format!("why {key}"),
    );
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(HEADING).expect("the page has the heading");
    let (text, rest) = rest.split_once("```text\n").expect("and a block");
    let (shown, rest) = rest.split_once("```\n").expect("which ends");
    if std::env::var(OVERWRITE).is_ok_and(|value| value == "overwrite") {
        std::fs::write(
            PAGE,
            format!("{before}{HEADING}{text}```text\n{night}```\n{rest}"),
        )
        .unwrap();
        return;
    }
    assert!(
        shape(shown) == shape(&night),
        "the page shows another terminal; {OVERWRITE}=overwrite writes it anew:\n{night}"
    );
}

/// The words of each line, without times, ids and tokens: they differ in each run.
fn shape(text: &str) -> Vec<Vec<String>> {
    let mut before = "";
    let mut word_of = |word| {
        let bare = str::trim_matches(word, [',', ':', ';', '(', ')']);
        let is_digit = |byte: u8| byte.is_ascii_digit() || b"-:.ms".contains(&byte);
        let is_number = bare.starts_with(|first: char| first.is_ascii_digit());
        let is_number = is_number && bare.bytes().all(is_digit);
        let is_token = before == "pid" || bare.len() == 16;
        let is_time = bare.ends_with('s') || bare.contains([':', '-']);
        before = bare;
        if is_number && (is_token || is_time) {
            word.replace(bare, "#")
        } else {
            word.to_owned()
        }
    };
    let lines = text.lines();
    lines
        .map(|line| line.split_whitespace().map(&mut word_of).collect())
        .collect()
}
