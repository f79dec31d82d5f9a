"use strict";
// What every page has. Everything is written as text nodes, because names come from others.

const EVENTS_MAX = 200;
const events = [];

const by = (id) => document.getElementById(id);
const count = (n) => Math.round(n).toLocaleString("en");
const span = (s) => s < 120 ? s + " s" : s < 7200 ? Math.floor(s / 60) + " min"
  : s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " days";

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// A bar in a cell of a table, as long as this share of it.
function bar(share) {
  const made = element("i");
  made.style.width = "calc((100% - 14px) * " + share.toFixed(3) + ")";
  return made;
}

// What a table says that has no rows.
function emptyRow(text, columns) {
  const row = element("tr");
  const cell = element("td", text, "soft");
  cell.colSpan = columns;
  row.append(cell);
  return row;
}

function happened(text, className) {
  events.unshift({ at: new Date(), text, className });
  events.length = Math.min(events.length, EVENTS_MAX);
  by("events").replaceChildren(...events.map((event) => {
    const item = element("li");
    item.append(element("time", event.at.toTimeString().slice(0, 8)), element("span", event.text, event.className));
    return item;
  }));
}

function state(text, className) {
  by("state").textContent = text;
  by("state").className = "pill " + className;
}

// Tests wait for looks.
function looked() {
  document.body.dataset.looks = +document.body.dataset.looks + 1;
}

// Looks again and again, while the page is in view.
async function watch(look, everyMs) {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((next) => setTimeout(next, everyMs));
  }
}
