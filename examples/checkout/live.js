"use strict";

async function refresh() {
  try {
    const response = await fetch("/live/rows", { cache: "no-store" });
    // Every text in it was escaped by the server.
    if (response.ok) document.getElementById("live").innerHTML = await response.text();
  } catch {
    // The shop is closed; the next look may find it open.
  }
  setTimeout(refresh, 1000);
}

setTimeout(refresh, 1000);
