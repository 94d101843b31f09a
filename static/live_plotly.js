/* A live chart. `show` is called with a figure whenever there is a new one; see fedviz/ui/live_plotly.py for what it makes of the
 * page, and fedviz/figures/drawing.py for the words in `meta`.
 *
 * Pointing at a round shows the values there in the legends of all charts that are linked (meta.link), with a line in each: no box
 * covers a curve, and nothing has to be kept in step but one number. Charts know of one another through one set on the window. */

const NARROW = 640; // px, below which side panels are left out
const ROOM = 1 / 18; // beyond the lowest and the highest in view, as a share of what is between them: plotly's own
const FLAT = { linear: 1e-3, log: 0.02 }; // what is flatter, as a share of its height or in powers of ten, is not blown up further
const PERCENT = "\u00a0%"; // no line ends between a number and its sign
const charts = (window.__fedvizCharts ??= new Set());
const here = (name) => new URL(name + new URL(import.meta.url).search, import.meta.url).href;

let libraries;
function plotly() {
  return (libraries ??= new Promise((loaded, failed) => {
    const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: here("live_plotly.css") });
    const styled = new Promise((done) => { style.onload = style.onerror = done; });
    const script = Object.assign(document.createElement("script"), { src: here("plotly-basic.min.js") });
    script.onload = () => styled.then(() => loaded(window.Plotly));
    script.onerror = () => failed(new Error("plotly.js could not be loaded: reload the page"));
    document.head.append(style, script);
  }));
}

export function show({ data, parentElement, setStateValue }) {
  const host = parentElement.querySelector(".live-chart");
  if (!host || !data) return () => {};
  host.chart ??= new Chart(host);
  host.chart.tellFocus = (focus) => setStateValue("focus", focus);
  host.chart.receive(data);
  return () => { host.chart?.close(); host.chart = null; };
}

/* Hands each of the new figures to the chart with its key; see fedviz/ui/live_plotly.py for how they come. */
export function feed(data) {
  const bytes = new DataView(data.buffer, data.byteOffset, data.byteLength);
  for (let at = 0; at < data.length;) {
    const keyEnd = at + 1 + data[at], begin = keyEnd + 4, end = begin + bytes.getUint32(keyEnd, true);
    const key = String.fromCharCode(...data.subarray(at + 1, keyEnd));
    for (const chart of charts) if (chart.key === key) chart.receive(data.subarray(begin, end));
    at = end;
  }
}

class Chart {
  constructor(host) {
    this.host = host;
    this.hidden = new Set(); // names of legend entries switched off; ours, so that it outlives the data
    this.zoomed = new Map(); // axis -> the range that the visitor has chosen, and of what axis; ours, for the same reason
    this.pointed = null; // the round pointed at on any linked chart
    host.setAttribute("role", "figure");
    host.innerHTML = `<header><div class="title-line"><span class="title"></span><span class="at"></span><span class="save" hidden></span></div>
      <div class="legend"></div><div class="notes"></div></header><div class="live-plotly"></div>`;
    [this.title, this.at, this.legend, this.notes, this.plot] =
      [".title", ".at", ".legend", ".notes", ".live-plotly"].map((name) => host.querySelector(name));
    this.reset = Object.assign(document.createElement("button"), { className: "reset", textContent: "Reset zoom", hidden: true });
    this.reset.onclick = () => this.forgetZoom();
    this.at.after(this.reset);
    for (const format of ["png", "svg"]) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: format.toUpperCase(), title: `Save the chart as ${format.toUpperCase()}` });
      button.onclick = () => this.save(format);
      host.querySelector(".save").append(button);
    }
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerdown", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") tell(this.link, null); });
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(this.plot);
    charts.add(this);
  }

  /* A message: two bytes of height, and the figure as compressed JSON. */
  async receive(message) {
    this.received = message;
    try {
      const json = new Blob([message.subarray(2)]).stream().pipeThrough(new DecompressionStream("deflate"));
      const figure = await new Response(json).json();
      if (this.received === message && !this.closed) this.update(figure);
    } catch (error) {
      if (this.host.isConnected) this.legend.textContent = `The chart could not be read: ${error.message}. A newer browser may help.`;
    }
  }

  update(figure) {
    this.key = figure.key;
    this.next = figure;
    if (this.busy) return; // the drawing in progress goes on with the newest figure
    this.busy = true;
    this.draw()
      .catch((error) => { if (this.host.isConnected) this.legend.textContent = error.message; })
      .finally(() => { this.busy = false; });
  }

  async draw() {
    const library = await plotly();
    while (this.next && !this.closed) {
      const { key, height, spec, alt } = this.shown = this.next;
      this.next = null;
      this.host.style.minHeight = ""; // that was before the code was there
      this.plot.style.height = `${height}px`;
      this.plot.dataset.chart = key;
      this.host.setAttribute("aria-label", alt);
      this.narrow = this.plot.clientWidth < NARROW;
      this.write(spec);
      if (this.invisible()) continue; // a closed sidebar; `resize` draws when it opens
      const { data, layout } = this.dressed(spec);
      if (this.axes?.some((name) => !layout[name])) { // plotly draws what is left of a panel that goes at no place at all
        library.purge(this.plot);
        this.listening = false;
      }
      this.axes = axes(layout);
      const touch = matchMedia("(hover: none)").matches; // a swipe scrolls the page, not the plot
      await library.react(this.plot, data, layout, { displayModeBar: false, staticPlot: touch, doubleClick: false, responsive: false });
      if (!this.listening && this.plot.on) {
        this.listening = true;
        this.plot.on("plotly_relayout", (change) => {
          const axes = Object.keys(change).filter((name) => /axis\d*\.range/.test(name)).map((name) => name.split(".")[0]);
          if (!axes.length) return;
          const layout = this.plot._fullLayout;
          for (const name of axes) {
            const own = leader(layout, name);
            this.zoomed.set(own, { range: [...layout[name].range], about: about(this.shown.spec.layout, own) });
          }
          this.reset.hidden = false;
          this.redraw();
          this.look();
        });
        this.plot.on("plotly_doubleclick", () => this.forgetZoom());
      }
      this.mark();
      this.host.querySelector(".save").hidden = false;
    }
  }

  redraw() { if (this.shown) this.update(this.next ?? this.shown); }

  forgetZoom() { this.zoomed.clear(); this.reset.hidden = true; this.redraw(); this.look(null); }

  /* Asks for all points of the rounds zoomed in on, where there are more of them than are drawn. */
  look(focus = this.plot._fullLayout.xaxis.range.map((round, end) => Math.max(0, end ? Math.ceil(round) : Math.floor(round)))) {
    if (focus && !this.shown.spec.data.some((trace) => trace.meta.thinned)) return;
    if (JSON.stringify(focus) === JSON.stringify(this.focus ?? null)) return;
    this.focus = focus;
    this.tellFocus(focus);
  }

  /* The figure as plotly gets it: arrays unpacked, the page's colours, hidden curves, panels that fit. */
  dressed(spec) {
    const css = getComputedStyle(this.host);
    const theme = (name) => css.getPropertyValue(`--st-${name}`).trim();
    const text = theme("text-color") || css.color;
    const { title, meta, ...layout } = structuredClone(spec.layout);
    let data = spec.data.map((trace) => {
      const shown = trace.visible !== false && this.hidden.has(entry(trace)) ? { visible: "legendonly" } : {};
      return { ...unpacked(trace), ...shown };
    });
    if (this.narrow) data = withoutPanels(data, layout, meta.panels);
    for (const name of axes(layout)) {
      layout[name] = { gridcolor: mixed(text, 0.12), linecolor: mixed(text, 0.3), ...layout[name] };
      if (layout[name].title) layout[name].title.font = { size: 12 };
    }
    for (const shape of layout.shapes ?? []) if (shape.name === "veil") shape.fillcolor = mixed(theme("background-color") || "white", 0.5);
    for (const [name, zoom] of this.zoomed) if (zoom.about !== about(layout, name)) this.zoomed.delete(name);
    this.reset.hidden = !this.zoomed.size;
    fit(data, layout, new Map([...this.zoomed].map(([name, zoom]) => [name, zoom.range])));
    return {
      data,
      layout: {
        ...layout, autosize: true, showlegend: false,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: text, family: theme("font") || css.fontFamily, size: this.plot.clientWidth < 400 ? 12 : 13 },
      },
    };
  }

  /* The chart as a picture of its own, with title, legend and ground, as far as it is zoomed now. */
  async save(format) {
    const library = await plotly();
    const { data, layout } = this.dressed(this.shown.spec);
    const named = new Set();
    for (const trace of data) {
      trace.showlegend = !trace.meta.readout && !named.has(entry(trace));
      named.add(entry(trace));
      trace.name = trace.name.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly would take it for markup
    }
    const title = this.shown.spec.layout.title.text;
    const rows = [[continued(this.meta.continued), this.meta.shaded], this.meta.notes];
    const said = rows.map((row) => row.filter(Boolean).join(" · ")).filter(Boolean).join("<br>");
    const ground = getComputedStyle(this.host).getPropertyValue("--st-background-color").trim() || "#ffffff";
    Object.assign(layout, {
      title: { text: title, x: 0.01, xanchor: "left", subtitle: { text: said } }, showlegend: true,
      font: { ...layout.font, family: "Arial, Helvetica, sans-serif" }, // the page's own is not in the file
      paper_bgcolor: ground,
      legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom" }, margin: { ...layout.margin, t: 130, r: 28 },
    });
    const size = { width: 1200, height: 640 };
    const plain = await library.toImage({ data, layout }, { format: "svg", ...size });
    const drawing = decodeURIComponent(plain.slice(plain.indexOf(",") + 1)).replace(/(<svg[^>]*>)/, "$1<style>image { image-rendering: pixelated; }</style>");
    let picture = URL.createObjectURL(new Blob([drawing], { type: "image/svg+xml" }));
    if (format === "png") {
      const image = Object.assign(new Image(), { src: picture });
      await image.decode();
      const canvas = Object.assign(document.createElement("canvas"), { width: 2 * size.width, height: 2 * size.height });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      picture = canvas.toDataURL("image/png");
    }
    Object.assign(document.createElement("a"), { href: picture, download: `${title}.${format}` }).click();
  }

  /* Title, legend and notes. Entries are kept and refilled, so that a button does not vanish under the pointer. */
  write(spec) {
    const { title, meta } = spec.layout;
    this.link = meta.link;
    this.meta = meta;
    this.title.textContent = title.text;
    this.notes.textContent = meta.notes.join(" · ");
    this.entries = new Map();
    for (const trace of spec.data) {
      if (!this.entries.has(entry(trace))) this.entries.set(entry(trace), []);
      this.entries.get(entry(trace)).push(trace);
    }
    const signature = JSON.stringify([...this.entries].map(([name, traces]) =>
      [name, this.spoken(traces).map((t) => [t.name, t.meta.run, t.mode, t.line, t.marker?.symbol])]).concat(meta.shaded, meta.continued));
    if (signature !== this.signature) {
      this.signature = signature;
      this.legend.style.minHeight = "";
      this.legend.replaceChildren(...[...this.entries].map(([name, traces]) => this.item(name, traces)));
      if (meta.shaded) this.legend.append(shade(meta.shaded));
      if (meta.continued) this.legend.append(veil(meta.continued));
    }
  }

  /* The traces whose values stand in the legend. */
  spoken(traces) { return traces.filter((t) => !t.meta.quiet && !(this.narrow && this.meta.panels.includes(t.xaxis))); }

  item(name, traces) {
    const [first] = traces;
    const readout = first.meta.readout;
    const item = document.createElement(readout ? "span" : "button");
    item.dataset.curve = name;
    if (readout) item.className = "readout";
    else {
      item.type = "button";
      item.setAttribute("aria-pressed", !this.hidden.has(name));
      item.title = "Show or hide";
      item.append(swatch(first));
      item.onclick = () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        item.setAttribute("aria-pressed", !this.hidden.has(name));
        this.redraw();
      };
    }
    const [name_, below, ...rest] = first.name.split(/_(.)/); // σ_g² has an index
    const label = span("name", name_);
    if (below) label.append(Object.assign(document.createElement("sub"), { textContent: below }), ...rest);
    item.append(label);
    for (const trace of this.spoken(traces)) {
      if (trace.meta.run) {
        const run = span("run", "");
        if (trace.line?.dash === "dot") run.append(swatch(trace), " ");
        run.append(trace.meta.run);
        item.append(run);
      }
      const value = span(`value ${trace.text ? "text" : trace.meta.unit}`, "");
      value.dataset.value = trace.meta.run ?? "";
      item.append(value);
    }
    return item;
  }

  /* The values in the legend, and a line in each panel: those of the round pointed at, else those that came with the figure. */
  mark() {
    const layout = this.plot._fullLayout;
    if (!layout || !this.shown) return;
    const round = this.pointed;
    const told = round === null ? this.meta.at : this.measuredAt(round);
    const inherited = told !== null && told <= this.meta.continued?.until ? ` of ${this.meta.continued.name}` : "";
    this.at.textContent = told === null ? "" : `${this.meta.x} ${told.toLocaleString("en")}${inherited}`;
    for (const [name, traces] of this.entries) {
      const values = this.legend.querySelector(`[data-curve="${CSS.escape(name)}"]`).querySelectorAll("[data-value]");
      this.spoken(traces).forEach((trace, index) => {
        const text = round === null ? trace.meta.now : valueAt(trace, round);
        if (values[index].textContent !== text) values[index].textContent = text;
      });
    }
    this.legend.style.minHeight = `${this.legend.offsetHeight}px`; // shorter values do not take a row away again
    const lines = round === null ? [] : panels(this.plot).map((axis) => axis._offset + axis.l2p(round)).filter(Number.isFinite);
    this.lines = (this.lines ?? []).filter((line, index) => index < lines.length || line.remove());
    lines.forEach((left, index) => {
      this.lines[index] ??= this.plot.appendChild(span("pointer", ""));
      if (!this.lines[index].isConnected) this.plot.append(this.lines[index]);
      const { t, h } = layout._size;
      Object.assign(this.lines[index].style, { left: `${left}px`, top: `${t}px`, height: `${h}px` });
    });
  }

  /* The last round up to one in which anything was measured whose value stands in the legend. */
  measuredAt(round) {
    const rounds = [...this.entries.values()].flatMap((traces) => this.spoken(traces)).map((trace) => foundAt(trace, round)?.x);
    const before = rounds.filter((x) => x <= round);
    return before.length ? Math.max(...before) : round;
  }

  point(event) {
    const left = event.clientX - this.plot.getBoundingClientRect().left;
    const axis = panels(this.plot).find((a) => left >= a._offset && left <= a._offset + a._length);
    tell(this.link, axis ? Math.round(axis.p2l(left - axis._offset)) : null);
  }

  invisible() { return this.plot.clientWidth < 40 || this.plot.clientHeight < 40; }

  resize() {
    if (this.invisible()) return;
    this.legend.style.minHeight = "";
    if (!this.plot._fullLayout || this.narrow !== this.plot.clientWidth < NARROW) this.redraw();
    else if (!this.busy) Promise.resolve(window.Plotly.Plots.resize(this.plot)).then(() => this.mark()).catch(() => {});
  }

  close() {
    this.closed = true;
    charts.delete(this);
    this.watch.disconnect();
    if (this.plot._fullLayout) window.Plotly.purge(this.plot);
    this.host.replaceChildren();
  }
}

/* Tells all linked charts which round is pointed at. They show it and tell nobody, so that nothing goes round in circles. */
function tell(link, round) {
  for (const chart of charts) {
    if (chart.link === link && chart.pointed !== round) { chart.pointed = round; chart.mark(); }
  }
}

/* A finger that is lifted leaves its round standing; a tap beside the plots ends it. */
document.addEventListener("pointerdown", (event) => {
  if (event.target.closest?.(".live-plotly")) return;
  for (const chart of charts) tell(chart.link, null);
});

const entry = (trace) => trace.legendgroup ?? trace.name;
const axes = (layout) => Object.keys(layout).filter((name) => /^[xy]axis/.test(name));
const leader = (layout, name) => layout[name].matches?.replace(/^./, "$&axis") ?? name; // the axis that this one always equals
const panels = (plot) => (plot._fullLayout?._subplots?.xaxis ?? []).map((name) => plot._fullLayout[name.replace("x", "xaxis")]);

const TYPES = { f4: Float32Array, f8: Float64Array, u2: Uint16Array };
const arrays = new WeakMap(); // packed -> unpacked: a pointer asks often
function unpack(packed) {
  if (!packed?.bdata) return packed;
  if (!arrays.has(packed)) {
    arrays.set(packed, new TYPES[packed.dtype](Uint8Array.from(atob(packed.bdata), (letter) => letter.charCodeAt(0)).buffer));
  }
  return arrays.get(packed);
}
function unpacked(trace) {
  const copy = structuredClone(trace); // plotly writes into what it is given
  for (const name of ["x", "y", "customdata"]) if (name in trace) copy[name] = unpack(trace[name]);
  if (trace.error_y) copy.error_y.array = unpack(trace.error_y.array);
  return copy;
}

function withoutPanels(data, layout, names) {
  if (!names.length) return data;
  const gone = (reference) => names.includes(String(reference ?? "").split(" ")[0]);
  for (const name of names) { delete layout[name.replace("x", "xaxis")]; delete layout[name.replace("x", "yaxis")]; }
  layout.xaxis.domain = [0, 1];
  layout.shapes = (layout.shapes ?? []).filter((shape) => !gone(shape.xref));
  layout.annotations = (layout.annotations ?? []).filter((annotation) => !gone(annotation.xref));
  return data.filter((trace) => !gone(trace.xaxis));
}

/* What an axis is about. A zoom is of no use on one that has become another: of other rounds, on another scale, of another measure. */
export function about(layout, name) {
  const { type, title, range } = layout[name] ?? {};
  return JSON.stringify(name.startsWith("x") ? range : [type, title?.text]);
}

/* Axes show what the visitor has zoomed in on; upwards, where they have not zoomed, what is to be seen there. */
export function fit(data, layout, zoomed) {
  for (const name of axes(layout).sort()) { // rounds first
    const own = leader(layout, name), axis = layout[name];
    if (zoomed.has(own)) axis.range = [...zoomed.get(own)];
    else if (name.startsWith("y") && !axis.range) axis.range = name === own ? heights(data, layout, name) : layout[own].range;
    if (!axis.range) { // nothing to show yet
      axis.showticklabels = false;
      continue;
    }
    const [low, high] = axis.range, span = Math.abs(high - low);
    if (axis.type === "log") {
      Object.assign(axis, { tickmode: "array", ...logTicks(low, high, axis.nticks) });
      const longest = Math.max(0, ...axis.ticktext.map((text) => text.length));
      layout.margin.l += 7 * Math.max(0, longest - 8);
    }
    else if (axis.tickformat?.endsWith("%")) Object.assign(axis, { tickmode: "array", ...percentTicks(low, high, axis.nticks) });
    else if (name.startsWith("x") && span < 8) axis.dtick = 1; // there is no round 0.5
  }
}

/* From the lowest to the highest that is drawn within the rounds shown, with some room, as a range for plotly; logarithms on a log
 * axis. */
function heights(data, layout, name) {
  const { type, rangemode } = layout[name], scale = type === "log" ? Math.log10 : (height) => height;
  const stacks = {};
  let low = Infinity, high = -Infinity;
  for (const trace of data) {
    const on = (letter) => (trace[`${letter}axis`] ?? letter).replace(/^./, "$&axis");
    if ((trace.visible ?? true) !== true || leader(layout, on("y")) !== name) continue;
    const [from, to] = layout[on("x")].range;
    let lines = [Array.from(trace.y)];
    if (trace.stackgroup) {
      const below = stacks[trace.stackgroup];
      lines = [stacks[trace.stackgroup] = lines[0].map((height, index) => (height || 0) + (below?.[index] ?? 0))];
    }
    if (trace.error_y) for (const sign of [1, -1]) lines.push(lines[0].map((height, index) => height + sign * trace.error_y.array[index]));
    for (const line of lines) {
      for (const height of within(trace.x, line.map(scale), from, to, trace.mode !== "markers")) {
        if (Number.isFinite(height)) [low, high] = [Math.min(low, height), Math.max(high, height)];
      }
    }
  }
  if (low > high) return undefined;
  if (rangemode === "tozero") low = Math.min(low, 0);
  const least = type === "log" ? FLAT.log : FLAT.linear * Math.max(Math.abs(low), Math.abs(high)) || 1;
  const room = ROOM * Math.max(high - low, least) + Math.max(0, least - (high - low)) / 2;
  return [rangemode === "tozero" && low === 0 ? 0 : low - room, high + room];
}

/* The heights of a curve between two x, with those at which its line comes in and goes out. */
function* within(x, heights, from, to, joined) {
  for (let i = 0; i < x.length; i++) {
    if (x[i] >= from && x[i] <= to) yield heights[i];
    if (!joined || i === 0) continue;
    for (const edge of [from, to]) {
      if (x[i - 1] < edge && edge < x[i]) yield heights[i - 1] + ((heights[i] - heights[i - 1]) * (edge - x[i - 1])) / (x[i] - x[i - 1]);
    }
  }
}

/* At most about `most` heights between two powers of ten to be named on a log axis, and their names (0.01, 10, 2×10⁻⁵): round
 * mantissas, else every so many powers of ten, else, in a narrow range, even steps. */
const MANTISSAS = [[1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8], [1, 2, 5], [1, 3], [1]];
export function logTicks(from, to, most) {
  const [low, high] = [from, to].sort((a, b) => a - b).map((exponent) => Math.min(10 ** exponent, Number.MAX_VALUE));
  const powers = [];
  for (let exponent = Math.floor(from); exponent <= Math.ceil(to); exponent++) powers.push(exponent);
  const choices = MANTISSAS.map((mantissas) => powers.flatMap((exponent) => mantissas.map((m) => Number(`${m}e${exponent}`))));
  for (let step = 2; step <= powers.length; step++) choices.push(powers.filter((e) => e % step === 0).map((e) => Number(`1e${e}`)));
  const shown = choices.map((ticks) => ticks.filter((tick) => tick >= low && tick <= high && tick > 0));
  let ticks = shown.find((each) => each.length <= most);
  if (ticks === shown[0] && ticks.length < 3) ticks = evenly(low, high, most);
  return { tickvals: ticks, ticktext: ticks.map(tickName) };
}

/* The same on an axis of shares, named as everywhere else. */
export function percentTicks(low, high, most) {
  const ticks = evenly(low, high, most);
  const name = (share) => (100 * share).toLocaleString("en", { maximumSignificantDigits: 12 }) + PERCENT;
  return { tickvals: ticks, ticktext: ticks.map(name) };
}

/* Whole multiples of 1, 2 or 5 times a power of ten. */
function evenly(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

function tickName(value) {
  const [mantissa, exponent] = value.toExponential().split("e").map(Number);
  if (exponent >= -3 && exponent < 5) return value.toLocaleString("en", { maximumSignificantDigits: 12 });
  return mantissa === 1 ? tenTo(exponent) : `${mantissa}×${tenTo(exponent)}`;
}

/* The last value up to a round, as the server's legend does it: the text made for it, or the recorded number. */
function valueAt(trace, round) {
  const found = foundAt(trace, round);
  if (!found) return "–";
  const { index, x, value } = found;
  if (trace.text) return trace.text[index];
  if (trace.meta.unit === "percent") return `${number(100 * value)}${PERCENT}`;
  if (trace.meta.unit !== "estimate") return number(value);
  return `${number(value)} ± ${number(unpack(trace.error_y.array)[index])} (round ${x.toLocaleString("en")})`;
}

/* Where in a trace the last value up to a round stands; the first, before that. */
export function foundAt(trace, round) {
  const x = unpack(trace.x), values = unpack(trace.customdata ?? trace.y);
  let index = -1;
  for (let i = 0; i < x.length && (index < 0 || x[i] <= round); i++) if (trace.text || Number.isFinite(values[i])) index = i;
  return index < 0 ? null : { index, x: x[index], value: values[index] };
}

/* Three significant digits, as fedviz/figures/style.py writes them. */
function number(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const [mantissa, power] = value.toExponential(2).split("e");
  const exponent = Number(power);
  const text = exponent >= -3 && exponent < 5
    ? Number(value.toPrecision(3)).toLocaleString("en", { minimumFractionDigits: Math.max(0, 2 - exponent), maximumFractionDigits: Math.max(0, 2 - exponent) })
    : `${mantissa}×${tenTo(exponent)}`;
  return text.replaceAll("-", "−");
}

const tenTo = (exponent) => `10${String(exponent).replace(/[-\d]/g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] ?? "⁻")}`;

function span(name, text) { return Object.assign(document.createElement("span"), { className: name, textContent: text }); }

function shade(text) {
  const item = span("readout", "");
  item.title = "Some memories are still empty: their clients have not taken part yet";
  const sample = span("swatch", "");
  sample.innerHTML = '<svg width="20" height="10"><rect width="20" height="10" rx="2" fill="currentColor" opacity="0.22"/></svg>';
  item.append(sample, span("name", text));
  return item;
}

const continued = (parent) => parent && `continued from round ${parent.until.toLocaleString("en")}, until then ${parent.name}`;
function veil(parent) {
  const item = span("readout", "");
  item.title = "Faded, up to the dotted line: from the run that this one continues";
  const sample = span("swatch", "");
  sample.innerHTML = `<svg width="20" height="10" stroke="currentColor"><path d="M0 5h10" opacity="0.35"/><path d="M11 0v10" stroke-dasharray="2 2"/>
    <path d="M12 5h8" stroke-width="2.5"/></svg>`;
  item.append(sample, span("name", continued(parent)));
  return item;
}

const DASHES = { dot: "2 3", dash: "6 4", dashdot: "6 3 2 3", longdash: "9 2", longdashdot: "9 2 2 2" };

/* A sample of the curve: its dash, its marker, or the fill of a layer. */
function swatch(trace) {
  const colour = trace.line?.color ?? trace.marker?.color, dash = DASHES[trace.line?.dash] ?? "";
  const holder = span("swatch", "");
  const marker = { circle: '<circle cx="10" cy="5" r="3.2"/>', square: '<rect x="7" y="2" width="6" height="6"/>',
    diamond: '<path d="M10 1l4 4-4 4-4-4z"/>', "triangle-up": '<path d="M10 1l4 7.5h-8z"/>',
    "line-ew-open": `<path d="M10 0v10M5 5h10" stroke="${colour}" stroke-width="1.5"/>` }[trace.marker?.symbol] ?? "";
  holder.innerHTML = trace.stackgroup
    ? `<svg width="20" height="10"><rect width="20" height="10" rx="2" fill="${colour}" opacity="0.7"/></svg>`
    : `<svg width="20" height="10" fill="${colour}"><path d="M0 5h20" stroke="${colour}" stroke-width="2.5" stroke-dasharray="${dash}"
        opacity="${trace.mode === "markers" ? 0 : trace.opacity ?? 1}"/>${/markers/.test(trace.mode) && dash === "" ? marker : ""}</svg>`;
  return holder;
}

/* A colour with an opacity, in the form that plotly reads. */
function mixed(colour, opacity) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  probe.fillStyle = colour;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  return `rgba(${red},${green},${blue},${opacity})`;
}
