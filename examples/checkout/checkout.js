// A courtesy, and never the guarantee: the button is switched off while the form is on its way.
"use strict";

const form = document.getElementById("order-form");
const button = document.getElementById("buy");
const text = button.textContent;

function switchOn() {
  button.disabled = false;
  button.textContent = text;
}

form.addEventListener("submit", () => {
  button.disabled = true;
  button.textContent = "Ordering…";
  // Nobody is told when a visitor stops the page; and pressing it again costs nothing.
  setTimeout(switchOn, 5000);
});

// The back button may bring the page as it was left, with the button still switched off.
window.addEventListener("pageshow", switchOn);
