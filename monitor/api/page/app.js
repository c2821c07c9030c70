"use strict";
// Everything that comes from the API is untrusted: it goes into text nodes only.

const $ = (id) => document.getElementById(id);
const el = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const fill = (parent, ...children) => parent.replaceChildren(...children);
const SVG = "http://www.w3.org/2000/svg";
const svg = (name, attributes, text) => {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
};

let view = null;      // the last view
let received = 0;     // when it came, by performance.now()
let operations = [];
let seen = [];        // what has changed since the page was opened
let planned = null;   // the command that a shown plan is for
let stream = null;    // ends the stream

const token = () => sessionStorage.getItem("lockstep-token") || "";
const headers = (more) => (token() ? { ...more, Authorization: "Bearer " + token() } : more);

async function call(path, options = {}) {
  const r = await fetch(path, { ...options, headers: headers(options.headers || {}), cache: "no-store", credentials: "omit" });
  if (r.status === 401) {
    $("login").hidden = false;
    $("login-why").textContent = token() ? "The token is not known." : "This daemon asks for a token.";
  }
  return r;
}

const cluster = () => $("cluster").value;
const base = () => "/v1/clusters/" + encodeURIComponent(cluster());

async function start() {
  link("connecting");
  try {
    const r = await call("/v1/clusters");
    const body = await r.json();
    if (!r.ok) throw new Error(body.error);
    $("login").hidden = true;
    const names = body.clusters.map((c) => c.cluster);
    const want = decodeURIComponent(location.hash.slice(1));
    fill($("cluster"), ...names.map((n) => new Option(n, n, false, n === want)));
    follow();
  } catch (e) {
    link("not connected: " + e.message, true);
    if ($("login").hidden) setTimeout(start, 3000);
  }
}

// follow reads the stream of views for as long as there is one.
async function follow() {
  if (stream) stream.abort();
  const mine = (stream = new AbortController());
  view = null; operations = []; seen = []; forget();
  draw();
  while (!mine.signal.aborted) {
    try {
      const r = await call(base() + "/events", { signal: mine.signal });
      if (!r.ok) throw new Error((await r.json()).error);
      link("live");
      const reader = r.body.getReader();
      const decoder = new TextDecoder();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new Error("the stream has ended");
        text += decoder.decode(value, { stream: true });
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
          for (const line of text.slice(0, end).split("\n")) {
            if (line.startsWith("data: ")) show(JSON.parse(line.slice(6)));
          }
        }
      }
    } catch (e) {
      if (mine.signal.aborted) return;
      link("not connected: " + e.message, true);
      await new Promise((again) => setTimeout(again, 2000));
    }
  }
}

function link(text, bad) {
  $("link").textContent = text;
  $("link").className = bad ? "bad" : "";
}

let asked = 0;
function show(v) {
  note(view, v);
  view = v;
  received = performance.now();
  if (performance.now() - asked > 5000 || (v.operations.running || {}).id !== (show.running || "")) {
    asked = performance.now();
    show.running = (v.operations.running || {}).id || "";
    call(base() + "/operations").then((r) => (r.ok ? r.json() : { operations: [] })).then((b) => { operations = b.operations; timeline(); }).catch(() => {});
  }
  draw();
}

function note(a, b) {
  if (!a) return;
  const add = (text) => seen.unshift({ at: b.taken_at, text });
  const name = (v) => (v.primary ? v.primary.name : "none");
  if (name(a) !== name(b)) add("primary: " + name(a) + " → " + name(b));
  if (a.monitor.role !== b.monitor.role) add("this monitor: " + a.monitor.role + " → " + b.monitor.role);
  for (const s of b.servers) {
    const old = a.servers.find((o) => o.name === s.name);
    if (old && old.state.join() !== s.state.join()) add(s.name + ": " + (s.state.join(", ") || "nothing known"));
  }
  seen.length = Math.min(seen.length, 100);
}

// left is what remains of a time in the view.
const left = (ms) => Math.max(0, ms - (performance.now() - received));
const seconds = (ms) => (ms / 1000).toFixed(1) + " s";

function draw() {
  countdown();
  if (!view) {
    for (const id of ["reason", "role-reason", "monitor", "servers", "locks", "faults", "timeline", "topology", "operations"]) fill($(id));
    fill($("target"));
    $("role").textContent = "unknown";
    return;
  }
  const m = view.monitor;
  $("role").textContent = m.role === "primary" ? "primary monitor" : m.role === "settling" ? "primary monitor, settling" : "secondary monitor";
  $("role-reason").textContent = m.reason;
  pairs($("monitor"), [
    ["name", m.name + " (" + m.version + ")"],
    ["quorum", m.majority.mode],
    ["votes", m.majority.held + " held, " + m.majority.needed + " needed, " + m.majority.running + " of " + m.majority.total + " answer"],
    ["primary lock", m.primary_lock_held ? "held by this monitor" : "not held by this monitor"],
    ["last look", m.passive ? "passive" : view.tick_ms.toFixed(1) + " ms, tick " + view.tick],
  ]);
  topology();
  fill($("servers"), ...view.servers.map(card));
  locks();
  const list = view.faults.map((f) => {
    const li = el("li");
    li.append(el("span", "Fault " + f.code + ": ", "bad"), f.text, f.remedy ? " Remedy: " + f.remedy : "");
    return li;
  });
  for (const n of view.notes) list.push(el("li", n));
  fill($("faults"), ...(list.length ? list : [el("li", "none")]));
  const o = view.operations;
  const texts = [];
  if (o.running) texts.push("Under way: " + o.running.kind + " to " + o.running.to + ", " + o.running.step);
  if (o.pending) texts.push("Waiting: " + o.pending);
  if (o.paused) texts.push("Paused: " + o.paused);
  if (o.blocked) texts.push("Blocked: " + o.blocked);
  texts.push(o.next ? "The next primary would be " + o.next + ": " + o.why : "No server could become the primary: " + o.why);
  fill($("operations"), ...texts.map((t) => el("span", t + " ")));
  targets();
  timeline();
  $("footer").textContent = "Lockstep " + m.version;
}

function countdown() {
  const p = $("primary");
  if (!view) {
    p.textContent = "unknown"; p.className = "big"; $("valid").textContent = "";
    return;
  }
  const valid = left(view.valid_for_ms);
  if (view.primary && valid > 0) {
    p.textContent = "★ " + view.primary.name + " (" + view.primary.address + ")";
    p.className = "big good";
    $("reason").textContent = view.reason;
    $("valid").textContent = "to be believed for " + seconds(valid);
  } else {
    p.textContent = "✖ none";
    p.className = "big bad";
    $("reason").textContent = view.primary ? "the view has expired: there is no newer one" : view.reason;
    $("valid").textContent = "";
  }
  const lease = left(view.monitor.lease_left_ms);
  const whole = view.monitor.timing.lease_ms || 1;
  $("lease").value = Math.min(1, lease / whole);
  $("lease-text").textContent = seconds(lease) + (view.monitor.role === "settling" ? ", settles in " + seconds(left(view.monitor.settles_in_ms)) : "");
}

function pairs(dl, list) {
  fill(dl, ...list.flatMap(([k, v]) => [el("dt", k), el("dd", v)]));
}

const isPrimary = (s) => view.primary && view.primary.name === s.name;
const sign = (s) => (isPrimary(s) ? "★" : s.state.includes("Down") ? "✖" : s.state.includes("Auth Error") ? "⚠" : s.state.includes("Maintenance") || s.state.includes("Drained") ? "◌" : s.state.includes("Lagging") ? "◔" : "●");

// topology draws a tree: each server below the one it replicates from.
function topology() {
  const children = new Map();
  const names = new Set(view.servers.map((s) => s.name));
  for (const s of view.servers) {
    const from = names.has(s.source) && s.source !== s.name ? s.source : "";
    children.set(from, [...(children.get(from) || []), s]);
  }
  const rows = [];
  const done = new Set();
  const walk = (s, depth, parent) => {
    if (done.has(s.name)) return;
    done.add(s.name);
    rows.push({ s, depth, parent });
    const row = rows.length - 1;
    for (const c of children.get(s.name) || []) walk(c, depth + 1, row);
  };
  const roots = children.get("") || [];
  roots.sort((a, b) => Number(!isPrimary(a)) - Number(!isPrimary(b)));
  for (const s of roots) walk(s, 0, -1);
  for (const s of view.servers) walk(s, 0, -1); // rings
  const high = 44, step = 34;
  const at = (i) => [20 + rows[i].depth * step, 22 + i * high];
  const parts = [];
  rows.forEach((r, i) => {
    if (r.parent < 0) return;
    const [x, y] = at(i), [px, py] = at(r.parent);
    parts.push(svg("path", { class: "edge" + (r.s.state.includes("Replica") ? "" : " broken"), d: `M${px} ${py + 12} V${y} H${x - 12}` }));
  });
  rows.forEach((r, i) => {
    const [x, y] = at(i);
    parts.push(svg("circle", { class: "node" + (isPrimary(r.s) ? " primary" : "") + (r.s.state.includes("Down") ? " down" : ""), cx: x, cy: y, r: 12 }));
    parts.push(svg("text", { x, y: y + 5, "text-anchor": "middle", "aria-hidden": "true" }, sign(r.s)));
    const name = svg("text", { x: x + 20, y: y - 2 }, r.s.name + (r.s.site ? " (" + r.s.site + ")" : ""));
    name.setAttribute("font-weight", "600");
    parts.push(name, svg("text", { x: x + 20, y: y + 15 }, (r.s.state.join(", ") || "nothing known") + (r.s.lag_ms !== null ? ", lag " + seconds(r.s.lag_ms) : "")));
  });
  const t = $("topology");
  t.setAttribute("height", String(Math.max(1, rows.length) * high));
  fill(t, ...parts);
}

const owner = (o) => (o ? (o.self ? "this monitor" : o.user + "@" + o.host + (o.kind ? ", " + o.kind : "") + (o.trusted ? "" : ", NOT TRUSTED")) : "nobody, or not known");

function card(s) {
  const c = el("article", undefined, "card");
  c.append(el("h3", sign(s) + " " + s.name));
  const dl = el("dl");
  const list = [
    ["state", s.state.join(", ") || "nothing known"], ["address", s.address],
    ["lag", s.lag_ms === null ? "not known" : seconds(s.lag_ms) + (s.lag_source ? " (" + s.lag_source + ")" : "")],
    ["GTID", s.gtid_current_pos || "none"], ["binary log", s.gtid_binlog_pos || "none"],
    ["server lock", owner(s.lock_owner)], ["primary lock", owner(s.primary_lock_owner)],
    ["last answer", s.probe_age_ms < 0 ? "never" : seconds(s.probe_age_ms) + " ago"],
    ["version", (s.flavor + " " + s.version).trim() || "not known"],
  ];
  if (s.detail) list.push([s.evidence, s.detail]);
  for (const r of s.replication) {
    list.push(["replicates", "from " + r.source + ", IO " + r.io_running + ", SQL " + r.sql_running + (r.io_error ? ", " + r.io_error : "") + (r.sql_error ? ", " + r.sql_error : "")]);
  }
  if (view.operations.rejected[s.name]) list.push(["no candidate", view.operations.rejected[s.name]]);
  pairs(dl, list);
  c.append(dl);
  return c;
}

// locks is the matrix of holders and servers.
function locks() {
  const who = (o) => (o.self ? view.monitor.name + " (this monitor)" : o.user + "@" + o.host.replace(/:\d+$/, ""));
  const holders = new Map([[view.monitor.name + " (this monitor)", {}]]);
  for (const s of view.servers) {
    for (const [o, mark] of [[s.lock_owner, "V"], [s.primary_lock_owner, "P"]]) {
      if (!o) continue;
      const row = holders.get(who(o)) || {};
      row[s.name] = (row[s.name] || "") + mark;
      holders.set(who(o), row);
    }
  }
  const head = el("tr");
  head.append(el("th", "monitor"), ...view.servers.map((s) => el("th", s.name)));
  const rows = [...holders].map(([name, marks]) => {
    const tr = el("tr");
    tr.append(el("th", name), ...view.servers.map((s) => el("td", Object.hasOwn(marks, s.name) ? marks[s.name] : "–", "mark")));
    return tr;
  });
  fill($("locks"), head, ...rows);
}

function timeline() {
  const list = seen.map((e) => [e.at, e.text]);
  for (const r of operations) {
    list.push([r.started_at, r.kind + (r.from ? " from " + r.from : "") + (r.to ? " to " + r.to : "") + ": " + r.outcome + (r.detail ? ", " + r.detail : "") + (r.automatic ? "" : " (by a person)")]);
  }
  list.sort((a, b) => (a[0] < b[0] ? 1 : -1));
  fill($("timeline"), ...(list.length ? list.slice(0, 100).map(([at, text]) => {
    const li = el("li");
    const time = el("time", new Date(at).toLocaleTimeString());
    time.dateTime = at;
    li.append(time, " " + text);
    return li;
  }) : [el("li", "nothing yet")]));
}

function targets() {
  const names = view.servers.filter((s) => !isPrimary(s)).map((s) => s.name);
  const now = [...$("target").options].slice(1).map((o) => o.value);
  if (now.join("\n") === names.join("\n") && $("target").options.length) return;
  const value = $("target").value;
  fill($("target"), new Option("the monitor chooses", ""), ...names.map((n) => new Option(n, n, false, n === value)));
}

function forget() {
  planned = null;
  for (const id of ["plan-text", "plan-error", "confirm", "cancel"]) $(id).hidden = true;
}

async function command(cmd) {
  const r = await call(base() + "/commands", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(cmd) });
  const body = await r.json();
  if (!r.ok) {
    const why = (body.refusals || []).map((f) => f.text + (f.remedy ? " (" + f.remedy + ")" : "")).join("; ");
    throw new Error(why ? "refused: " + why : body.error);
  }
  return body;
}

function failed(e) {
  $("plan-error").textContent = e.message;
  $("plan-error").className = "bad";
  $("plan-error").hidden = false;
}

$("plan").addEventListener("click", async () => {
  forget();
  try {
    const reply = await command({ action: "switchover", server: $("target").value, dry_run: true });
    $("plan-text").textContent = reply.text;
    $("plan-text").hidden = false;
    planned = { cluster: cluster(), cmd: { action: "switchover", server: reply.plan.to } };
    $("confirm").textContent = "Switch over to " + reply.plan.to + " now";
    $("confirm").hidden = $("cancel").hidden = false;
    $("cancel").focus();
  } catch (e) {
    failed(e);
  }
});
$("confirm").addEventListener("click", async () => {
  const p = planned;
  forget();
  if (!p || p.cluster !== cluster()) return;
  try {
    const reply = await command(p.cmd);
    $("plan-text").textContent = reply.text;
    $("plan-text").hidden = false;
    asked = 0;
  } catch (e) {
    failed(e);
  }
});
$("cancel").addEventListener("click", forget);
$("target").addEventListener("change", forget);
$("cluster").addEventListener("change", () => { location.hash = encodeURIComponent(cluster()); follow(); });
$("use-token").addEventListener("click", () => { sessionStorage.setItem("lockstep-token", $("token").value.trim()); $("token").value = ""; $("login").hidden = true; start(); });
$("token").addEventListener("keydown", (e) => { if (e.key === "Enter") $("use-token").click(); });
setInterval(countdown, 100);
start();
