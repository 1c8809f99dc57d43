//! The server: runs until it is stopped, then completes the calls under way.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::routes::routes;
use super::shop::Shop;

/// Time limits at the end: of open connections, then of running calls.
const PATIENCE: Duration = Duration::from_secs(15);

/// Serves the shop until SIGTERM or Ctrl-C.
pub async fn serve(listener: TcpListener, shop: Shop) -> Result<(), String> {
    let (stopping, mut stopped) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        let _ = stopping.send(true);
    });
    let mut asked = stopped.clone();
    let serving = axum::serve(listener, routes(shop.clone())).with_graceful_shutdown(async move {
        let _ = asked.wait_for(|stop| *stop).await;
    });
    let out_of_patience = async {
        let _ = stopped.wait_for(|stop| *stop).await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        served = serving.into_future() => served.map_err(|error| format!("cannot serve: {error}"))?,
        () = out_of_patience => {}
    }
    // An order may still be in progress after its visitor closed the connection.
    let ended = shop.engine.shutdown(PATIENCE).await;
    ended.map_err(|error| error.to_string())
}
