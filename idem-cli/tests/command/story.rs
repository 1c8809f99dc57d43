//! Reads `stories.txt`: calls, and the commands of operators with their output.

use std::collections::HashMap;

use idem_runtime::claim::Acquired;
use idem_runtime::step;
use idem_runtime::store::RecordKey;
use idem_runtime::store::author::{CompleteReply, Header};
use serde_json::Value;

use crate::command::{Ran, words};
use crate::filled::{PayError, Site, engine, receipt};

/// A story, with the claims of its processes by operation and key.
pub(crate) struct Story<'a> {
    pub(crate) site: &'a Site,
    pub(crate) held: HashMap<[String; 2], Acquired>,
    pub(crate) abandoned: HashMap<[String; 2], (RecordKey, Header)>,
}

impl Story<'_> {
    pub(crate) async fn tell(&mut self, text: &str) {
        let text = text.replace("$PID", &std::process::id().to_string());
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut lines = lines.peekable();
        while let Some(line) = lines.next() {
            if let Some(call) = line.strip_prefix("> ") {
                self.call(call).await;
                continue;
            }
            let command = line.strip_prefix("$ ").expect("a call or a command");
            let mut output = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with(['>', '$'])) {
                output.push(line);
            }
            check(self.site.idem(command), &output);
        }
    }

    async fn call(&mut self, line: &str) {
        let (call, answer) = match line.split_once(" -> ") {
            Some((call, answer)) => (call, Some(answer)),
            None => (line, None),
        };
        let words = words(call);
        let [verb, operation, key, rest @ ..] = &words[..] else {
            panic!("{line}");
        };
        let (site, of) = (self.site, [operation.clone(), key.clone()]);
        let elsewhere = engine(&site.store);
        let engine = match &**verb {
            "elsewhere" => &elsewhere,
            _ => &site.engine,
        };
        let call = engine.operation(operation.clone());
        let call = match key.split_once(',') {
            Some((merchant, number)) => call.key(&(merchant, number.parse::<u32>().unwrap())),
            None => call.key(&**key),
        };
        let end = match rest.last().map_or("", String::as_str) {
            "NoReply" => Err(PayError::NoReply),
            "Down" => Err(PayError::Down),
            number => Ok(receipt(number)),
        };
        let ended = match &**verb {
            "pay" | "elsewhere" => call.run(|_| async { end }).await,
            "labelled" => call.label(&rest[0]).run(|_| async { end }).await,
            "order" => {
                let order = call.run(|_| async {
                    let mailed = step("mail", async |_| Ok::<_, PayError>(receipt("mail")));
                    mailed.await?;
                    step("charge", async |_| end).await
                });
                order.await
            }
            "abandon" => {
                let abandoned = site.abandon(operation, key).await;
                self.abandoned.insert(of, abandoned);
                return;
            }
            "late" => {
                let (key, header) = &self.abandoned[&of];
                let answer = serde_json::to_vec(&end.unwrap()).unwrap();
                let late = [&header.encode()[..], &answer].concat();
                let reply = site.store.complete(key, None, &late.into()).await.unwrap();
                assert_eq!(reply, CompleteReply::Stored { late: true });
                return;
            }
            "hold" => {
                self.held.insert(of, call.begin().await.unwrap());
                return;
            }
            "drop" => {
                drop(self.held.remove(&of).unwrap());
                return;
            }
            _ => panic!("{line}"),
        };
        let ended = match ended {
            Ok(receipt) => receipt.number,
            Err(PayError::Idem(_)) => "refused".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        assert_eq!(answer.unwrap_or(&ended), ended, "{line}");
    }
}

/// Asserts the lines below a command.
fn check(ran: Ran, lines: &[&str]) {
    let is_refused = lines.iter().any(|line| line.starts_with('!'));
    let (code, seen) = (ran.code.to_string(), format!("{ran:?}"));
    let text = if is_refused { ran.err } else { ran.done() };
    let mut rest = &*text;
    for line in lines {
        let (mark, part) = line.split_once(' ').unwrap();
        let (first, last) = part.split_once(' ').unwrap_or_default();
        match mark {
            "!" => assert!(code == first && text.contains(last), "{line}: {seen}"),
            "~" => {
                let place = rest.find(part).unwrap_or_else(|| panic!("{line}: {text}"));
                rest = &rest[place + part.len()..];
            }
            "*" => {
                let times = text.matches(last).count().to_string();
                assert_eq!(times, first, "{line}: {text}");
            }
            "=" => {
                let document: Value = serde_json::from_str(&text).unwrap();
                let member: Value = serde_json::from_str(last).unwrap();
                assert_eq!(document.pointer(first), Some(&member), "{line}: {text}");
            }
            _ => panic!("{line}"),
        }
    }
}
