"use strict";
(() => {
  const root = document.documentElement;
  const by = (id) => document.getElementById(id);
  const say = (text) => { by("said").textContent = text; };
  root.classList.add("js");

  // Theme: system, light or dark. Without storage it lasts until the page is closed.
  const themes = ["auto", "light", "dark"];
  const spoken = { auto: "as the system", light: "light", dark: "dark" };
  let theme = "auto";
  try { theme = localStorage.getItem("gpuready-theme") || "auto"; } catch (_) { /* no storage on this page */ }
  const wear = () => {
    if (!themes.includes(theme)) theme = "auto";
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    by("theme").textContent = "theme: " + theme;
    by("theme").setAttribute("aria-label", "Theme: " + spoken[theme]);
  };
  by("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("gpuready-theme", theme); } catch (_) { /* as above */ }
    wear();
  });
  wear();

  // Copy to the clipboard where the browser allows it, else select the text.
  const select = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand("copy");
  };
  const copied = async (node) => {
    try { await navigator.clipboard.writeText(node.textContent); return true; } catch (_) { return select(node); }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const done = await copied(button.parentElement.querySelector("code"));
    button.textContent = done ? "copied" : "selected";
    say(done ? "copied" : "selected: copy it with the keyboard");
    setTimeout(() => { button.textContent = "copy"; }, 1600);
  });

  // Download the JSON document, undoing the escapes that keep it inside its script element.
  by("download").addEventListener("click", () => {
    const back = { u003c: "<", u003e: ">", u0026: "&" };
    const text = by("document").textContent.replace(/\\(u003c|u003e|u0026|[^])/g, (whole, what) => back[what] || whole);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "gpuready-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    say("the report was saved as gpuready-report.json");
  });

  // Fact table filter: every word must match, in any order.
  const filter = by("filter");
  if (filter) {
    const rows = Array.from(by("facts-rows").rows, (row) => [row, row.textContent.toLowerCase()]);
    const sift = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const group = by("group").value;
      let shown = 0;
      for (const [row, text] of rows) {
        const fits = (!group || row.dataset.group === group) && words.every((word) => text.includes(word));
        row.hidden = !fits;
        shown += fits;
      }
      by("shown").textContent = shown === rows.length ? rows.length + " rows" : shown + " of " + rows.length + " rows";
    };
    filter.addEventListener("input", sift);
    by("group").addEventListener("change", sift);
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest && event.target.closest("input, select, textarea");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); filter.focus(); }
    });
    sift();
  }

  // Fleet map: redrawn for the chosen column; nodes are found by name or under the pointer.
  const map = by("map");
  if (map) {
    const fleet = JSON.parse(by("nodes").textContent);
    const order = fleet.shapes.map((shape) => shape[0]);
    const space = "http://www.w3.org/2000/svg";
    const kind = (at, column) => {
      if (column === "") return order[Number(fleet.kinds[at])];
      const cell = fleet.cells[fleet.set[at]][column];
      return cell ? cell[0] : "ok";
    };
    const place = (at) => "M" + (at % fleet.across) * fleet.pitch + " " + Math.floor(at / fleet.across) * fleet.pitch;
    const draw = () => {
      const paths = {};
      fleet.names.forEach((_, at) => {
        const one = kind(at, by("column").value);
        paths[one] = (paths[one] || "") + place(at) + fleet.shapes[order.indexOf(one)][2];
      });
      map.replaceChildren(...Object.entries(paths).map(([one, d]) => {
        const path = document.createElementNS(space, "path");
        path.setAttribute("class", "node " + one);
        path.setAttribute("d", d);
        return path;
      }));
    };
    const tell = (at) => {
      map.querySelectorAll(".here").forEach((path) => path.remove());
      if (at < 0 || at >= fleet.names.length) { by("node-says").textContent = by("node").value ? "no such node" : ""; return; }
      const cells = fleet.cells[fleet.set[at]];
      const told = fleet.columns.map((name, n) => cells[n] && name + " " + cells[n][1]).filter(Boolean);
      by("node-says").textContent = fleet.names[at] + ": " + (told.join("; ") || "like the others");
      const here = document.createElementNS(space, "path");
      here.setAttribute("class", "node here");
      here.setAttribute("d", place(at) + "m-1 -1h12v12h-12z");
      map.append(here);
    };
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const scale = map.viewBox.baseVal.width / box.width;
      const x = Math.floor(((event.clientX - box.left) * scale - 1) / fleet.pitch);
      const y = Math.floor(((event.clientY - box.top) * scale - 1) / fleet.pitch);
      if (x >= 0 && x < fleet.across && y >= 0) tell(y * fleet.across + x);
    });
    by("node").addEventListener("input", () => {
      const word = by("node").value.trim();
      const exact = fleet.names.indexOf(word);
      tell(!word ? -1 : exact >= 0 ? exact : fleet.names.findIndex((name) => name.includes(word)));
    });
    by("column").addEventListener("change", draw);
  }

  // Open folded sections for printing.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
})();
