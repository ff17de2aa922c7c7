// Elements of the page. Text from files only ever becomes textContent.

function element(tag, options = {}, ...children) {
  const { text, on, ...attributes } = options;
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) found.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) found.setAttribute(name, value);
  }
  if (text !== undefined) found.textContent = text;
  for (const [name, listener] of Object.entries(on ?? {})) found.addEventListener(name, listener);
  found.append(...children.filter((child) => child !== null));
  return found;
}

function button(text, label, act, options = {}) {
  return element("button", { type: "button", "aria-label": label, title: label, text, on: { click: act }, ...options });
}

function relabel(found, text, label) {
  found.textContent = text;
  found.setAttribute("aria-label", label);
  found.title = label;
}

function labelled(text, control) {
  return element("label", { class: "control" }, element("span", { text }), control);
}

// Options are [value, text], or [label of a group, [options]].
function select(options, chosen, change, attributes = {}) {
  const found = element("select", { ...attributes, on: { change: () => change(found.value) } });
  const made = ([value, text]) => (Array.isArray(text) ? element("optgroup", { label: value }, ...text.map(made)) : element("option", { value, text, selected: value === chosen }));
  found.append(...options.map(made));
  return found;
}

// Plotly reads a little HTML and TeX in its texts; what stands for itself must be written as entities.
function plotText(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("$", "&#36;");
}

// How far to the right and upwards an arrow key goes.
function arrowWay(key) {
  return { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[key] ?? [0, 0];
}

function save(content, name) {
  const address = URL.createObjectURL(content);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Runs the newest call only, one at a time: a slow machine then skips frames instead of falling behind.
function newestOnly(run) {
  let waiting = null;
  let busy = false;
  return async function call(...parameters) {
    waiting = parameters;
    if (busy) return;
    busy = true;
    try {
      while (waiting) {
        const now = waiting;
        waiting = null;
        await run(...now);
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
    } finally {
      busy = false;
    }
  };
}

// Tells what the pointer does on a plot. One that is redrawn under the pointer sends no event when the pointer leaves it.
function listen(plot, hovered, left) {
  plot.on("plotly_hover", hovered);
  plot.on("plotly_unhover", left);
  plot.addEventListener("mouseleave", left);
}

const TOUCH = matchMedia("(hover: none)").matches;

// Only these buttons: among Plotly's own is one that uploads the data to its makers' server.
const MAP_BUTTONS = [["zoom2d", "pan2d", "resetScale2d"]];
const SURFACE_BUTTONS = ["tableRotation", "pan3d", "zoom3d"];

function config(buttons) {
  return {
    displaylogo: false, responsive: true, displayModeBar: TOUCH ? false : "hover", showTips: false, doubleClick: "reset",
    modeBarButtons: buttons, plotlyServerURL: "", showLink: false, showSendToCloud: false,
  };
}

function axisStyle() {
  return { color: colour("text"), gridcolor: colour("line"), zerolinecolor: colour("line-strong"), linecolor: colour("line-strong") };
}

// Of a map or a curve.
function flatAxis() {
  return { ...axisStyle(), zeroline: false, ticks: "outside", ticklen: 4, tickcolor: colour("line-strong") };
}

// A trace of marks, and one of lines; what "more" says comes last.
function marks(name, places, marker, more = {}) {
  return { name, type: "scatter", mode: "markers", hoverinfo: "none", ...places, marker, ...more };
}

function strokes(name, places, line, more = {}) {
  return { name, type: "scatter", mode: "lines", hoverinfo: "skip", connectgaps: false, ...places, line, ...more };
}

const IN_SPACE = { type: "scatter3d" };
const SILENT = { hoverinfo: "skip" };
const EDGE = { color: "#1a1a1a", width: 1 };

// The places of some checkpoints; null is a gap.
function placesOf(path, rows) {
  return { x: rows.map((row) => (row === null ? null : path.x[row])), y: rows.map((row) => (row === null ? null : path.y[row])) };
}

// The shapes that matplotlib's pictures have, in their order.
const SHAPES = ["diamond", "triangle-up", "triangle-down", "cross", "x", "hexagon"];

function networkMarker(landscape, size) {
  return { size, symbol: landscape.networks.map((_, index) => SHAPES[index % SHAPES.length]), color: "#ffffff", line: EDGE };
}

function originMarker() {
  return { size: 12, symbol: "star", color: colour("origin"), line: EDGE };
}

// The origin's own value; a difference has none.
function originValue({ origin, isDifference }, metric) {
  return origin.status === MEASURED && !isDifference ? origin.metrics[metric]?.[0] ?? NaN : NaN;
}

function baseLayout() {
  return {
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("text") },
    showlegend: false,
    hovermode: "closest",
    uirevision: "kept",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("accent") },
  };
}
