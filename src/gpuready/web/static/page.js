"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const form = by("ask"), answer = by("answer"), root = document.documentElement;
  const say = (text) => { by("said").textContent = text; };
  root.classList.add("js");

  // -- helpers; everything from the server is inserted as text, never as markup
  const make = (name, what = {}, ...inside) => {
    const svg = ["svg", "rect", "line", "text", "title"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(what)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value); else node.setAttribute(key, value);
    }
    node.append(...inside.filter((one) => one !== null && one !== undefined && one !== ""));
    return node;
  };
  const size = (bytes) => { const gib = bytes / 2 ** 30; return (gib < 10 ? gib.toFixed(2) : gib.toFixed(1)) + " GiB"; };
  const band = (low, high) => (size(low) === size(high) ? size(low) : size(low).replace(" GiB", "") + " to " + size(high));
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\"'\"'") + "'");
  // a long word may break after a separator, never within a word
  const breaks = (text) => String(text).split(/(?<=[/_.,=:@+-])(?=[^/_.,=:@+-])/).flatMap((piece, at) => (at ? [make("wbr"), piece] : [piece]));
  const run = (words) => make("div", { class: "run" }, make("code", {}, ...breaks(typeof words === "string" ? words : words.map(quoted).join(" "))),
    make("button", { type: "button", class: "copy", "aria-label": "copy the command" }, "copy"));
  const verdictWords = (verdict) => ({ clear: "no problems found", undecided: "can't tell" })[verdict] || verdict.replace("-", " ");  // as model/verdict_words.py
  const offerLink = (id, leads) => { const link = document.querySelector(`nav a[href="#${id}"]`); if (link) link.style.display = leads ? "" : "none"; };
  const section = (id, title, sum, ...inside) => { offerLink(id, true); by(id).replaceChildren(make("div", { class: "head" }, make("h2", {}, title), make("span", { class: "sum" }, sum || "")), ...inside.filter(Boolean)); };
  const empty = (...ids) => ids.forEach((id) => { offerLink(id, false); by(id).replaceChildren(); });
  const SIGN = { error: "✗", warning: "!", undecided: "?", ok: "✓" };
  const KIND = { clear: "ok", ready: "ok", fits: "ok", plan: "ok", "not-ready": "error", "does not fit": "error", impossible: "error", undecided: "undecided" };
  const sign = (kind) => make("span", { class: "sign " + kind, "aria-hidden": "true" }, SIGN[kind] || "·");

  // -- the query: form to URL, and URL to form
  const fields = [...form.elements].filter((one) => one.name);
  const own = ["version", "variant"];
  let contracts = [];
  const spec = () => {
    const { framework, version, variant } = form.elements;
    return framework.value && framework.value + (version.value ? "==" + version.value : "") + (variant.value ? ":" + variant.value : "");
  };
  const usual = (field) => field.dataset.usual || "";
  const model = (text) => text.trim().split("/").pop();
  const asked = () => {
    const query = new URLSearchParams();
    for (const field of fields) {
      if (own.includes(field.name)) continue;
      let value = field.name === "framework" ? spec() : field.name === "model" ? model(field.value) : field.value.trim();
      if (field.name === "count" && (value === "1" || !form.elements.gpu.value.trim())) value = "";
      if (value && value !== usual(field)) query.set(field.name, value);
    }
    return query;
  };
  const fill = (query) => {
    const [head, variant = ""] = (query.get("framework") || "").split(":");
    const [framework, version = ""] = head.split("==");
    for (const field of fields) {
      if (own.includes(field.name)) continue;
      const value = field.name === "framework" ? framework : query.get(field.name) ?? (field.name === "count" ? "1" : usual(field));
      if (field.tagName === "SELECT" && value && ![...field.options].some((one) => one.value === value)) field.append(make("option", { value }, value));
      field.value = value;
    }
    offer(version, variant);
    for (const more of form.querySelectorAll("details")) {
      if ([...more.querySelectorAll("[name]")].some((one) => query.has(one.name))) more.open = true;
    }
    mark();
  };
  const mark = () => {
    for (const field of fields) {
      if (field.dataset.usual !== undefined) field.classList.toggle("changed", field.value.trim() !== usual(field) && field.value.trim() !== "");
    }
  };
  const options = (select, rows, chosen) => {
    if (chosen && !rows.includes(chosen)) rows = [...rows, chosen];
    select.replaceChildren(...rows.map((one) => make("option", { value: one }, one || (select.name === "version" ? "newest" : "none"))));
    select.value = chosen; select.disabled = rows.length < 2;
  };
  const offer = (version = "", variant = "") => {
    const rows = contracts.filter((one) => one.framework === form.elements.framework.value);
    const variants = [...new Set(rows.map((one) => one.variant || ""))].sort();
    const chosen = variants.includes(variant) || variant ? variant : variants[0] || "";
    options(form.elements.variant, variants, chosen);
    const versions = rows.filter((one) => (one.variant || "") === chosen).map((one) => one.version);
    options(form.elements.version, ["", ...new Set(versions.reverse())], version);
  };
  const address = (query) => location.pathname + (query.size ? "?" + query : "");

  // -- requests: ready parts first, then the pending ones; replies to an outdated query are dropped
  let turn = 0, shown = {}, timer = 0;
  const get = async (path, signal) => {
    const reply = await fetch(path, { headers: { "x-gpuready": "1" }, signal });
    const told = await reply.json();
    if (!reply.ok) throw new Error(told.error || "no answer");
    return told;
  };
  let stop = new AbortController();
  const ask = async () => {
    const mine = ++turn, query = asked();
    stop.abort(); stop = new AbortController();
    if (![...query.keys()].length) { welcome(); return; }
    answer.setAttribute("aria-busy", "true"); answer.classList.add("pale");
    try {
      let told = await get("/api/whatif?" + query, stop.signal);
      if (mine !== turn) return;
      show(told, query);
      for (let tries = 0; told.pending.length && tries < 4; tries++) {
        if (tries === 0) await new Promise((done) => setTimeout(done, 120));
        if (mine !== turn) return;
        query.set("wait", "15");
        told = await get("/api/whatif?" + query, stop.signal);
        query.delete("wait");
        if (mine !== turn) return;
        show(told, query);
      }
      if (told.pending.length) say("some parts took too long");
      answer.setAttribute("aria-busy", "false");
    } catch (error) {
      if (error.name === "AbortError" || mine !== turn) return;
      answer.classList.remove("pale"); answer.setAttribute("aria-busy", "false");
      empty("memory", "proposals", "versions", "findings", "variables", "commands");
      verdict("error", "not understood", error.message, []);
    }
  };
  const changed = (push) => {
    const next = address(asked());
    if (next !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", next);
    mark();
    answer.setAttribute("aria-busy", "true");
    clearTimeout(timer);
    timer = setTimeout(ask, push ? 0 : 180);
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  let typed = false;
  form.addEventListener("input", (event) => {
    if (event.target.tagName === "SELECT") return;
    // Only the first character typed adds a history entry; the others replace it.
    changed(!typed); typed = true;
  });
  form.addEventListener("change", (event) => {
    typed = false;
    if (event.target.name === "framework") offer();
    if (event.target.name === "variant") offer("", event.target.value);
    changed(true);
  });
  form.addEventListener("focusout", () => { typed = false; });
  by("clear").addEventListener("click", () => { fill(new URLSearchParams()); changed(true); form.elements.framework.focus(); });
  addEventListener("popstate", () => { fill(new URLSearchParams(location.search)); ask(); });

  // "apply": fill the form from a command of the result.
  const apply = (words, says) => {
    const query = asked(), flags = words.slice(2);
    for (let i = 0; i < flags.length; i++) {
      if (!flags[i].startsWith("--")) {
        if (words[1] === "plan" && i === 0) query.set("framework", flags[i]);
        continue;
      }
      const [name, inline] = flags[i].slice(2).split("=");
      const bare = inline === undefined && (i + 1 >= flags.length || flags[i + 1].startsWith("--") || name === "gradient-checkpointing");
      const value = inline !== undefined ? inline : bare ? (name === "fsdp" || name === "dpo" ? "1" : "on") : flags[++i];
      if (name === "on") {
        const split = gpus.has(value) || value === form.elements.gpu.value ? null : value.match(/^(.*)x(\d+)$/);
        query.set("gpu", split ? split[1] : value); query.set("count", split ? split[2] : "1");
      } else if (form.elements[name]) query.set(name, value);
    }
    fill(query); changed(true); say("applied: " + says); answer.focus({ preventScroll: true });
  };

  // -- the result
  const verdict = (kind, word, what, lines) => {
    const box = by("verdict");
    box.className = "verdict " + kind;
    box.replaceChildren(
      make("div", { class: "word" }, make("span", { class: "big", "aria-hidden": "true" }, SIGN[kind] || "…"),
        make("h1", {}, make("span", { class: "said" }, word), make("span", { class: "what" }, what))),
      lines.length ? make("ul", { class: "lines" }, ...lines.map(([mark, text]) => make("li", {}, mark === "waits" ? make("span", { class: "waits" }) : sign(mark), make("span", {}, text)))) : "");
    document.title = word + " - gpuready: what if?";
  };
  const welcome = () => {
    answer.classList.remove("pale"); answer.setAttribute("aria-busy", "false");
    empty("memory", "proposals", "versions", "findings", "variables", "commands");
    verdict("", "what if?", "Choose a framework and a GPU, or a model: the answer comes as you choose.", []);
  };
  const show = (told, query) => {
    const { check, plan, env, fit, memory } = told.parts, pending = told.pending;
    const mem = fit && !fit.error ? fit : memory;
    answer.classList.remove("pale");
    headline(check, plan, mem, pending, query);
    drawMemory(mem, pending, query);
    drawWays(fit, plan, pending);
    drawPlan(plan, pending);
    drawFindings(check, pending);
    drawEnv(env);
    drawCommands(told.commands, plan, env, query);
    shown = told;
  };
  const gpuName = (query) => {
    const count = query.get("count") || "1", gpu = query.get("gpu");
    return gpu ? count + " × " + (gpus.get(gpu) || gpu) : "this machine";
  };
  const headline = (check, plan, mem, pending, query) => {
    const lines = [], kinds = [], words = [];
    const one = (part, name, text) => {
      if (pending.includes(name)) { lines.push(["waits", { check: "judging the machine", plan: "choosing versions", memory: "counting memory" }[name]]); return; }
      if (!part) return;
      const kind = part.error ? "error" : KIND[part.verdict] || "undecided";
      const told = part.error || text(part);
      kinds.push(kind);
      if (!lines.some((line) => line[1] === told)) lines.push([kind, told]);
      if (!(name === "plan" && kind === "ok")) words.push([kind, part.error ? "not understood" : verdictWords(part.verdict)]);
    };
    one(check, "check", (it) => {
      const errors = it.findings.filter((f) => f.severity === "error").length, warnings = it.findings.filter((f) => f.severity === "warning").length;
      const counted = [[errors, "error"], [warnings, "warning"], [it.undecided.length, "open question"]].filter(([n]) => n).map(([n, word]) => n + " " + (n === 1 ? word : word + "s"));
      return "the machine: " + verdictWords(it.verdict) + (it.verdict === "clear" && it.unstated.length ? " in what was given" : "") + (counted.length ? " (" + counted.join(", ") + ")" : "") + ", by the requirements of " + it.judged_by;
    });
    one(plan, "plan", (it) => (it.verdict === "plan" ? [`${it.framework} ${it.version}`, it.torch && "torch " + it.torch, it.python && "Python " + it.python].filter(Boolean).join(", ") : "no compatible versions: " + (it.conflicts[0] || {}).says));
    one(mem, "memory", (it) => (it.minimum === null ? it.why : `${it.model} needs ${band(it.minimum + it.overhead[0], it.minimum + it.overhead[1])} of a GPU` + (it.places.length ? `, and one has ${band(...it.places[0].room)}` : "")));
    const worst = ["error", "undecided", "ok"].find((kind) => kinds.includes(kind)) || "";
    const word = [...new Set(words.filter(([kind]) => kind === worst).map(([, said]) => said))].join(", ") || "…";
    verdict(worst, word, [query.get("framework"), model(query.get("model") || "")].filter(Boolean).join(" and ") + " on " + gpuName(query), lines);
  };
  const waits = (text) => make("p", { class: "waits" }, text);
  const PARTS = ["parameters", "gradients", "optimizer", "activations", "loss", "workspaces", "adapter", "cache", "logits"];
  const drawMemory = (mem, pending, query) => {
    if (pending.includes("memory")) { if (!by("memory").hasChildNodes()) section("memory", "Memory", "", waits("counting")); else by("memory").classList.add("pale"); return; }
    by("memory").classList.remove("pale");
    if (!mem || mem.error) { empty("memory"); return; }
    if (mem.minimum === null) { section("memory", "Memory", mem.verdict, make("p", { class: "note" }, mem.why)); return; }
    const [low, high] = mem.overhead, total = mem.minimum + high, room = mem.places.length ? mem.places[0].room : null;
    const names = [...PARTS.filter((one) => one in mem.parts), ...Object.keys(mem.parts).filter((one) => !PARTS.includes(one))];
    const rows = names.map((name) => [name, mem.parts[name]]);
    const spare = mem.minimum - rows.reduce((sum, row) => sum + row[1], 0);
    if (spare > 0) rows.push(["between blocks", spare]);
    rows.push(["CUDA and its libraries", high]);
    const seen = rows.filter((row) => row[1] > 2 ** 30 / 200);
    const whole = Math.max(total, room ? room[1] : 0) * 1.02, W = 900, x = (bytes) => (bytes / whole) * W;
    const bar = make("svg", { class: "bar", viewBox: `0 0 ${W} 92`, role: "img", "aria-label": `needs ${size(total)}` + (room ? ` of ${band(...room)}` : "") });
    bar.append(make("rect", { class: "soft", x: 0, y: 26, width: room ? x(room[0]) : W, height: 40, rx: 3 }));
    let at = 0;
    seen.forEach(([name, bytes], i) => {
      const rect = make("rect", { class: "s" + Math.min(i, 10), x: x(at), y: 26, width: Math.max(x(bytes) - 1, 0.5), height: 40 }, make("title", {}, `${name}: ${size(bytes)}`));
      bar.append(rect); at += bytes;
    });
    if (room) {
      const over = total > room[0] && mem.verdict !== "fits", end = x(room[0]) > W * 0.7;
      if (over) bar.append(make("rect", { class: "beyond", x: x(room[0]), y: 20, width: Math.max(x(total) - x(room[0]), 0), height: 52 }));
      bar.append(make("line", { class: "limit" + (over ? " over" : ""), x1: x(room[0]), x2: x(room[0]), y1: 16, y2: 74 }),
        make("text", { x: x(room[0]) + (end ? -5 : 5), y: 13, class: end ? "end" : "" }, `${mem.places[0].name}: ${band(...room)}`));
    }
    const left = x(total) < W * 0.45;
    bar.append(make("text", { x: left ? 0 : x(total), y: 88, class: left ? "quiet" : "end quiet" }, `needs ${band(mem.minimum + low, total)} in the ${mem.peak_at[0]}`));
    const legend = make("ul", { class: "legend" }, ...seen.map(([name, bytes], i) => make("li", {}, make("span", { class: "key s" + Math.min(i, 10) }), name, make("span", { class: "size" }, size(bytes)))));
    const notes = [...mem.unmodelled.map((one) => "not counted: " + one), ...mem.lessened.map((one) => "takes less: " + one), ...mem.notes];
    section("memory", "Memory of one GPU", mem.why && !mem.places.length ? "no GPU chosen" : mem.verdict, make("div", { class: "card" }, bar, legend), pace(mem.time), phases(mem), ...notes.map((one) => make("p", { class: "note" }, one)));
  };
  const seconds = (n) => n < 1 ? (n * 1e3).toPrecision(3) + " ms" : n < 120 ? n.toPrecision(3) + " s" : n < 7200 ? Math.round(n / 60) + " min" : (n / 3600).toFixed(1) + " h";
  const BOUND = { matmul: "matrix products", memory: "the memory's bandwidth", launches: "the host's launches", communication: "communication" };
  const pace = (time) => {
    if (!time) return null;
    const [low, high] = time.range.map(seconds), step = time.step_seconds;
    const what = step ? `${seconds(step)} a step` : `${seconds(time.prefill_seconds)} to the first token, ${seconds(time.decode_seconds)} for each later one`;
    return make("p", { class: "note" }, `time: ${what} (${low} to ${high}), ${Math.round(time.tokens_per_second)} tokens a second, bound by ${BOUND[time.bound_by] || time.bound_by}`);
  };
  const phases = (mem) => {
    const rows = Object.entries(mem.stacks || {});
    if (!rows.length) return null;
    return make("details", {}, make("summary", {}, "over the phases of a step"), make("table", { class: "rows" }, make("tbody", {}, ...rows.map(([name, parts]) => make("tr", {}, make("th", { scope: "row" }, name),
      make("td", { class: "number" }, size(Object.values(parts).reduce((a, b) => a + b, 0))), make("td", {}, Object.entries(parts).filter(([, n]) => n > 2 ** 27).map(([part, n]) => part + " " + size(n)).join(", ")))))));
  };
  const way = (says, costs, needs, words) => make("li", {}, make("span", {}, says), make("span", { class: "needs" }, needs), make("button", { type: "button", class: "apply", "aria-label": "apply: " + says, onclick: () => apply(words, says) }, "apply"), costs ? make("span", { class: "costs" }, costs) : "");
  const drawWays = (fit, plan, pending) => {
    const fits = (fit && fit.proposals) || [], opens = ((plan && plan.opens) || []).filter((one) => one.run.length);
    if (!fits.length && !opens.length && !pending.includes("fit")) {
      if (fit && fit.verdict === "does not fit") section("proposals", "What would make it fit", "", make("p", { class: "none" }, "No tested change makes it fit: take another GPU, or a smaller model.")); else empty("proposals");
      return;
    }
    const list = make("ul", { class: "ways-out" }, ...opens.map((one) => way(one.change, "then: " + one.then, "", one.run)),
      ...fits.map((one) => way(one.says, "costs: " + one.costs, size(one.minimum + one.peak_device - one.peak_reserved), one.run)));
    const looks = pending.includes("fit") && !pending.includes("memory") && shown.parts && shown.parts.memory && shown.parts.memory.fits === false;
    if (!list.children.length && !looks) { if (pending.includes("memory")) by("proposals").classList.add("pale"); else empty("proposals"); return; }
    by("proposals").classList.remove("pale");
    section("proposals", opens.length && !fits.length ? "What would make it possible" : "What would make it fit", "smallest change first", list.children.length ? list : waits("looking for the smallest change that fits"));
  };
  const tile = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
  const drawPlan = (plan, pending) => {
    if (pending.includes("plan")) { if (by("versions").hasChildNodes()) by("versions").classList.add("pale"); else section("versions", "Versions", "", waits("choosing")); return; }
    by("versions").classList.remove("pale");
    if (!plan || plan.error) { empty("versions"); return; }
    if (plan.verdict !== "plan") { section("versions", "Versions", "impossible", ...plan.conflicts.map((one) => make("div", { class: "finding error" }, make("h3", {}, one.says), ...one.needs.map((need) => make("p", { class: "source" }, ...breaks(`${need.key} ${need.want}: ${need.cite}`)))))); return; }
    const tiles = make("dl", { class: "tiles" }, tile(plan.framework + (plan.variant ? ":" + plan.variant : ""), plan.packages[plan.framework] || plan.version), tile("torch", plan.torch), tile("CUDA", plan.cuda || "none"), tile("Python", plan.python), tile("from", plan.index));
    const why = make("details", {}, make("summary", {}, "why these"), make("ul", { class: "because" }, ...plan.because.map((one) => make("li", {}, `${one.about}: ${one.says}`, make("span", { class: "source" }, ...breaks(one.cite))))));
    const HOW = { index: "ready-made, from an index", release: "ready-made, from its releases", build: "built from source", jit: "compiled on first use", none: "left out" };
    const kernels = plan.kernels.length ? make("table", { class: "rows" }, make("thead", {}, make("tr", {}, ...["kernels", "", "how"].map((one) => make("th", { scope: "col" }, one)))), make("tbody", {}, ...plan.kernels.map((one) => make("tr", {}, make("th", { scope: "row" }, one.package), make("td", {}, one.version), make("td", {}, HOW[one.how] || one.how, make("span", { class: "source" }, " " + one.why)))))) : null;
    const packages = Object.entries(plan.packages);
    const all = packages.length ? make("details", {}, make("summary", {}, packages.length + " packages with their versions"), make("p", { class: "source" }, packages.map(([name, version]) => name + " " + version).join(", "))) : null;
    section("versions", "Versions", "chosen without asking an index", tiles, kernels, why, all, ...plan.notes.map((one) => make("p", { class: "note" }, one)));
  };
  const drawFindings = (check, pending) => {
    if (pending.includes("check")) { by("findings").classList.add("pale"); return; }
    by("findings").classList.remove("pale");
    if (!check || check.error) { empty("findings"); return; }
    const value = (it) => (Array.isArray(it) ? [...new Set(it.map(String))].join(", ") : it === null ? "nothing" : String(it));
    const rows = check.findings.filter((one) => one.severity !== "info").map((one) => make("div", { class: "finding " + one.severity }, make("h3", {}, make("span", { class: "code" }, one.code), " ", one.says),
      make("dl", {}, ...one.found.flatMap((fact) => [make("dt", {}, "found"), make("dd", {}, ...breaks(`${fact.key} ${value(fact.value)} `), make("span", { class: "source" }, ...breaks(fact.source)))]), ...one.needs.flatMap((need) => [make("dt", {}, "needs"), make("dd", {}, ...breaks(`${need.key} ${need.want} `), make("span", { class: "source" }, ...breaks(need.cite)))]),
        make("dt", {}, "so"), make("dd", {}, one.so), ...one.fix.flatMap((step) => [make("dt", {}, "fix"), make("dd", {}, step.does, step.run.length ? run(step.run) : "")]))));
    const open = check.undecided.map((one) => make("div", { class: "finding undecided" }, make("h3", {}, make("span", { class: "code" }, one.code), " ", one.says)));
    if (!rows.length && !open.length) { empty("findings"); return; }
    section("findings", "Findings", "", ...rows, ...open);
  };
  const exports = (env) => env.variables.map((one) => `export ${one.name}=${quoted(one.value)}`).join("\n");
  const drawEnv = (env) => {
    if (!env) { by("variables").classList.add("pale"); return; }
    by("variables").classList.remove("pale");
    if (env.error || !(env.variables.length + env.conflicts.length)) { empty("variables"); return; }
    const table = make("table", { class: "rows vars stack" }, make("thead", {}, make("tr", {}, ...["variable", "value", "why"].map((one) => make("th", { scope: "col" }, one)))), make("tbody", {}, ...env.variables.map((one) => make("tr", {}, make("td", {}, ...breaks(one.name)), make("td", {}, ...breaks(one.value)), make("td", {}, one.why)))));
    section("variables", "Variables", `${env.variables.length} to set`, make("div", { class: "scroll" }, table), ...env.conflicts.map((one) => make("p", { class: "note" }, `${one.name} is set to ${one.have} here, and ${one.by} wants ${one.wants}: ${one.then}`)));
  };
  const drawCommands = (commands, plan, env, query) => {
    const inside = [], label = (text) => make("p", { class: "label" }, text), framework = query.get("framework");
    const plain = (words) => { const at = words.indexOf("--"), rest = at < 0 ? [] : words.slice(at + 1); return ["gpuready", words[0], ...rest, ...words.slice(1, at < 0 ? undefined : at).filter((one) => one !== "--json")]; };
    if (framework && plan && plan.verdict === "plan") {
      const stated = ["torch", "python-version"].filter((name) => query.get(name)).map((name) => name.replace("-version", "") + "=" + query.get(name));
      const flags = [...(query.get("wants") ? ["--wants", query.get("wants")] : []), ...(stated.length ? ["--as", stated.join(",")] : [])];
      inside.push(label("install, on the machine itself"), run(["gpuready", "install", framework, ...flags, "-e", ".venv"]));
      inside.push(make("details", {}, make("summary", {}, "the same step by step"), ...plan.steps.flatMap((one) => [label(one.does), one.run.length ? run(one.run) : ""])));
    }
    if (framework && env && !env.error && env.variables.length) inside.push(label("variables"), run(exports(env)));
    if (framework && !(plan && plan.verdict === "impossible")) {
      const count = query.get("count") || "1";
      inside.push(label("launch"), run(["gpuready", "run", framework.split(/==|:/)[0], "--nproc", query.get("gpu") ? count : "gpu", "--python", ".venv", "--", "train.py"]));
    }
    const again = ["check", "plan", "fit", "env"].filter((name) => commands[name]).map((name) => run(plain(commands[name])));
    if (again.length) inside.push(make("details", {}, make("summary", {}, "the same answers on the command line"), ...again));
    if (inside.length) section("commands", "Commands", "", ...inside); else empty("commands");
  };

  // -- upload of a log or a recording
  const send = async (file) => {
    const out = by("told");
    out.replaceChildren(waits("reading " + file.name));
    try {
      const head = await file.slice(0, 1 << 16).text();
      const recording = /^\s*\{/.test(head) && /"facts"|"kind"\s*:\s*"recording"/.test(head);
      const framework = form.elements.framework.value;
      const reply = await fetch((recording ? "/api/report" : "/api/diagnose") + (framework && !recording ? "?framework=" + encodeURIComponent(framework) : ""), { method: "POST", body: file, headers: { "x-gpuready": "1", "content-type": "application/octet-stream" } });
      if (!reply.ok) throw new Error((await reply.json()).error);
      if (recording) report(await reply.blob(), reply.headers.get("location"), file.name); else diagnosis(await reply.json(), file.name);
    } catch (error) { out.replaceChildren(make("p", { class: "said" }, error.message)); }
  };
  const report = (blob, where, name) => {
    const save = make("a", { href: URL.createObjectURL(blob), download: "gpuready-report.html" }, "save it");
    by("told").replaceChildren(make("p", {}, "The report of " + name + ": ", make("a", { href: where, target: "_blank", rel: "noopener" }, "open it"), ", or ", save, "."));
    say("the report is there");
  };
  const diagnosis = (told, name) => {
    const kind = told.verdict === "cause" ? "error" : told.verdict === "healthy" ? "ok" : "undecided";
    const lines = (told.evidence || []).slice(0, 3).map((one) => make("pre", {}, `${name}:${one.line}\n` + [...one.before, one.text, ...one.after].join("\n")));
    by("told").replaceChildren(make("div", { class: "finding " + kind }, make("h3", {}, make("span", { class: "code" }, told.code || told.verdict), " ", told.says || told.verdict), told.so ? make("p", {}, told.so) : "", ...lines,
      make("dl", {}, ...(told.fix || []).flatMap((one) => [make("dt", {}, "fix"), make("dd", {}, one.does, one.run.length ? run(one.run) : "")]))));
    say(told.says || told.verdict);
  };
  const drop = by("drop");
  for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
  drop.addEventListener("dragover", () => drop.classList.add("over"));
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  addEventListener("drop", (event) => { if (event.dataTransfer && event.dataTransfer.files.length) send(event.dataTransfer.files[0]); });
  by("file").addEventListener("change", (event) => { if (event.target.files.length) send(event.target.files[0]); event.target.value = ""; });

  // -- copy, theme
  const write = async (text, node) => {
    try { await navigator.clipboard.writeText(text); return true; } catch (_) {
      if (node) { const range = document.createRange(); range.selectNodeContents(node); getSelection().removeAllRanges(); getSelection().addRange(range); return document.execCommand("copy"); }
      return false;
    }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code"), done = await write(code.textContent, code);
    button.textContent = done ? "copied" : "selected"; say(button.textContent);
    setTimeout(() => { button.textContent = "copy"; }, 1600);
  });
  by("share").addEventListener("click", async () => { say((await write(location.href)) ? "the link is copied; it holds what was chosen, not the token" : "copy it from the address bar"); by("share").textContent = "copied"; setTimeout(() => { by("share").textContent = "copy link"; }, 1600); });
  const themes = ["auto", "light", "dark"];
  let theme = localStorage.getItem("gpuready-theme") || "auto";
  const wear = () => {
    if (!themes.includes(theme)) theme = "auto";
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    by("theme").textContent = "theme: " + theme;
  };
  by("theme").addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % 3]; localStorage.setItem("gpuready-theme", theme); wear(); });
  wear();

  // -- start: load the choices, then run the query of the URL
  const gpus = new Map();
  const begin = async () => {
    const [known, choices] = await Promise.all([get("/api/contracts"), get("/api/choices")]);
    contracts = known.contracts;
    const names = [...new Set(contracts.map((one) => one.framework))];
    form.elements.framework.replaceChildren(make("option", { value: "" }, "choose"), ...names.map((one) => make("option", {}, one)));
    for (const one of choices.gpus) gpus.set(one.on, one.name);
    const list = (id, rows) => by(id).replaceChildren(...rows);
    list("gpus", choices.gpus.map((one) => make("option", { value: one.on }, `${one.name}, ${Math.round(one.memory / 2 ** 30)} GB`)));
    list("models", choices.models.map((one) => make("option", { value: one.name }, (one.parameters / 1e9).toFixed(1) + " billion parameters")));
    list("drivers", choices.drivers.map((one) => make("option", { value: one })));
    list("torches", choices.torches.map((one) => make("option", { value: one })));
    list("systems", choices.systems.map((one) => make("option", { value: one })));
    by("about").textContent = "gpuready " + choices.gpuready + ".";
    fill(new URLSearchParams(location.search.length > 1 ? location.search : EXAMPLE));
    ask();
  };
  const EXAMPLE = "framework=transformers&gpu=h100&driver=580.95.05&torch=2.13.0&model=llama-3.1-8b&method=lora";
  begin().catch((error) => verdict("error", "no answer", error.message, []));
})();
