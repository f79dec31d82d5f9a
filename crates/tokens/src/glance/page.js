// Asks for /v1/fleet every two seconds and shows it, with what has changed since the page was opened.
// The secret stays in this page.

const EVERY_MS = 2000;
const MANY = 400; // backends of a group that are drawn small
const STATES = ["starting", "ready", "allocated", "draining"];
// A gateway writes its value at least once a minute.
const SILENT_S = 90;

let secret = brought();
let wanted = new URLSearchParams(location.search).get("player");
let before = null;
let isDown = false;

// Behind the `#` of the address. What cannot be read there is no secret.
function brought() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function filled(td, n, of) {
  td.classList.add("bar", "number");
  td.append(bar(of ? Math.min(1, n / of) : 0), element("span", count(n) + " of " + count(of), of && n >= of ? "bad" : ""));
  return td;
}

function table(id, heads, rows, empty) {
  const head = element("tr");
  for (const [text, className] of heads) head.append(element("th", text, className));
  if (!rows.length) rows.push(emptyRow(empty, heads.length));
  by(id).replaceChildren(head, ...rows);
}

// How long somebody has written nothing who should have; 0 where that is not long.
function silence(is, it) {
  const silent = is.now_unix_s - it.written;
  return silent > SILENT_S ? silent : 0;
}

function gateways(is) {
  const rows = is.gateways.map((it) => {
    const row = element("tr");
    const silent = silence(is, it);
    const [word, className] = it.draining ? ["draining", "warn"]
      : silent ? ["not heard for " + span(silent), "bad"] : ["serving", "good"];
    const listeners = it.listeners.map((at) => at.name + " " + at.protocol + " " + at.addresses.join(" ")
      + (at.epochs.length ? " (keys " + at.epochs.join(", ") + ")" : "")).join("; ");
    row.append(element("td", it.name), element("td", it.region), element("td", it.host), element("td", word, className),
      filled(element("td"), it.sessions, it.capacity), element("td", it.version), element("td", listeners));
    return row;
  });
  table("gateways", [["name"], ["region"], ["host"], ["state"], ["sessions", "number"], ["version"], ["listeners"]], rows, "no gateway");
}

// A fleet without agents has no word about them.
function agents(is) {
  const rows = is.agents.map((it) => {
    const row = element("tr");
    const silent = silence(is, it);
    const out = it.gateways.filter(([, isLetIn]) => !isLetIn).map(([name]) => name);
    const [word, className] = silent ? ["not heard for " + span(silent), "bad"]
      : !it.gateways.length ? ["no gateway", "bad"]
      : it.backends.length && out.length ? ["not let in by " + out.join(", "), "warn"] : ["serving", "good"];
    row.append(element("td", it.name), element("td", it.region), element("td", it.host), element("td", word, className),
      filled(element("td"), it.used, it.slots), element("td", it.version), element("td", it.gateways.map(([name]) => name).join(", ")),
      element("td", it.backends.join(", ")));
    return row;
  });
  by("hosts").hidden = !rows.length;
  table("agents", [["name"], ["region"], ["host"], ["state"], ["players", "number"], ["version"], ["gateways"], ["backends"]], rows, "no agent");
}

function cell(backend) {
  const [name, host, state, used, slots] = backend;
  const made = element("i", undefined, "s" + state);
  if (state === 1) {
    const full = (100 * (slots ? Math.min(1, used / slots) : 0)).toFixed(0) + "%";
    made.style.background = "linear-gradient(90deg, var(--full) " + full + ", var(--free) " + full + ")";
  }
  made.title = name + " at " + host + ", " + STATES[state] + ", " + count(used) + " of " + count(slots);
  return made;
}

function groups(is) {
  const made = Object.entries(is.groups).map(([name, group]) => {
    const box = element("div", undefined, "group");
    const head = element("p");
    const states = group.states.map((n, at) => n ? count(n) + " " + STATES[at] : "").filter(Boolean).join(", ");
    head.append(element("h3", name), element("span", count(group.used) + " players of " + count(group.slots) + " slots",
      group.slots && group.used >= group.slots ? "bad" : ""), element("span", states, "soft"));
    const cells = element("div", undefined, group.backends.length > MANY ? "cells many" : "cells");
    cells.append(...group.backends.map(cell));
    box.append(head, cells);
    return box;
  });
  by("groups").replaceChildren(...made.length ? made : [element("p", "no backend", "soft")]);
}

function keys(is) {
  const rows = is.keys.map((it) => {
    const row = element("tr");
    const [word, className] = it.minted ? ["current", "good"] : is.now_unix_s >= it.mint_until ? ["previous", ""] : ["next", ""];
    const left = Math.max(0, it.mint_until - is.now_unix_s);
    row.append(element("td", it.listener), element("td", String(it.number), "number"), element("td", word, className),
      element("td", String(it.confirmed), "number"), element("td", left ? span(left) : "over", "number"));
    return row;
  });
  table("keys", [["listener"], ["epoch", "number"], ["is"], ["gateways", "number"], ["minted for", "number"]], rows, "no key");
}

function tiles(is) {
  const sum = (list, of) => list.reduce((total, it) => total + of(it), 0);
  const all = Object.values(is.groups);
  const shown = [
    [is.gateways.length, "gateways"], [sum(is.gateways, (it) => it.sessions), "sessions"],
    [sum(all, (it) => it.backends.length), "backends"], [sum(all, (it) => it.slots - it.used), "slots without a player"],
    [is.services.length, "token services"], [is.slots_promised, "slots promised here"], [is.denied_clients, "denied clients"],
  ];
  if (is.agents.length) shown.splice(1, 0, [is.agents.length, "agents"]);
  by("tiles").replaceChildren(...shown.map(([n, word]) => {
    const tile = element("div", undefined, "tile");
    tile.append(element("b", count(n)), element("span", word));
    return tile;
  }));
}

// What has changed between two looks.
function compare(was, is) {
  const names = (list) => new Set(list.map((it) => it.name ?? it));
  const news = (what, old, now) => {
    for (const name of now) if (!old.has(name)) happened(what + " " + name + " has come", "good");
    for (const name of old) if (!now.has(name)) happened(what + " " + name + " is gone", "bad");
  };
  news("gateway", names(was.gateways), names(is.gateways));
  news("agent", names(was.agents), names(is.agents));
  news("token service", names(was.services), names(is.services));
  const backends = (of) => new Set(Object.values(of.groups).flatMap((it) => it.backends.map((backend) => backend[0])));
  const [old, now] = [backends(was), backends(is)];
  const [come, gone] = [[...now].filter((it) => !old.has(it)), [...old].filter((it) => !now.has(it))];
  const some = (list) => list.length > 5 ? list.length + " backends" : "backend " + list.join(", ");
  if (come.length) happened(some(come) + " registered", "good");
  if (gone.length) happened(some(gone) + " gone", "warn");
  for (const it of is.gateways) {
    const same = was.gateways.find((other) => other.name === it.name);
    if (same && same.draining !== it.draining) happened("gateway " + it.name + (it.draining ? " drains" : " serves again"), "warn");
  }
  const minted = (of) => new Set(of.keys.filter((it) => it.minted).map((it) => it.listener + " epoch " + it.number));
  for (const key of minted(is)) if (!minted(was).has(key)) happened("tokens are made with " + key, "good");
}

function head(is) {
  const trouble = [];
  if (is.doubt !== null) trouble.push("News of the fleet is held back: doubt " + is.doubt + ". Look, then confirm it (POST /v1/confirm).");
  if (is.away) trouble.push("etcd is away: this is the last that is known.");
  for (const [key, why] of is.unreadable) trouble.push(key + ": " + why + ".");
  const silent = [...is.gateways, ...is.agents].some((it) => silence(is, it));
  if (!is.gateways.length) trouble.push("There is no gateway.");
  if (is.doubt !== null) state("held back", "bad");
  else if (is.away) state("etcd is away", "bad");
  else if (trouble.length || silent) state("look", "warn");
  else state("well", "good");
  by("trouble").textContent = trouble.join(" ");
  by("trouble").hidden = !trouble.length;
  by("facts").textContent = ["told by " + is.service, location.host, "version " + is.version].join(" · ");
  document.title = count(is.gateways.reduce((sum, it) => sum + it.sessions, 0)) + " sessions · fleet";
}

function show(is) {
  if (before) compare(before, is);
  if (isDown) happened("the token service answers again", "good");
  isDown = false;
  before = is;
  by("door").hidden = true;
  by("main").hidden = false;
  head(is);
  tiles(is);
  groups(is);
  gateways(is);
  agents(is);
  keys(is);
  looked();
  seek();
}

function ask(why) {
  state("closed", "warn");
  by("door").hidden = false;
  by("main").hidden = true;
  if (why) by("refused").textContent = why;
}

async function look() {
  if (!secret) return ask();
  try {
    const headers = { Authorization: "Bearer " + secret };
    const answer = await fetch("/v1/fleet", { headers, cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (answer.status === 401 || answer.status === 403) {
      secret = "";
      return ask((await answer.json()).message);
    }
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    show(await answer.json());
  } catch (why) {
    if (!isDown) happened("the token service does not answer (" + why.message + ")", "bad");
    isDown = true;
    state("no answer", "bad");
  }
}

// Where a player is, as all gateways say.
async function find(id) {
  const headers = { Authorization: "Bearer " + secret, "Content-Type": "application/json" };
  const body = JSON.stringify({ client_id: id });
  const answer = await fetch("/v1/sessions", { method: "POST", headers, body, signal: AbortSignal.timeout(15000) });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.message);
  const rows = said.answers.filter((it) => it.status === 200).flatMap((it) => it.answer.sessions.map((at) => {
    const row = element("tr");
    row.append(element("td", it.gateway), element("td", at.backend), element("td", at.listener), element("td", at.address),
      element("td", span(Math.round(at.silent_ms / 1000)), "number"), element("td", at.session));
    return row;
  }));
  const silent = said.silent.map((it) => it.gateway).join(", ");
  by("said").textContent = (rows.length ? rows.length + " sessions" : "no session") + (silent ? "; not answered: " + silent : "");
  by("places").hidden = !rows.length;
  table("found", [["gateway"], ["backend"], ["listener"], ["address"], ["silent for", "number"], ["session"]], rows, "nobody");
}

// Whom the address names (`/fleet?player=42`), once.
function seek() {
  if (!wanted) return;
  by("player").value = wanted;
  wanted = null;
  by("finder").requestSubmit();
}

by("finder").addEventListener("submit", (event) => {
  event.preventDefault();
  by("said").textContent = "asking all gateways";
  by("places").hidden = true;
  find(by("player").value.trim()).catch((why) => { by("said").textContent = why.message; });
});
by("door").addEventListener("submit", (event) => {
  event.preventDefault();
  secret = by("secret").value.trim();
  by("secret").value = "";
  look();
});
watch(look, EVERY_MS);
