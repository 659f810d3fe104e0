"use strict";
(async () => {
  // ---- the library that draws, and the data: five letters are four bytes, which are compressed
  const unpack = async (id) => {
    const element = document.getElementById(id);
    const text = element.textContent, size = Number(element.dataset.size);
    const bytes = new DataView(new ArrayBuffer(text.length / 5 * 4));
    for (let i = 0; i < text.length; i += 5) {
      let value = 0;
      for (let k = i; k < i + 5; k++) {
        const code = text.charCodeAt(k);
        value = value * 85 + (code === 125 ? 60 : code) - 40;
      }
      bytes.setUint32(i / 5 * 4, value);
    }
    const packed = new Blob([bytes]).slice(0, size);  // the last group may be filled up
    const stream = packed.stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).text();
  };
  const library = document.createElement("script");
  library.textContent = await unpack("library");
  document.head.append(library);  // the page's policy knows its hash

  const data = JSON.parse(await unpack("data"));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const byId = (id) => document.getElementById(id);
  let printing = false;
  let touched = false;  // before the first choice nothing is dimmed
  const PAPER = { "--ink": "#22262b", "--grid": "#e6e9ed", "--card": "#f5f6f8" };
  const PAPER_WIDTH = 680, NARROW = 460;
  const checked = document.querySelector("#parts input:checked");
  let chosen = checked ? Number(checked.value) : null;
  const drawn = new Map();  // element -> the figure it shows, before colours

  // ---- colours: the middle of a diverging scale is the page itself
  const scales = () => {
    const night = dark.matches && !printing;
    const middle = night ? "#2b3036" : "#f7f7f7";
    return {
      signed: [[0, night ? "#4393c3" : "#2166ac"], [0.25, night ? "#315e7c" : "#92c5de"], [0.5, middle],
        [0.75, night ? "#8f4a3a" : "#f4a582"], [1, night ? "#e8735c" : "#b2182b"]],
      angles: [[0, night ? "#f0a030" : "#b35806"], [0.25, night ? "#8a6530" : "#fdb863"], [0.5, middle],
        [0.75, night ? "#6b5a96" : "#b2abd2"], [1, night ? "#a58bdc" : "#542788"]],
      amount: night
        ? [[0, "#1e2226"], [0.5, "#5d7a9c"], [1, "#ffe27a"]]
        : [[0, "#eef1f5"], [0.5, "#6f9bc8"], [1, "#08306b"]],
    };
  };

  const themed = (figure) => {
    const css = getComputedStyle(document.documentElement);
    // Styles for paper do not hold yet when the browser asks for the pictures.
    const colour = (name) => (printing ? PAPER[name] : css.getPropertyValue(name).trim());
    const ink = colour("--ink"), grid = colour("--grid");
    const named = scales();
    const traces = figure.data.map((trace) => {
      const scale = trace.meta && trace.meta.scale;
      const copy = Object.assign({}, trace);
      if (scale) copy.colorscale = named[scale];
      if (trace.meta && trace.meta.component) copy.opacity = !touched || trace.meta.component === chosen ? 1 : 0.2;
      return copy;
    });
    const axis = (given) => Object.assign({ automargin: true, gridcolor: grid, linecolor: grid, zerolinecolor: grid }, given);
    const layout = Object.assign({
      margin: { l: 48, r: 12, t: 16, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 12, family: getComputedStyle(document.body).fontFamily },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: grid, font: { color: ink } },
      dragmode: false, height: figure.height,
    }, figure.layout);
    for (const key of Object.keys(layout)) if (/^[xy]axis/.test(key)) layout[key] = axis(layout[key]);
    return [traces, layout];
  };

  const narrow = (traces, layout) => {  // what stood beside the picture goes above it
    if (layout.yaxis && layout.yaxis.scaleanchor) layout.height = Math.min(layout.height, layout.width + 60);
    for (const trace of traces) {
      if (trace.colorbar) trace.colorbar = Object.assign({}, trace.colorbar, { orientation: "h", y: 1, yanchor: "bottom", thickness: 10, x: 0.5, len: 0.9 }, trace.colorbar.tickvals ? { ticktext: trace.colorbar.tickvals.map((v) => v + "°") } : {});
    }
    if (traces.length > 1) layout.legend = Object.assign({}, layout.legend, { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } });
  };

  const listen = (element) => {  // a click on a picture chooses, too
    if (!["plot-angles", "plot-map"].includes(element.id)) return;
    element.on("plotly_click", (event) => {
      const point = event.points[0], meta = point.data.meta;
      const number = meta && meta.component ? meta.component : Number(point.y);
      const radio = byId("parts").querySelector(`input[value="${number}"]`);
      if (radio) { touched = true; radio.checked = true; pick(number); }
    });
  };

  const draw = (element, figure) => {
    if (!element || element.hidden) return;
    drawn.set(element, figure);
    const [traces, layout] = themed(figure);
    const paper = element.closest(".pair") ? PAPER_WIDTH / 2 - 10 : PAPER_WIDTH - 40;
    layout.width = (printing ? paper : element.clientWidth) || undefined;
    const slim = String(layout.width < NARROW);
    if (slim === "true") narrow(traces, layout);
    const options = { displayModeBar: false, responsive: false };
    if (element.dataset.slim === slim) {
      window.Plotly.react(element, traces, layout, options);
    } else {  // legends and scales change places: begin anew, or the old ones keep their margins
      element.dataset.slim = slim;
      window.Plotly.newPlot(element, traces, layout, options);
      listen(element);
    }
  };
  const redraw = () => { for (const [element, figure] of drawn) draw(element, figure); };

  // ---- pictures that do not change
  for (const element of document.querySelectorAll("[data-chart]")) draw(element, data.charts[element.dataset.chart]);

  // ---- the chosen component
  const bars = (panel) => {
    const n = panel.values.length, places = panel.values.map((_, i) => n - 1 - i);
    return {
      height: 70 + 21 * n,
      data: [{ type: "bar", orientation: "h", x: panel.values, y: places, text: panel.names,
        textposition: "none",
        hovertemplate: "%{text}: %{x:.3g}<extra></extra>",
        marker: { color: panel.values.map((v) => (v < 0 ? "#56B4E9" : "#D55E00")) } },
      ...(panel.low ? [{ type: "scatter", mode: "lines", x: panel.low.flatMap((low, i) => [low, panel.high[i], null]),
        y: places.flatMap((place) => [place, place, null]), hoverinfo: "skip", showlegend: false,
        line: { color: "#8A8F98", width: 2 } }] : [])],
      layout: { margin: { l: 10, r: 12, t: 6, b: 36 }, showlegend: false, xaxis: { zeroline: true },
        yaxis: { tickvals: places, ticktext: panel.labels, showgrid: false, range: [-0.6, n - 0.4], ticks: "", fixedrange: true } },
    };
  };
  const picture = (rows) => {
    const reach = Math.max(1e-12, ...rows.flat().map(Math.abs));
    return {
      height: 230,
      data: [{ type: "heatmap", z: rows, zmin: -reach, zmax: reach, meta: { scale: "signed" },
        hovertemplate: "row %{y}, column %{x}: %{z:.3g}<extra></extra>",
        showscale: false }],
      layout: { margin: { l: 6, r: 6, t: 6, b: 6 }, xaxis: { visible: false, constrain: "domain" },
        yaxis: { visible: false, autorange: "reversed", scaleanchor: "x", constrain: "domain" } },
    };
  };
  const frame = (number) => {  // around the line and the column of the chosen one
    const heat = byId("plot-angles"), figure = heat && drawn.get(heat);
    if (!figure) return;
    const n = figure.data[0].y.length, line = { color: "#0072B2", width: 2 };
    const k = number - 1;
    figure.layout.shapes = number > n ? [] : [
      { type: "rect", x0: -0.5, x1: n - 0.5, y0: k - 0.5, y1: k + 0.5, line },
      { type: "rect", y0: -0.5, y1: n - 0.5, x0: k - 0.5, x1: k + 0.5, line }];
    draw(heat, figure);
  };
  const showPanel = () => {
    const part = data.parts[chosen - 1], select = byId("panel");
    draw(byId("plot-weights"), bars(part.weights[Math.min(select.selectedIndex < 0 ? 0 : select.selectedIndex, part.weights.length - 1)]));
  };
  const pick = (number) => {
    const part = data.parts[number - 1];
    chosen = number;
    byId("detail-name").textContent = part.name[0].toUpperCase() + part.name.slice(1) + ", " + part.rarity;
    byId("detail-words").textContent = part.purpose.join(" ");
    const select = byId("panel"), kept = select.selectedIndex;
    select.replaceChildren(...part.weights.map((panel, i) => {
      const option = document.createElement("option");
      option.value = String(i); option.textContent = panel.title;
      return option;
    }));
    select.selectedIndex = Math.max(0, Math.min(kept, part.weights.length - 1));
    byId("panel-label").hidden = part.weights.length < 2;
    byId("plot-image").hidden = !part.image;
    if (part.image) draw(byId("plot-image"), picture(part.image));
    showPanel();
    frame(number);
    const map = byId("plot-map");
    if (map && drawn.has(map)) draw(map, drawn.get(map));
  };
  const table = byId("parts");
  if (table) {
    table.addEventListener("change", (event) => { touched = true; if (event.target.name === "part") pick(Number(event.target.value)); });
    table.tBodies[0].addEventListener("click", (event) => {
      const radio = event.target.closest("tr").querySelector("input");
      if (event.target !== radio && !event.target.closest("label")) { touched = true; radio.checked = true; radio.focus(); pick(Number(radio.value)); }
    });
    byId("panel").addEventListener("change", showPanel);
    pick(chosen);
  }

  // ---- chains
  const showQuantity = () => {
    const chain = data.chains[Number(byId("quantity").value)];
    const n = chain.ranks[0].length;
    draw(byId("plot-trace"), { height: 340,
      data: chain.traces.map((y, c) => ({ type: "scatter", mode: "lines", name: `chain ${c + 1}`, x: chain.draws, y,
        line: { width: 1.2, color: chain.colours[c] }, hovertemplate: "draw %{x}: %{y:.4g}<extra>%{fullData.name}</extra>" })),
      layout: { xaxis: { title: { text: "draw" } }, yaxis: {}, showlegend: chain.traces.length > 1, legend: { orientation: "h", y: 1.15 } } });
    draw(byId("plot-ranks"), { height: 340,
      data: chain.ranks.map((y, c) => ({ type: "bar", name: `chain ${c + 1}`, x: y.map((_, i) => i + 1), y, marker: { color: chain.colours[c] },
        hovertemplate: "tenth %{x} of the ranks: %{y} draws<extra>%{fullData.name}</extra>" })),
      layout: { barmode: "group", bargap: 0.25, xaxis: { title: { text: "tenth of the ranks, low to high" }, dtick: 1 }, yaxis: { title: { text: "draws" } },
        showlegend: false, shapes: [{ type: "line", x0: 0.5, x1: n + 0.5, y0: chain.expected, y1: chain.expected, line: { color: "#8A8F98", dash: "dot", width: 1.5 } }] } });
  };
  if (byId("quantity")) { byId("quantity").addEventListener("change", showQuantity); showQuantity(); }

  // ---- sorting
  for (const button of document.querySelectorAll(".sort")) {
    button.addEventListener("click", () => {
      const head = button.closest("th"), place = head.cellIndex, body = head.closest("table").tBodies[0];
      const now = head.getAttribute("aria-sort");
      const next = now === "none" ? button.dataset.first : now === "ascending" ? "descending" : "ascending";
      for (const other of head.parentElement.children) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1, numeric = button.dataset.kind === "number";
      const value = (row) => row.cells[place].dataset.value;
      const compare = (a, b) => {
        const x = value(a), y = value(b);
        if (x === "" || y === "") return (x === "") - (y === "");  // unknown ones last
        return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y));
      };
      body.append(...[...body.rows].sort(compare));
    });
  }

  // ---- light, dark, paper, width
  dark.addEventListener("change", redraw);
  let waiting = 0;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 120); });
  window.addEventListener("beforeprint", () => { printing = true; redraw(); });
  window.addEventListener("afterprint", () => { printing = false; redraw(); });
  document.documentElement.dataset.ready = "yes";
})();
