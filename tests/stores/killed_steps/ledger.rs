//! The other side: it counts the effects of each step, and recognises nothing.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The processes that had an effect, by key and step, in their order.
pub(crate) type Effects = BTreeMap<(String, String), Vec<usize>>;

#[derive(Debug)]
pub(crate) struct Ledger {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pages: Mutex<Pages>,
    served: Condvar,
}

#[derive(Debug, Default)]
struct Pages {
    effects: Effects,
    /// The number of connections that are not served yet.
    open: usize,
}

impl Ledger {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let addr = listener.local_addr().expect("it listens");
        let shared: Arc<Shared> = Arc::default();
        let ledger = Self {
            addr,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                shared.pages().open += 1;
                thread::spawn(move || shared.serve(client));
            }
        });
        ledger
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn effects(&self) -> Effects {
        self.shared.pages().effects.clone()
    }

    /// Waits until all requests are served that were sent before: those of a killed process, too.
    pub(crate) fn settle(&self) {
        // Connections are accepted in their order, and this one is the last.
        let last = TcpStream::connect(self.addr).expect("it listens");
        let asked = writeln!(&last, "? - -").and_then(|()| {
            let mut answer = String::new();
            BufReader::new(&last).read_line(&mut answer)
        });
        asked.expect("it answers");
        let mut pages = self.shared.pages();
        while pages.open > 0 {
            let woken = self.shared.served.wait(pages);
            pages = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers `<process> <key> <step>`, an effect, and `? <key> <step>`, a question, with the number of effects.
    fn serve(&self, mut client: TcpStream) {
        let mut request = String::new();
        let read = BufReader::new(&client).read_line(&mut request);
        let words: Vec<_> = request.split_whitespace().collect();
        let mut pages = self.pages();
        // A killed process may not have sent all of it.
        let is_whole = read.is_ok() && request.ends_with('\n');
        if let (true, [process, key, step]) = (is_whole, &words[..]) {
            let step = ((*key).to_owned(), (*step).to_owned());
            if *process != "?" {
                let process = process.parse().expect("the number of a process");
                let had = pages.effects.entry(step.clone()).or_default();
                had.push(process);
            }
            let count = pages.effects.get(&step).map_or(0, Vec::len);
            // The process may be gone.
            drop(writeln!(client, "{count}"));
        }
        pages.open -= 1;
        self.served.notify_all();
    }
}
