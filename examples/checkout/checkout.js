// Courtesies, and never the guarantee: the total follows the quantity, and the button is switched off while the form is
// on its way.
"use strict";

const form = document.getElementById("order-form");
const button = document.getElementById("buy");
const text = button.textContent;
const quantity = document.getElementById("quantity");
const total = document.getElementById("total");

// Without this script there is no total, rather than one that stays as it was.
function addUp() {
  const cents = quantity.validity.valid ? quantity.valueAsNumber * total.dataset.price : NaN;
  total.value = Number.isInteger(cents) ? `${(cents / 100).toFixed(2)} €` : "–";
  document.getElementById("sum").hidden = false;
}

function switchOn() {
  button.disabled = false;
  button.textContent = text;
}

quantity.addEventListener("input", addUp);

form.addEventListener("submit", () => {
  button.disabled = true;
  button.textContent = "Ordering…";
  // A page gets no event when its visitor stops it, and a repeat costs nothing.
  setTimeout(switchOn, 5000);
});

// The back button may bring the page as it was left, with the button still switched off and another quantity.
window.addEventListener("pageshow", () => {
  switchOn();
  addUp();
});
