// Asks for /status once a second and shows it, with what has changed since the page was opened.

const EVERY_MS = 1000;
const KEEP = 900; // looks
const SVG = "http://www.w3.org/2000/svg";

const looks = []; // one point for each look; null where there is no rate
let before = null; // the look before this one
let isDown = false;
let stage = null;

// Numbers as people read them.
const short = (n) => n >= 1e9 ? (n / 1e9).toPrecision(3) + " G" : n >= 1e6 ? (n / 1e6).toPrecision(3) + " M"
  : n >= 1e5 ? (n / 1e3).toPrecision(3) + " k" : count(n);
const bits = (n) => n >= 1e9 ? (n / 1e9).toPrecision(3) + " Gbit/s" : n >= 1e6 ? (n / 1e6).toPrecision(3) + " Mbit/s"
  : n >= 1e3 ? (n / 1e3).toPrecision(3) + " kbit/s" : count(n) + " bit/s";
const time = (ns) => ns >= 1e9 ? (ns / 1e9).toPrecision(3) + " s" : ns >= 1e6 ? (ns / 1e6).toPrecision(3) + " ms"
  : ns >= 1e3 ? (ns / 1e3).toPrecision(3) + " µs" : Math.round(ns) + " ns";

// A table: heads are words, or { text, word: true } for columns of words.
function table(id, heads, rows, empty) {
  const head = element("tr");
  for (const it of heads) head.append(element("th", it.text ?? it, it.word ? "word" : ""));
  const made = rows.map((cells) => {
    const row = element("tr");
    cells.forEach((cell, at) => {
      const it = cell !== null && typeof cell === "object" ? cell : { text: cell };
      const td = element("td", undefined, [it.className, heads[at].word ? "word" : ""].join(" ").trim());
      if (it.share !== undefined) {
        td.append(bar(it.share));
        td.classList.add("bar");
      }
      td.append(element("span", it.text));
      row.append(td);
    });
    return row;
  });
  if (!made.length) made.push(emptyRow(empty, heads.length));
  by(id).replaceChildren(head, ...made);
}

// What has changed between two looks at the same gateway.
function compare(was, is) {
  if (was.incarnation !== is.incarnation) {
    happened("the gateway was started anew (process " + is.pid + ", version " + is.version + ")", "bad");
    return;
  }
  if (was.state !== is.state) happened("the gateway is " + is.state, is.state === "serving" ? "good" : "bad");
  if (was.ready !== is.ready) {
    happened(is.ready ? "the gateway is ready" : "not ready: " + is.not_ready_because, is.ready ? "good" : "bad");
  }
  if (was.config.reloads !== is.config.reloads) happened("the config was read again", "good");
  if (was.config.reloads_refused !== is.config.reloads_refused) {
    happened("the config was read again and refused; the log says why", "bad");
  }
  const known = new Map(was.backends.map((it) => [it.name, it]));
  for (const backend of is.backends) {
    const old = known.get(backend.name);
    known.delete(backend.name);
    if (!old) happened("backend " + backend.name + " is new");
    else if (old.up !== backend.up) {
      happened("backend " + backend.name + (backend.up ? " is up" : " is down, with " + old.players + " players"),
        backend.up ? "good" : "bad");
    } else if (!old.retired && backend.retired) happened("backend " + backend.name + " is retired");
    else if (old.drained !== backend.drained) {
      happened("backend " + backend.name + (backend.drained ? " is drained: it gets no new players" : " gets new players again"));
    }
  }
  for (const name of known.keys()) happened("backend " + name + " is gone");
  const place = (it) => it.name + " " + it.addresses.join(" ");
  const listeners = new Map(was.listeners.map((it) => [place(it), it]));
  for (const listener of is.listeners) {
    const old = listeners.get(place(listener));
    listeners.delete(place(listener));
    if (!old) happened("listener " + listener.name + " is new");
    else if (old.state !== listener.state) {
      happened("listener " + listener.name + (listener.state === "draining" ? " was removed and drains" : " is back"));
    }
    const isFull = (it) => it.sessions >= it.sessions_max;
    if (old && isFull(old) !== isFull(listener)) {
      happened("listener " + listener.name + (isFull(listener) ? " is full" : " has room again"),
        isFull(listener) ? "bad" : "good");
    }
  }
  const rules = (it) => it.denied.ipv4 + it.denied.ipv6 + it.denied.clients;
  if (rules(was) !== rules(is)) happened(count(rules(is)) + " prefixes and client ids are denied");
  if (was.denied.kept && !is.denied.kept) happened("a restart would forget who is denied: " + is.denied.not_kept_because, "bad");
  for (const it of listeners.values()) happened("listener " + it.name + " is gone");
  if (was.conservation.holds && !is.conservation.holds) happened("not everything is accounted for", "bad");
}

function point(was, is, seconds) {
  const same = was && was.incarnation === is.incarnation;
  const rate = (of) => same ? Math.max(0, of(is) - of(was)) / seconds : null;
  const latency = {};
  for (const it of is.stages) latency[it.name] = it.count ? [it.p50_ns, it.p99_ns, it.p999_ns] : null;
  return {
    at: Date.now() / 1000,
    sessions: is.totals.sessions,
    datagramsIn: rate((it) => it.totals.datagrams_in),
    packetsOut: rate((it) => it.totals.packets_out),
    bitsIn: rate((it) => it.totals.bytes_in * 8),
    bitsOut: rate((it) => it.totals.bytes_out * 8),
    drops: rate((it) => it.totals.drops),
    kernelDrops: rate((it) => it.totals.socket_drops),
    overflows: rate((it) => it.totals.socket_overflows ?? it.totals.socket_drops),
    opened: rate((it) => it.totals.sessions_opened),
    latency,
  };
}

// Lines over the time that is known, and how it is scaled.
function chart(id, series, text, isLog) {
  const svg = by(id);
  const [width, height] = [Math.max(svg.clientWidth, 200), 190];
  const [left, right, top, bottom] = [62, 8, 8, 20];
  svg.setAttribute("viewBox", "0 0 " + width + " " + height);
  const last = looks.length ? looks[looks.length - 1].at : 1;
  const first = Math.min(looks.length ? looks[0].at : 0, last - 60);
  const values = series.flatMap((it) => looks.map(it.of)).filter((it) => it !== null && it !== undefined);
  let [low, high] = [0, Math.max(1, ...values) * 1.1];
  let ticks;
  if (isLog) {
    const positive = values.filter((it) => it > 0);
    low = 10 ** Math.floor(Math.log10(Math.min(1e4, ...positive)));
    high = 10 ** Math.ceil(Math.log10(Math.max(low * 10, ...positive)));
    ticks = [];
    for (let tick = low; tick <= high * 1.01; tick *= 10) ticks.push(tick);
  } else {
    const least = high / 4;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = Math.max(1, [1, 2, 5, 10].map((it) => it * power).find((it) => it >= least));
    ticks = [];
    for (let tick = 0; tick <= high; tick += step) ticks.push(tick);
  }
  const x = (at) => left + (at - first) / (last - first) * (width - left - right);
  const share = (value) => isLog ? Math.log10(Math.max(value, low) / low) / Math.log10(high / low) : value / high;
  const y = (value) => height - bottom - share(value) * (height - top - bottom);
  const made = [];
  const draw = (name, attributes, content) => {
    const it = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
    if (content !== undefined) it.textContent = content;
    made.push(it);
  };
  for (const tick of ticks) {
    const at = y(tick).toFixed(1);
    draw("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at });
    draw("text", { x: left - 6, y: +at + 4, "text-anchor": "end" }, text(tick));
  }
  const ago = last - first;
  for (const part of [0, 0.5, 1]) {
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    const label = part === 1 ? "now" : span(Math.round(ago * (1 - part))) + " ago";
    draw("text", { x: (left + part * (width - left - right)).toFixed(1), y: height - 4, "text-anchor": anchor }, label);
  }
  for (const { of, line } of series) {
    let path = "";
    let isOpen = false;
    for (const it of looks) {
      const value = of(it);
      if (value === null || value === undefined) {
        isOpen = false;
        continue;
      }
      path += (isOpen ? "L" : "M") + x(it.at).toFixed(1) + " " + y(value).toFixed(1);
      if (!isOpen) path += "h0.1";
      isOpen = true;
    }
    draw("path", { class: line, d: path });
  }
  svg.replaceChildren(...made);
}

function tiles(now, is) {
  const has = (n, text) => n === null ? "–" : text(n);
  const all = [
    ["sessions", count(now.sessions), "sessions"],
    ["opened", has(now.opened, (n) => n.toFixed(n < 10 ? 1 : 0)), "players let in /s"],
    ["in", has(now.datagramsIn, short), "datagrams in /s"],
    ["out", has(now.packetsOut, short), "datagrams out /s"],
    ["bits-in", has(now.bitsIn, bits), "in"],
    ["bits-out", has(now.bitsOut, bits), "out"],
    ["drops", has(now.drops, short), "dropped /s", false],
    ["kernel-drops", has(now.kernelDrops, short), "dropped by the kernel /s", now.overflows > 0],
  ];
  by("tiles").replaceChildren(...all.map(([id, value, name, isBad]) => {
    const tile = element("div", undefined, isBad ? "tile bad" : "tile");
    tile.id = "tile-" + id;
    tile.append(element("b", value), element("span", name, "soft"));
    return tile;
  }));
  const pending = is.totals.handshakes_pending;
  if (pending) by("tile-opened").lastChild.textContent += ", " + count(pending) + " under way";
}

// Side by side: each bar is as long as its share of the largest.
function workers(was, is, seconds) {
  const old = was && was.incarnation === is.incarnation ? was.workers : [];
  const columns = [
    ["sessions", (it) => it.sessions],
    ["turns/s", (it, o) => o && (it.turns - o.turns) / seconds],
    ["in/s", (it, o) => o && (it.datagrams_in - o.datagrams_in) / seconds],
    ["out/s", (it, o) => o && (it.packets_out - o.packets_out) / seconds],
    ["dropped/s", (it, o) => o && (it.drops - o.drops) / seconds],
    ["by the kernel/s", (it, o) => o && (it.socket_drops - o.socket_drops) / seconds],
  ];
  const most = columns.map(([, of]) => Math.max(1, ...is.workers.map((it, at) => of(it, old[at]) || 0)));
  const rows = is.workers.map((it, at) => {
    const cells = columns.map(([, of], column) => {
      const value = of(it, old[at]);
      return value === undefined ? "–" : { text: short(value), share: Math.min(1, value / most[column]) };
    });
    const isLate = it.report_age_ms > 1000;
    const age = { text: time(it.report_age_ms * 1e6), className: isLate ? "bad" : "" };
    return ["worker " + it.index, ...cells, age];
  });
  table("workers", ["", ...columns.map(([name]) => name), "last report"], rows, "none");
}

function tables(was, is, seconds) {
  workers(was, is, seconds);
  const word = (text) => ({ text, word: true });
  const filled = (n, of) => ({ text: count(n) + " of " + count(of), share: of ? Math.min(1, n / of) : 0,
    className: of && n >= of ? "bad" : "" });
  table("listeners", [word("name"), word("protocol"), word("address"), word("state"), "sessions"], is.listeners.map((it) => {
    let state = { text: it.state, className: "good" };
    if (it.state === "draining") {
      state = { text: it.state + ", " + time(it.drain_left_ms * 1e6) + " left", className: "warn" };
    } else if (it.closed_because) state = { text: "takes nobody new", className: "warn" };
    return [it.name, it.protocol, it.addresses.join(", "), state, filled(it.sessions, it.sessions_max)];
  }), "none");
  const all = is.workers.length;
  table("backends", [word("name"), word("link"), word("state"), "players"], is.backends.map((it) => {
    const reach = it.up ? "up" : it.workers_up ? "up for " + it.workers_up + " of " + all + " workers" : "down";
    let state = { text: reach, className: it.up ? "good" : "bad" };
    if (it.retired) state = { text: "retired", className: "warn" };
    else if (it.drained) state = { text: it.up ? "drained" : "drained, " + reach, className: "warn" };
    return [it.name, it.link + (it.address ? " " + it.address : ""), state, filled(it.players, it.slots)];
  }), "none");
  const same = was && was.incarnation === is.incarnation;
  const drops = Object.entries(is.drops).filter(([, total]) => total > 0).map(([name, total]) =>
    ({ name, total, rate: same ? (total - (was.drops[name] || 0)) / seconds : 0 }));
  drops.sort((a, b) => b.rate - a.rate || b.total - a.total);
  const most = Math.max(1, ...drops.map((it) => it.rate));
  const kernel = [["the kernel: sockets were full", is.totals.socket_overflows],
    ["the kernel: refused by the filter", is.totals.filter_refusals]].filter(([, n]) => n > 0);
  table("drops", [word("reason"), "now /s", "since the start"], [
    ...drops.map((it) => [it.name, { text: short(it.rate), share: it.rate / most }, count(it.total)]),
    ...kernel.map(([name, n]) => [name, "", count(n)]),
  ], "nothing has been dropped");
  table("stages", [word("stage"), "count", "p50", "p90", "p99", "p99.9", "max"], is.stages.filter((it) => it.count)
    .map((it) => [it.name, short(it.count), ...[it.p50_ns, it.p90_ns, it.p99_ns, it.p999_ns, it.max_ns].map(time)]),
  "nothing in the last interval");
}

function stageChoice(is) {
  const names = is.stages.map((it) => it.name);
  const select = by("stage");
  if (select.options.length !== names.length) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    select.value = stage ?? (names.includes("uplink") ? "uplink" : names[0]);
  }
  stage = select.value;
  const shown = is.stages.find((it) => it.name === stage);
  by("samples").textContent = shown && shown.count ? short(shown.count) + " values in the last interval"
    : "nothing in the last interval";
}

function charts() {
  chart("chart-rates", [{ of: (it) => it.datagramsIn, line: "l0" }, { of: (it) => it.packetsOut, line: "l1" }], short);
  const latency = (at) => (it) => it.latency[stage] ? it.latency[stage][at] : null;
  chart("chart-latency", [{ of: latency(0), line: "l2" }, { of: latency(1), line: "l1" }, { of: latency(2), line: "l4" }],
    (ns) => time(ns).replace(/\.0+ /, " "), true);
  chart("chart-sessions", [{ of: (it) => it.sessions, line: "l0" }], short);
  chart("chart-drops", [{ of: (it) => it.drops, line: "l4" }, { of: (it) => it.kernelDrops, line: "l5" }], short);
}

function head(is) {
  if (is.state !== "serving") {
    const left = is.drain_left_ms === undefined ? "" : ", " + span(Math.round(is.drain_left_ms / 1000)) + " left";
    state(is.state + left, "warn");
  } else if (!is.healthy) state("unhealthy", "bad");
  else if (!is.ready) state("not ready", "warn");
  else state("serving", "good");
  const worker = is.workers[0] || {};
  by("facts").textContent = [location.host, "version " + is.version, "up " + span(is.uptime_s), "process " + is.pid,
    is.workers.length + " workers", worker.driver, worker.cipher].filter(Boolean).join(" · ");
  document.title = count(is.totals.sessions) + " sessions · ringgate " + location.host;
  const trouble = [];
  if (is.not_ready_because) trouble.push("Not ready: " + is.not_ready_because + ".");
  if (is.why_not_uring) trouble.push("Without io_uring: " + is.why_not_uring + ".");
  if (!is.conservation.holds) trouble.push("Not everything is accounted for: a bug in the gateway, please report it.");
  by("trouble").textContent = trouble.join(" ");
  by("trouble").hidden = !trouble.length;
}

function show(is) {
  const at = performance.now();
  const was = before && before.is;
  const seconds = before ? Math.max(0.05, (at - before.at) / 1000) : 1;
  if (was) compare(was, is);
  if (isDown) happened("the gateway answers again", "good");
  isDown = false;
  const now = point(was, is, seconds);
  looks.push(now);
  if (looks.length > KEEP) looks.shift();
  before = { at, is };
  head(is);
  tiles(now, is);
  stageChoice(is);
  charts();
  tables(was, is, seconds);
  looked();
}

function missing(why) {
  if (!isDown) happened("the gateway does not answer (" + why + ")", "bad");
  isDown = true;
  state("no answer", "bad");
  if (looks.length) {
    const gap = { ...looks[looks.length - 1], at: Date.now() / 1000, latency: {} };
    for (const key of Object.keys(gap)) if (key !== "at" && key !== "latency") gap[key] = null;
    looks.push(gap);
    if (looks.length > KEEP) looks.shift();
    charts();
  }
}

async function look() {
  try {
    const answer = await fetch("/status", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    show(await answer.json());
  } catch (why) {
    missing(why.message);
  }
}

by("stage").addEventListener("change", () => {
  stage = by("stage").value;
  charts();
});
addEventListener("resize", charts);
watch(look, EVERY_MS);
