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

  // Long row names would leave no room for the chart on a narrow screen. "kernel=6.1 chunk=4K" gives up its keys first,
  // which are the same for all; then the middle goes: what tells levels apart stands at both ends.
  function fitRows(layout, width) {
    const most = Math.max(10, Math.floor(width / 19));
    const split = (name) => name.match(/&\w+;|./gsu) || [];
    layout.yaxis.ticktext = layout.meta.rows.map((name) => {
      if (split(name).length <= most) return name;
      const words = name.split(" ");
      const hasKeys = words.length > 1 && words.every((word) => word.includes("=") || /^[@(]/.test(word));
      const bare = hasKeys ? words.map((word) => word.slice(word.indexOf("=") + 1)).join(" ") : name;
      const characters = split(bare);
      if (characters.length <= most) return bare;
      return [...characters.slice(0, Math.ceil(most / 2) - 1), "…", ...characters.slice(-Math.floor(most / 2))].join("");
    });
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
    const layout = figure.layout;
    if (layout.meta && layout.meta.rows) fitRows(layout, place.offsetWidth);
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
