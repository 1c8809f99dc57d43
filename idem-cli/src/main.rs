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
mod table;
mod tally;
mod text;
mod why;

use std::process::ExitCode;

use clap::Parser as _;

use crate::arguments::{Arguments, Verb};
use crate::connect::Connected;
use crate::failure::Failure;
use crate::output::Output;

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

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let output = Output::new(arguments.json);
    let connected = match &arguments.verb {
        Verb::Doctor => return doctor::run(&arguments.connection, &output).await,
        _ => Connected::connect(&arguments.connection).await?,
    };
    let attempts = arguments.connection.max_attempts;
    let engine = connected.engine(&arguments.connection, arguments.verb.ttl())?;
    match arguments.verb {
        Verb::Doctor => unreachable!("it connects itself"),
        Verb::Ls(verb) => ls::run(&engine, &verb, attempts, &output).await,
        Verb::Show(verb) => {
            let has_digest_key = arguments.connection.digest_key_file.is_some();
            show::run(&engine, &verb, attempts, (&output, has_digest_key)).await
        }
        Verb::Why(verb) => why::run(&engine, &verb, attempts, &output).await,
        Verb::Stats(verb) => stats::run(&engine, &verb, attempts, &output).await,
        Verb::Release(verb) => settle::release(&engine, &verb, attempts, &output).await,
        Verb::Resolve(verb) => resolve::run(&engine, &verb, attempts, &output).await,
        Verb::Reset(verb) => settle::reset(&engine, &verb, attempts, &output).await,
        Verb::Purge(verb) => purge::run(&connected, &engine, &verb, &output).await,
    }
}
