// A courtesy, and never the guarantee: the button is switched off while the form is on its way.
"use strict";

const form = document.getElementById("order-form");
const button = document.getElementById("buy");

form.addEventListener("submit", () => {
  button.disabled = true;
  button.textContent = "Ordering…";
});

// The back button may bring the page as it was left, with the button still switched off.
window.addEventListener("pageshow", () => {
  button.disabled = false;
  button.textContent = "Order and pay";
});
