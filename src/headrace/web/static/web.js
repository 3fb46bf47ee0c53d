"use strict";
/* Charts, heat maps, live figures and the plan. Captured text reaches the page only as textContent. */
(() => {
  /* Without TLS a session is below a path that only this browser knows, and keeps where no other port can read it.
     A link from elsewhere has no such path: it leads to the login, and from there to the session, if it still is one. */
  try {
    const { private: here, after } = document.body.dataset, known = localStorage.getItem("headrace");
    const isEnded = Date.now() - sessionStorage.getItem("headrace-tried") < 10000;
    if (here) localStorage.setItem("headrace", here);
    else if (after && known && !isEnded) { sessionStorage.setItem("headrace-tried", Date.now()); location.replace(known + after + location.hash); return; }
  } catch { /* a browser that keeps nothing shows the login */ }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [10, 4]];
  const charts = [];
  const short = (value) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= limit) return (value / limit).toPrecision(3) + " " + unit;
    return size >= 100 || value === Math.round(value) ? String(Math.round(value)) : value.toPrecision(3);
  };
  const forms = {
    share: (v) => (v == null ? "–" : (100 * v).toFixed(v < 0.0995 && v > 0 ? 1 : 0) + "%"),
    s: (v) => (v == null ? "–" : (1000 * v).toPrecision(3) + " ms"),
    bytes: (v) => (v == null ? "–" : short(v) + "B/s"),
    rate: (v) => (v == null ? "–" : short(v) + "/s"),
    n: (v) => short(v),
  };
  const two = (n) => String(n).padStart(2, "0");
  /* 24 hours, UTC; days where the range is long. */
  const clock = (t, span) => { const d = new Date(t * 1e3), day = `${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`, hour = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`; return span > 3 * 86400 ? day : span > 86400 ? `${day} ${hour}` : hour; };
  const minuteOf = (t) => new Date(t * 1e3).toISOString().slice(0, 16) + "Z";
  const zone = (t) => uPlot.tzDate(new Date(t * 1e3), "UTC");
  const make = (tag, className, text) => { const found = document.createElement(tag); if (className) found.className = className; if (text != null) found.textContent = text; return found; };
  const marks = () => [...document.querySelectorAll("[data-changes] tbody tr")].map((row, i) => ({ n: i + 1, at: Number(row.dataset.at), said: row.dataset.mark || "", effect: (row.dataset.effect || "").split(" (")[0], look: row.dataset.look || "unsure" })).filter((mark) => mark.at);
  /* In each picture the proven ones in words: verdict and interval. All are in the table below. */
  const MOST_SAID = 3;
  function sayMarks(figure, from, to) {
    figure.querySelector(".marks")?.remove();
    const inside = marks().filter((mark) => mark.said && mark.at >= from && mark.at <= to);
    if (!inside.length) return;
    const list = make("ol", "marks aside");
    for (const mark of inside.slice(0, MOST_SAID)) { const item = make("li", mark.look, mark.said); item.value = mark.n; list.append(item); }
    if (inside.length > MOST_SAID) list.append(make("li", "more", `${inside.length - MOST_SAID} more in the list of changes`));
    figure.append(list);
  }
  /* A line per change, with its number; a proven one also says how much, and is not dashed. */
  function drawLines(context, box, x) {
    const taken = [];
    context.save();
    context.font = "11px system-ui"; context.textAlign = "left"; context.textBaseline = "alphabetic";
    for (const mark of marks()) {
      const at = x(mark.at), text = `${mark.n}${mark.effect ? " " + mark.effect : ""}`;
      if (!(at >= box.left && at <= box.left + box.width)) continue;
      context.strokeStyle = context.fillStyle = css("--" + mark.look); context.setLineDash(mark.said ? [] : [4, 3]);
      context.beginPath(); context.moveTo(at, box.top); context.lineTo(at, box.top + box.height); context.stroke();
      const long = context.measureText(text).width + 6, start = at + long > box.left + box.width ? at - long : at + 3;
      let row = 0;
      while (taken.some((each) => each.row === row && each.start < start + long && start < each.end) && row < 5) row++;
      taken.push({ row, start, end: start + long });
      context.fillText(text, start, box.top + 10 + 12 * row);
    }
    context.restore();
  }

  /* Where no time is pointed at, the legend has the last known value of each line. */
  function sayLast(u) {
    if (u.cursor.idx != null) return;
    const last = u.data.map((values) => { let i = values.length - 1; while (i > 0 && values[i] == null) i--; return i; });
    u.setLegend({ idxs: [Math.max(...last.slice(1)), ...last.slice(1)] }, false);
  }

  function draw(figure, t, lines, options) {
    const plot = figure.querySelector(".plot"), said = figure.querySelector(".said");
    const form = options.form || forms.n;
    plot.replaceChildren();
    const known = lines.flatMap((line) => line.values).filter((v) => v != null);
    figure.classList.toggle("empty", !known.length);
    if (!known.length) { said.textContent = "No data in this range."; return; }
    said.textContent = options.said || lines.slice(0, 4).map((line) => {
      const values = line.values.filter((v) => v != null);
      return (line.label ? line.label + ": " : "") + form(Math.min(...values)) + " to " + form(Math.max(...values));
    }).join("; ");
    const colours = [1, 2, 3, 4, 5, 6, 7].map((n) => css("--line" + n));
    const axis = { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--rule"), width: 1 }, font: "11px system-ui" };
    const made = new uPlot({
      width: Math.max(plot.clientWidth, 240), height: options.height || 190, tzDate: zone,
      scales: { x: { time: !options.isLog, distr: options.isLog ? 3 : 1 }, y: { range: (_, low, high) => [Math.min(0, low || 0), (high || 1) * 1.05] } },
      axes: [{ ...axis, values: options.xValues || ((u, ticks) => ticks.map((t) => clock(t, u.scales.x.max - u.scales.x.min))), ...(options.isLog ? {} : { space: 90 }) }, { ...axis, size: 76, values: (_, ticks) => ticks.map(form) }],
      cursor: { y: false, ...(options.cursor || {}) },
      legend: { live: true },
      bands: options.bands,
      series: [{ label: options.xLabel || "UTC", value: options.xValue || ((_, t) => (t == null ? "–" : new Date(t * 1e3).toISOString().slice(0, 16).replace("T", " "))) }, ...lines.map((line, i) => ({
        label: line.label || "value", stroke: colours[i % 7], dash: dashes[Math.floor(i / 1) % 6], width: 1.6, spanGaps: false,
        points: { show: known.length < 4 ? true : undefined, size: 4 }, value: (_, v, __, at) => form(line.own ? line.own[at] : v), ...(line.look || {}),
      }))],
      hooks: { ...(options.isLog ? {} : { draw: [drawMarks], ready: [sayLast], setLegend: [sayLast] }), ...(options.hooks || {}) },
    }, [t, ...lines.map((line) => line.values)], plot);
    charts.push({ made, plot });
    if (!options.isLog) sayMarks(figure, t[0], t[t.length - 1]);
  }

  function drawMarks(u) {
    const ratio = devicePixelRatio || 1, { left, top, width, height } = u.bbox;
    u.ctx.save();
    u.ctx.scale(ratio, ratio);
    drawLines(u.ctx, { left: left / ratio, top: top / ratio, width: width / ratio, height: height / ratio }, (t) => u.valToPos(t, "x", true) / ratio);
    u.ctx.restore();
  }

  async function chart(figure) {
    try {
      const answer = await fetch(figure.dataset.chart);
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      const scale = 1;
      const lines = found.lines.map((line) => ({ label: line.label, values: line.mean.map((v) => (v == null ? null : v * scale)) }));
      const one = found.lines.length === 1 && found.unit_s > 60;
      if (one) lines.push({ label: "highest minute", values: found.lines[0].most });
      draw(figure, found.t_s, lines, { form: forms[figure.dataset.kind] });
      const notes = found.notes || [], more = notes.length - MOST_SAID;
      if (notes.length) figure.querySelector(".said").append(". " + notes.slice(0, MOST_SAID).join("; ") + (more > 0 ? `; ${more} more in the JSON.` : "."));
    } catch (error) { figure.querySelector(".said").textContent = "not loaded: " + error.message; }
  }

  /* Sessions at work, one area on the other. The line of the CPUs only where it is near enough to be seen with them. */
  const NEAR = 6;
  async function load(figure) {
    const said = figure.querySelector(".said");
    try {
      const answer = await fetch(figure.dataset.load);
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      drawLoad(figure, said, found);
    } catch (error) { said.textContent = "not loaded: " + error.message; }
  }

  function drawLoad(figure, said, { t_s, unit_s, lines, is_known, cpus }) {
    const sum = t_s.map(() => null), areas = [];
    for (const line of lines) {
      line.mean.forEach((v, i) => { if (v != null) sum[i] = (sum[i] || 0) + v; });
      const colour = css(areas.length < 7 ? "--line" + (areas.length + 1) : "--muted");
      areas.push({ label: line.label, own: line.mean, values: [...sum], look: { stroke: colour, fill: colour + "99", width: 1, dash: [], points: { show: false } } });
    }
    if (is_known && !areas.length) { said.textContent = "Nobody was at work in this range."; return; }
    const bands = areas.slice(1).map((_, i) => ({ series: [i + 2, i + 1] }));
    const top = Math.max(...sum.map((v) => v || 0)), last = (cpus || []).filter((v) => v != null).at(-1);
    const isNear = last != null && last <= NEAR * Math.max(top, 0.5);
    if (isNear) areas.push({ label: "CPUs", values: cpus, look: { stroke: css("--ink"), dash: [6, 4], width: 1.5, points: { show: false } } });
    const mean = sum.filter((v) => v != null), all = mean.reduce((a, b) => a + b, 0) / (mean.length || 1);
    const beyond = last != null && !isNear ? ` ${short(last)} CPUs, beyond the top of the chart.` : last == null && mean.length ? " The number of CPUs is not known of this time." : "";
    const { from, to, until } = figure.dataset;
    draw(figure, t_s, areas, {
      height: 240, bands, said: `${short(all)} on average, ${short(top)} at most.${beyond}`,
      cursor: { drag: { x: true, y: false, setScale: false } },
      hooks: {
        ready: [sayLast, (u) => {
          if (!from) return;
          const left = Math.max(u.valToPos(Number(from), "x"), 0), right = Math.min(u.valToPos(Number(to), "x"), u.over.clientWidth);
          u.setSelect({ left, width: Math.max(right - left, 2), top: 0, height: u.over.clientHeight }, false);
        }],
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          const since = Math.floor(u.posToVal(u.select.left, "x") / unit_s) * unit_s, till = Math.ceil(u.posToVal(u.select.left + u.select.width, "x") / unit_s) * unit_s;
          const there = new URL(location.href);
          for (const [name, value] of [["from", minuteOf(since)], ["to", minuteOf(till)], ["until", there.searchParams.get("until") || until]]) there.searchParams.set(name, value);
          location.assign(there);
        }],
      },
    });
    addLinks(figure, lines);
  }

  /* A statement in the legend leads to its page. */
  function addLinks(figure, lines) {
    figure.querySelectorAll(".u-legend .u-series .u-label").forEach((label, i) => {
      const address = i > 0 && lines[i - 1] && lines[i - 1].address;
      if (!address) return;
      const link = make("a", "", label.textContent);
      link.href = (document.body.dataset.private || "") + address;
      link.addEventListener("click", (event) => event.stopPropagation());
      label.replaceChildren(link);
    });
  }

  function series(figure) {
    const { t_s, points } = JSON.parse(figure.dataset.series);
    const shows = figure.dataset.shows, label = { threads: "threads", load: "response time per second", calls: "calls per second" }[shows];
    draw(figure, t_s, [{ label, values: points.map((p) => (p == null ? null : p[shows])) }], {});
  }

  function histogram(figure) {
    const { now, before } = JSON.parse(figure.dataset.histogram);
    const group = (rows) => {
      const found = new Map();
      /* Eight points per power of two: enough for the eye; the numbers above are exact. */
      for (const row of rows) { const key = Math.floor(8 * Math.log2(row.high_ns + 1)); found.set(key, (found.get(key) || 0) + row.count); }
      return found;
    };
    const [a, b] = [group(now), group(before)];
    const all = [...a.keys(), ...b.keys()];
    const low = Math.min(...all) - 1, high = Math.max(...all) + 1;
    const keys = Array.from({ length: high - low + 1 }, (_, i) => low + i);
    const ms = keys.map((key) => 2 ** (key / 8) / 1e6);
    const shares = (found) => { const sum = [...found.values()].reduce((x, y) => x + y, 0); return keys.map((key) => (sum ? (found.get(key) || 0) / sum : null)); };
    const label = (v) => (v == null ? "–" : v >= 1 ? +v.toPrecision(3) + " ms" : +(v * 1000).toPrecision(3) + " µs");
    const lines = [{ label: "this range", values: shares(a), look: { paths: uPlot.paths.bars({ size: [0.9] }), fill: css("--line1") + "66", dash: [], points: { show: false } } }];
    if (before.length) lines.push({ label: "the range before", values: shares(b), look: { points: { show: false } } });
    draw(figure, ms, lines, { height: 260, isLog: true, form: forms.share, xLabel: "latency", xValue: (_, v) => label(v), xValues: (_, ticks) => ticks.map((v) => (v == null ? "" : label(v))),
      said: "Share of the calls by latency: " + now.reduce((sum, row) => sum + row.count, 0).toLocaleString("en") + " calls now, " + before.reduce((sum, row) => sum + row.count, 0).toLocaleString("en") + " before." });
  }

  const latency = (ns) => (ns >= 1e9 ? +(ns / 1e9).toPrecision(3) + " s" : ns >= 1e6 ? +(ns / 1e6).toPrecision(3) + " ms" : +(ns / 1e3).toPrecision(3) + " µs");
  async function heat(figure) {
    const plot = figure.querySelector(".plot"), said = figure.querySelector(".said");
    try {
      const answer = await fetch(figure.dataset.heat);
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      drawHeat(figure, plot, said, found);
    } catch (error) { said.textContent = "not loaded: " + error.message; }
  }

  /* One hue, darker for more; a cell's numbers are said below when it is pointed at. */
  function drawHeat(figure, plot, said, { t_s, unit_s, labels, cells, kind, most }) {
    const isLatency = kind === "latency", form = isLatency ? (v) => v.toLocaleString("en") + " calls" : forms[kind] || forms.n;
    const name = (i) => (isLatency ? latency(labels[i]) + " to " + latency(labels[i] * 2 ** 0.25) : String(labels[i]));
    plot.replaceChildren();
    let top = 0, where = null;
    cells.forEach((row, i) => row.forEach((v, j) => { if (v != null && v > top) { top = v; where = [i, j]; } }));
    figure.classList.toggle("empty", !labels.length);
    if (!labels.length) { said.textContent = "No data in this range."; return; }
    const at = (j) => new Date(t_s[j] * 1e3).toISOString().slice(0, 16).replace("T", " ");
    const rest = where ? `Highest: ${form(top)}, ${name(where[0])}, ${at(where[1])}. Darker is more.` : "Nothing in this range.";
    said.textContent = rest;
    const canvas = document.createElement("canvas"), ratio = devicePixelRatio || 1, left = 76, foot = 18;
    const width = Math.max(plot.clientWidth, 240), each = Math.max(3, Math.min(20, Math.floor(320 / labels.length))), height = each * labels.length;
    canvas.width = width * ratio; canvas.height = (height + foot) * ratio;
    canvas.style.width = width + "px"; canvas.style.height = height + foot + "px";
    const context = canvas.getContext("2d"), step = (width - left) / t_s.length;
    context.scale(ratio, ratio);
    const scale = most || top || 1;
    /* Latencies rise upwards, as in every chart; cores and devices are a list. */
    const y = (i) => (isLatency ? labels.length - 1 - i : i) * each;
    context.fillStyle = css("--grid");
    context.fillRect(left, 0, width - left, height);
    context.fillStyle = css("--line1");
    cells.forEach((row, i) => row.forEach((v, j) => {
      if (v == null || v <= 0) return;
      /* Few calls among many are what is looked for: they stay visible. */
      context.globalAlpha = 0.12 + 0.88 * (isLatency ? Math.log1p(v) / Math.log1p(scale) : Math.min(v / scale, 1));
      context.fillRect(left + j * step, y(i), Math.max(step, 1), each - (each > 5 ? 1 : 0));
    }));
    context.globalAlpha = 1;
    drawLines(context, { left, top: 0, width: width - left, height }, (t) => left + ((t - t_s[0]) / unit_s) * step);
    sayMarks(figure, t_s[0], t_s[t_s.length - 1] + unit_s);
    context.fillStyle = css("--soft"); context.font = "11px system-ui"; context.textBaseline = "middle"; context.textAlign = "right";
    const every = Math.ceil(14 / each);
    labels.forEach((label, i) => { if (i % every === 0) context.fillText(isLatency ? latency(label) : String(label).slice(0, 12), left - 6, Math.max(y(i) + each / 2, 6)); });
    context.textAlign = "center";
    const span = t_s[t_s.length - 1] - t_s[0] + unit_s, ticks = Math.max(Math.floor((width - left) / 110), 2);
    for (let k = 0; k < ticks; k++) { const j = Math.floor(((k + 0.5) / ticks) * t_s.length); context.fillText(clock(t_s[j], span), left + (j + 0.5) * step, height + foot / 2 + 2); }
    canvas.addEventListener("pointermove", (event) => {
      const j = Math.floor((event.offsetX - left) / step), k = Math.floor(event.offsetY / each), i = isLatency ? labels.length - 1 - k : k;
      const v = cells[i] && j >= 0 ? cells[i][j] : undefined;
      said.textContent = v === undefined ? rest : `${name(i)}, ${at(j)}: ${v == null ? "nothing known" : form(v)}`;
    });
    canvas.addEventListener("pointerleave", () => { said.textContent = rest; });
    plot.append(canvas);
  }

  function redraw() {
    charts.splice(0).forEach(({ made }) => made.destroy());
    document.querySelectorAll("[data-series]").forEach(series);
    document.querySelectorAll("[data-histogram]").forEach(histogram);
    document.querySelectorAll("[data-chart], [data-heat], [data-load]").forEach((figure) => seen.observe(figure));
  }
  /* A chart is asked for when it comes near. */
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { seen.unobserve(entry.target); const { heat: cells, load: sessions } = entry.target.dataset; (cells ? heat : sessions ? load : chart)(entry.target); }
  }), { rootMargin: "300px" });

  /* A column beyond the edge is one that nobody sees: a table that does not fit is folded into cards. */
  function fold() {
    document.querySelectorAll(".listing").forEach((table) => {
      table.classList.remove("folded");
      table.classList.toggle("folded", table.scrollWidth > table.parentElement.clientWidth + 1);
    });
  }

  function live(section) {
    const state = document.getElementById("live-state"), keys = document.getElementById("live-keys"), cores = document.getElementById("live-cores");
    const key = (title, value, note) => { const box = make("div", "key"); box.append(make("p", "key-title", title), make("p", "key-value", value), make("p", "key-note", note || "")); return box; };
    const show = (data) => {
      const bad = data.link !== "live";
      state.classList.toggle("bad", bad);
      state.textContent = bad ? `${data.link}: ${data.problem || ""}${data.age_s == null ? "" : `; last sample ${Math.round(data.age_s)} s ago`}` : "one sample per second";
      const shot = data.shot;
      if (!shot) return;
      const all = shot.cpus.find((c) => c.name === "all");
      const server = shot.server;
      const found = [];
      if (all) found.push(key("CPU", forms.share(all.busy), `${forms.share(all.iowait)} waits for I/O (idle)`));
      if (shot.memory.total_bytes) found.push(key("Memory in use", forms.share(1 - shot.memory.available_bytes / shot.memory.total_bytes), short(shot.memory.total_bytes) + "B"));
      found.push(key("Waiting for CPU", forms.share(shot.pressure.cpu), "share of the time (PSI)"), key("Waiting for I/O", forms.share(shot.pressure.io), "share of the time (PSI)"));
      if (server) found.push(key("Questions", forms.rate(server.rates_s.questions), server.name || ""), key("Threads running", short(server.threads_running), `${short(server.threads_connected)} connected`), key("Row lock waits", forms.rate(server.rates_s.innodb_row_lock_waits), `history list ${short(server.innodb_history_list_length)}`));
      shot.memcached.slice(0, 4).forEach((c) => found.push(key("memcached " + c.name, `${forms.rate(c.requests_s)}`, c.not_read ? "not read: " + c.not_read : `hits ${forms.share(c.hit_rate)}, evictions ${forms.rate(c.evictions_s)}, ${short(c.connections)}${c.connections_limit ? " of " + short(c.connections_limit) : ""} connections`)));
      shot.devices.filter((d) => d.operations >= 1).sort((a, b) => b.operations - a.operations).slice(0, 4).forEach((d) => found.push(key(d.name, forms.rate(d.operations), `${short(d.bytes_s)}B/s, ${short(d.queue)} in flight`)));
      keys.replaceChildren(...found);
      cores.classList.toggle("many", shot.cpus.length > 33);
      cores.replaceChildren(...shot.cpus.filter((c) => c.name !== "all").map((core) => {
        const row = make("div", "corebar"), track = make("span", "track");
        for (const part of ["user", "system", "irq", "softirq", "steal", "iowait"]) { const piece = make("span", "part-" + part); piece.style.width = 100 * core[part] + "%"; track.append(piece); }
        row.title = ["user", "system", "irq", "softirq", "steal", "iowait"].map((part) => `${part} ${forms.share(core[part])}`).join(", ");
        row.append(make("span", "", core.name), track, make("span", "n", forms.share(core.busy)));
        return row;
      }));
    };
    let source;
    const open = () => {
      source = new EventSource(section.dataset.live);
      source.onmessage = (event) => show(JSON.parse(event.data));
      /* A browser tries again after a lost connection, but not after an answer that refuses. */
      source.onerror = () => { state.classList.add("bad"); state.textContent = source.readyState === EventSource.CLOSED ? "no longer updated: reload this page" : "lost the connection to headrace; reconnecting"; };
    };
    /* A page that nobody sees asks for nothing. */
    document.addEventListener("visibilitychange", () => { source.close(); if (!document.hidden) open(); });
    addEventListener("pagehide", () => source.close());
    open();
  }

  /* What is asked for on the server is shown as text in the element that the form names. */
  function ask(form) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const shown = document.getElementById(form.dataset.ask);
      shown.hidden = false; shown.textContent = "asking …";
      try {
        const answer = await fetch(form.action, { method: "POST", headers: { "x-csrf-token": document.body.dataset.token }, body: new URLSearchParams(new FormData(form)) });
        const found = await answer.json();
        shown.textContent = found.text || found.error;
      } catch (error) { shown.textContent = "not answered: " + error.message; }
    });
  }

  /* On a narrow screen the page's name may be beyond the edge. */
  const here = document.querySelector("nav a[aria-current]"), bar = here?.parentElement;
  if (bar && bar.scrollWidth > bar.clientWidth) bar.scrollLeft = here.offsetLeft - (bar.clientWidth - here.offsetWidth) / 2;
  document.querySelectorAll("[data-live]").forEach(live);
  document.querySelectorAll("[data-ask]").forEach(ask);
  /* On a phone a page begins with what changed, and its other sections are opened by whoever wants them. */
  if (innerWidth <= 760) {
    const changes = document.querySelector("#changes .fold");
    document.querySelectorAll(".fold").forEach((each) => { each.open = each === changes; });
    if (changes) document.getElementById("main").prepend(document.getElementById("changes"));
  }
  const opened = () => { const wanted = document.getElementById(location.hash.slice(1))?.querySelector(".fold"); if (wanted) wanted.open = true; };
  addEventListener("hashchange", opened);
  document.querySelectorAll(".fold").forEach((each) => each.addEventListener("toggle", fold));
  opened();
  fold();
  redraw();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; fold(); redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
