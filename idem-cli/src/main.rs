//! The operator's command: inspects the records of a store, and settles them.
//!
//! `cargo install idem-cli`; the README shows each verb.

mod address;
mod arguments;
mod confirm;
mod connect;
mod doctor;
mod failure;
mod key;
mod ls;
mod output;
mod pace;
mod purge;
mod record;
mod resolve;
mod sample;
mod settle;
mod show;
mod state;
mod stats;
mod text;
mod why;

use std::process::ExitCode;

use clap::Parser as _;
use idem_runtime::Engine;
use idem_runtime::admin::Entries;

use crate::arguments::{Arguments, Verb};
use crate::connect::Connected;
use crate::failure::Failure;
use crate::pace::Pace;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run(arguments));
            // A connection that is being made may not end for long.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(Failure::store(format!("cannot start: {error}"))),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// What each verb works with.
struct Session {
    connected: Connected,
    engine: Engine,
    max_attempts: u16,
    has_digest_key: bool,
    json: bool,
}

impl Session {
    /// Lists records of an operation, or all, at this pace.
    fn entries(&self, operation: Option<&String>, pace: &Pace) -> Entries {
        let entries = self.engine.entries().page_size(1_000);
        let entries = entries.step_size(pace.step_size());
        match operation {
            Some(operation) => entries.operation(operation.clone()),
            None => entries,
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments {
        connection,
        json,
        verb,
    } = arguments;
    if let Verb::Doctor = verb {
        return doctor::run(&connection, json).await;
    }
    let ttl = match &verb {
        Verb::Resolve(verb) => verb.ttl,
        _ => None,
    };
    let connected = Connected::connect(&connection).await?;
    let session = Session {
        engine: connected.engine(&connection, ttl)?,
        connected,
        max_attempts: connection.max_attempts,
        has_digest_key: connection.digest_key_file.is_some(),
        json,
    };
    match verb {
        Verb::Doctor => unreachable!("it connects itself"),
        Verb::Ls(verb) => ls::run(&session, &verb).await,
        Verb::Show(verb) => show::run(&session, &verb).await,
        Verb::Why(verb) => why::run(&session, &verb).await,
        Verb::Stats(verb) => stats::run(&session, &verb).await,
        Verb::Release(verb) => settle::release(&session, &verb).await,
        Verb::Resolve(verb) => resolve::run(&session, &verb).await,
        Verb::Reset(verb) => settle::reset(&session, &verb).await,
        Verb::Purge(verb) => purge::run(&session, &verb).await,
    }?;
    Ok(ExitCode::SUCCESS)
}
