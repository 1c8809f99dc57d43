//! The program `idem-conformance`: prints the table of a specification for a running server.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use idem_conformance::http::{Operation, Specification, Target, check};

/// Tests a server against the sentences of a specification that concern idempotency.
///
/// An operation is a method, a path and, if it has one, a body of JSON: 'POST /orders {"quantity": {number}}'. Each {number} is
/// replaced by a number that no other request has. The server takes some dozens of requests for real.
///
/// Exit codes: 0, no row failed but those of `--allow`; 1, a row failed; 2, wrong arguments, or a server that does not
/// answer the operation with 2xx.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[arg(help = "draft, stripe_v1, stripe_v2, acp, ucp, x402, iceberg_rest")]
    specification: Specification,
    /// The address of the server
    address: Uri,
    /// An operation with keys that has an effect and answers with 2xx
    #[arg(long, short)]
    operation: Operation,
    /// A header of every request: 'authorization: Bearer one'
    #[arg(long = "header", short = 'H', value_parser = header, value_name = "HEADER")]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// A header of another caller, in place of those of `--header`
    #[arg(long = "other-header", value_parser = header, value_name = "HEADER")]
    other_headers: Vec<(HeaderName, HeaderValue)>,
    /// The content type of all bodies, in place of that of JSON
    #[arg(long)]
    content_type: Option<HeaderValue>,
    /// A further operation, of another method
    #[arg(long, value_name = "OPERATION")]
    also: Vec<Operation>,
    /// An operation at another path
    #[arg(long, value_name = "OPERATION")]
    elsewhere: Option<Operation>,
    /// An operation that takes a few seconds
    #[arg(long, value_name = "OPERATION")]
    slow: Option<Operation>,
    /// An operation whose response is a stream that takes a few seconds
    #[arg(long, value_name = "OPERATION")]
    streamed: Option<Operation>,
    /// An operation that is done and answers with 4xx
    #[arg(long, value_name = "OPERATION")]
    rejected: Option<Operation>,
    /// The operation with parameters that it refuses with 4xx before any effect
    #[arg(long, value_name = "OPERATION")]
    invalid: Option<Operation>,
    /// An operation that answers with 5xx, each time with another body
    #[arg(long, value_name = "OPERATION")]
    failing: Option<Operation>,
    /// A request whose response has the number of effects, or their list: 'GET /orders'
    #[arg(long, value_name = "OPERATION")]
    effects: Option<Operation>,
    /// The place of that number: a JSON pointer, such as '/total'
    #[arg(long, value_name = "POINTER", default_value = "", requires = "effects")]
    effects_at: String,
    /// The configuration of an Iceberg catalog: 'GET /v1/config'
    #[arg(long, value_name = "OPERATION")]
    config: Option<Operation>,
    /// The payment of x402: a JSON object, with {number} where each payment differs
    #[arg(long, value_name = "JSON")]
    payment: Option<String>,
    /// Seconds that a request may take
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    patience: u64,
    /// The name of a row whose failure is expected
    #[arg(long = "allow", value_name = "ROW")]
    allowed: Vec<String>,
    /// Prints Markdown
    #[arg(long)]
    markdown: bool,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parts = text
        .split_once(':')
        .and_then(|(name, value)| Some((name.trim().parse().ok()?, value.trim().parse().ok()?)));
    parts.ok_or_else(|| "a header is a name, a colon and a value".to_owned())
}

impl Arguments {
    fn target(&self) -> Target {
        let typed = |operation: &Operation| match &self.content_type {
            Some(content_type) => operation.clone().header(CONTENT_TYPE, content_type.clone()),
            None => operation.clone(),
        };
        let mut target = Target::new(self.address.clone(), typed(&self.operation))
            .caller(HeaderMap::from_iter(self.headers.clone()))
            .patience(Duration::from_secs(self.patience));
        if !self.other_headers.is_empty() {
            target = target.other_caller(HeaderMap::from_iter(self.other_headers.clone()));
        }
        for operation in &self.also {
            target = target.also(typed(operation));
        }
        let set = |operation: &Option<Operation>, target, set: fn(Target, Operation) -> Target| {
            match operation {
                Some(operation) => set(target, typed(operation)),
                None => target,
            }
        };
        target = set(&self.elsewhere, target, Target::elsewhere);
        target = set(&self.slow, target, Target::slow);
        target = set(&self.streamed, target, Target::streamed);
        target = set(&self.rejected, target, Target::rejected);
        target = set(&self.invalid, target, Target::invalid);
        target = set(&self.failing, target, Target::failing);
        target = set(&self.config, target, Target::config);
        if let Some(effects) = &self.effects {
            target = target.effects(typed(effects), self.effects_at.clone());
        }
        if let Some(payment) = &self.payment {
            target = target.payment(payment.clone());
        }
        target
    }
}

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let report = match check(arguments.specification, &arguments.target()).await {
        Ok(report) => report,
        Err(unusable) => {
            eprintln!("{unusable}");
            return ExitCode::from(2);
        }
    };
    if arguments.markdown {
        print!("{}", report.to_markdown());
    } else {
        println!("{report}");
    }
    let failed = report.failed();
    let unexpected = failed
        .iter()
        .any(|row| !arguments.allowed.iter().any(|name| name == row));
    ExitCode::from(u8::from(unexpected))
}
