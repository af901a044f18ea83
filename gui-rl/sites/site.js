// What pages of tasks share: they keep their state with the server of the sites, before an event has ended.
"use strict";

function exchange(change) {
  const request = new XMLHttpRequest();
  request.open(change ? "POST" : "GET", "/_/state", false);
  request.send(change ? JSON.stringify(change) : null);
  return JSON.parse(request.responseText);
}
const load = () => exchange(null);
const set = (name, value) => exchange({ set: { [name]: value } });
const add = (name, value) => exchange({ add: { [name]: value } });
const label = (one) => (one.dataset.name ?? (one.labels && one.labels[0] ? one.labels[0] : one).textContent).trim();

// Keeps what is done with the widgets of a page that was made from a description.
function keepWidgets() {
  const all = (what) => [...document.querySelectorAll(what)];
  all("button").forEach((one) => one.addEventListener("click", () => add("pressed", label(one))));
  all("a").forEach((one) => one.addEventListener("click", () => add("opened", label(one))));
  all("input[type=radio]").forEach((one) => one.addEventListener("change", () => set("chosen", label(one))));
  all("input[type=checkbox]").forEach((one) =>
    one.addEventListener("change", () => set("ticked", all("input[type=checkbox]:checked").map(label).sort())));
  all("input:not([type])").forEach((one) =>
    one.addEventListener("input", () => set("written", { ...load().written, [label(one)]: one.value })));
}

// A button that does something.
function button(text, action) {
  const made = document.createElement("button");
  made.textContent = text;
  made.onclick = action;
  return made;
}

// Adds what a form says to the list `name` when it is sent, unless `wrong` finds something to complain of.
function keepForm(name, wrong) {
  const form = document.forms[0];
  form.onsubmit = (event) => {
    event.preventDefault();
    const said = {};
    for (const field of form.querySelectorAll("input, textarea")) {
      if (field.type === "radio") said[field.name] = field.checked ? field.value : (said[field.name] ?? "");
      else said[field.name] = field.type === "checkbox" ? field.checked : field.value;
    }
    const complaint = wrong(said);
    document.querySelector("[role=status]").textContent = complaint || "Thank you";
    if (!complaint) add(name, said);
  };
}

// What the shop sells: name, price, description.
const GOODS = {
  kettle: ["Kettle", 310, "Holds one litre."], lamp: ["Lamp", 480, "Bright and green."], mug: ["Mug", 90, "Blue."],
  plate: ["Plate", 120, "White."], clock: ["Clock", 260, "Very quiet."],
};
