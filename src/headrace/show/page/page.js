"use strict";
(() => {
  const root = document.documentElement;
  const touch = matchMedia("(pointer: coarse)").matches;
  const state = { share: "busy" };

  const css = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // "@{better/0.4}" -> "rgba(...)" of the current scheme, anywhere in a figure's strings.
  function colour(_, name, alpha) {
    const hex = css(name);
    if (!alpha) return hex;
    const part = (i) => parseInt(hex.slice(i, i + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
  }
  function themed(value) {
    if (typeof value === "string") return value.includes("@{") ? value.replace(/@\{(\w+)(?:\/([\d.]+))?\}/g, colour) : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(themed);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, themed(v)]));
    return value;
  }

  function unpack(trace) {
    const bytes = atob(trace.cells[state.share]);
    const [rows, columns] = trace.shape;
    const at = (i) => (bytes.charCodeAt(i) === 255 ? null : bytes.charCodeAt(i));
    trace.z = Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) => at(r * columns + c)));
    trace.zmax = trace.tops[state.share];
    const steps = css("heat").split(",").map((step) => step.trim());
    trace.colorscale = steps.map((step, i) => [i / (steps.length - 1), step]);
    delete trace.cells;
  }

  // The library takes null for an error of 0 and draws its caps. An unknown interval is none.
  function hideUnknown(trace) {
    for (const bars of [trace.error_x, trace.error_y].filter(Boolean)) {
      bars.array = bars.array.map((value) => value ?? NaN);
      bars.arrayminus = bars.arrayminus.map((value) => value ?? NaN);
    }
  }

  // Long row names would leave no room for the chart on a narrow screen. "kernel=6.1 chunk=4K" gives up its keys first,
  // which are the same for all; then the middle goes: what tells levels apart stands at both ends. On a narrow screen,
  // and where the ends of two names are alike, the names go above their rows instead.
  function fitRows(figure, width) {
    const { layout } = figure;
    const split = (name) => name.match(/&\w+;|./gsu) || [];
    const cut = (name, most) => {
      const characters = split(name);
      if (characters.length <= most) return name;
      return [...characters.slice(0, Math.ceil(most / 2) - 1), "…", ...characters.slice(-Math.floor(most / 2))].join("");
    };
    const fit = (names, most) => names.every((name) => split(name).length <= most);
    const beside = Math.max(10, Math.floor(width / 19));
    if (fit(layout.meta.rows, beside)) return;
    const names = layout.meta.rows.map((name) => {
      const words = name.split(" ");
      const hasKeys = words.length > 1 && words.every((word) => word.includes("=") || /^[@(]/.test(word));
      return hasKeys ? words.map((word) => word.slice(word.indexOf("=") + 1)).join(" ") : name;
    });
    layout.yaxis.ticktext = names.map((name) => cut(name, beside));
    const isUnique = new Set(layout.yaxis.ticktext).size === new Set(names).size;
    if (fit(names, beside) || (isUnique && width >= 480)) return;
    layout.height += 16 * names.length;
    layout.yaxis.showticklabels = false;
    figure.data.forEach((trace) => {
      trace.y = trace.y.map((row) => row + 0.2);
      if (trace.width) trace.width = 0.42;
    });
    const above = names.map((name, row) => ({
      text: cut(name, Math.floor(width / 7)), x: 0, xref: "paper", xanchor: "left", y: row - 0.28, showarrow: false,
    }));
    layout.annotations = [...(layout.annotations || []), ...above];
  }

  // Too many ratios beside each other are turned and cover the title. 1× stays.
  function thinRatios(axis, width) {
    const one = axis && axis.ticktext ? axis.ticktext.indexOf("1×") : -1;
    if (one < 0 || axis.ticktext.length * 60 <= width) return;
    const isKept = (_, i) => (i - one) % 2 === 0;
    axis.tickvals = axis.tickvals.filter(isKept);
    axis.ticktext = axis.ticktext.filter(isKept);
  }

  // A long title of the x axis goes on below.
  function wrapTitle(layout, width) {
    const title = layout.xaxis && layout.xaxis.title;
    const most = Math.floor(width / 7);
    if (!title || !title.text || !layout.margin || title.text.length <= most || title.text.includes("<br>")) return;
    const lines = [""];
    for (const word of title.text.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
      lines.push(`${lines.pop()} ${word}`.trim());
    }
    title.text = lines.join("<br>");
    layout.margin.b += 15 * (lines.length - 1);
    layout.height += 15 * (lines.length - 1);
  }

  function axisDefaults(layout) {
    for (const key of Object.keys(layout).filter((k) => /^[xy]axis\d*$/.test(k))) {
      layout[key] = {
        gridcolor: css("grid"), linecolor: css("rule"), zerolinecolor: css("rule"), tickcolor: css("rule"),
        ...layout[key],
      };
      if (layout[key].title) layout[key].title.font = { size: 12, color: css("soft") };
      if (touch) layout[key].fixedrange = true;
    }
  }

  // The chart library is in the page as base64 of gzip. Its script is one that the policy names by hash.
  async function unpackLibrary() {
    const bytes = Uint8Array.from(atob(document.getElementById("library").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    script.remove();
    return Plotly.version;
  }

  function draw(place) {
    if (!window.Plotly || place.hidden || place.offsetWidth === 0) return;
    const figure = themed(JSON.parse(document.getElementById(place.dataset.figure).textContent));
    figure.data.filter((trace) => trace.cells).forEach(unpack);
    figure.data.forEach(hideUnknown);
    const layout = figure.layout;
    if (layout.meta && layout.meta.rows) fitRows(figure, place.offsetWidth);
    thinRatios(layout.xaxis, place.offsetWidth);
    wrapTitle(layout, place.offsetWidth);
    axisDefaults(layout);
    layout.autosize = true;
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = layout.plot_bgcolor || "rgba(0,0,0,0)";
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("soft") };
    layout.hoverlabel = { bgcolor: css("card"), bordercolor: css("rule"), font: { color: css("ink"), size: 12 }, namelength: 40 };
    layout.dragmode = touch ? false : "zoom";
    place.style.minHeight = `${layout.height}px`;
    Plotly.react(place, figure.data, layout, { responsive: true, displayModeBar: false, doubleClick: "reset" });
    place.dataset.drawn = "1";
  }

  const places = [...document.querySelectorAll(".plot")];
  const near = new IntersectionObserver(
    (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => { near.unobserve(e.target); draw(e.target); }),
    { rootMargin: "600px" },
  );
  unpackLibrary().then(
    () => places.forEach((place) => near.observe(place)),
    () => { document.getElementById("no-charts").hidden = false; },
  );

  function redraw(wanted) {
    places.filter((p) => wanted(p) && p.dataset.drawn).forEach(draw);
  }

  document.querySelectorAll("[data-switch]").forEach((group) => {
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const name = group.dataset.switch;
      state[name] = button.value;
      group.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
      document.querySelectorAll(`[data-when="${name}"]`).forEach((part) => { part.hidden = part.dataset.is !== button.value; });
      redraw((p) => p.dataset.uses === name);
    });
  });

  document.querySelectorAll("[data-chooses]").forEach((select) => {
    select.addEventListener("change", () => {
      const place = document.getElementById(select.dataset.chooses);
      place.dataset.figure = select.value;
      draw(place);
    });
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(() => true));
  // A printed page is light and shows everything, drawn so far or not. The media change comes once the page has
  // its printed width and colours.
  matchMedia("print").addEventListener("change", () => places.forEach(draw));
})();
