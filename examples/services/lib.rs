//! One function, [`bank::transfer`], on frameworks without a layer of idem: the attribute needs none.

pub mod actix_web;
pub mod bank;
pub mod client;
mod exchange;
pub mod mcp;
pub mod poem;
pub mod rocket;
pub mod salvo;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread;

use self::bank::Bank;

/// What serves the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are names")]
pub enum Service {
    ActixWeb,
    Mcp,
    Poem,
    Rocket,
    Salvo,
}

impl Service {
    /// The web frameworks.
    pub const FRAMEWORKS: [Self; 4] = [Self::ActixWeb, Self::Poem, Self::Rocket, Self::Salvo];

    /// The service of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "actix-web" => Some(Self::ActixWeb),
            "mcp" => Some(Self::Mcp),
            "poem" => Some(Self::Poem),
            "rocket" => Some(Self::Rocket),
            "salvo" => Some(Self::Salvo),
            _ => None,
        }
    }

    /// Serves the bank on loopback during the whole process. Returns its address.
    ///
    /// # Errors
    ///
    /// Those of the start.
    pub fn start(self, bank: Arc<Bank>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let (sender, address) = mpsc::channel();
        if self != Self::Rocket {
            let _ = sender.send(listener.local_addr()?);
        }
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        thread::spawn(move || {
            runtime.block_on(async {
                match self {
                    Self::ActixWeb => actix_web::serve(listener, bank).await,
                    Self::Mcp => mcp::serve(listener, bank).await,
                    Self::Poem => poem::serve(listener, bank).await,
                    Self::Rocket => rocket::serve(sender, bank).await.map_err(io::Error::other),
                    Self::Salvo => salvo::serve(listener, bank).await,
                }
            })
        });
        address.recv().map_err(io::Error::other)
    }
}
