// Elements of the page. Text from files only ever becomes textContent.

function filled(found, { text = "", on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if ((value ?? false) !== false) found.setAttribute(name, value === true ? "" : value);
  }
  for (const [name, listener] of Object.entries(on)) found.addEventListener(name, listener);
  found.append(...(text === "" ? [] : [text]), ...children);
  return found;
}

// "p.note" is a paragraph of the class "note".
function element(kind, options = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  return filled(document.createElement(tag), { class: classes.join(" ") || null, ...options }, children);
}

const vectorElement = (tag, attributes, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const relabel = (found, text, label) => Object.assign(found, { textContent: text, ariaLabel: label, title: label });

const button = (text, label, act, options = {}) =>
  relabel(element("button", { type: "button", on: { click: act }, ...options }), text, label);

const labelled = (text, control) => element("label.control", {}, element("span", { text }), control);

// Options are [value, text], or [label of a group, [options]].
const optionsOf = (options, chosen) => options.map(([value, text]) => (Array.isArray(text)
  ? element("optgroup", { label: value }, ...optionsOf(text, chosen))
  : element("option", { value, text, selected: value === chosen })));

const pictureButtons = (what, act, more = "") => [["PNG", ""], ["SVG", more]].map(([format, note]) =>
  button(format, `Download ${what} as ${format}${note}`, () => act(format.toLowerCase())));

let plotFrames = 0;

// A plot in its frame, with a text that screen readers read with it. Keys reach a plot that is an application.
function plotFrame(kind, byKeys) {
  plotFrames += 1;
  const spoken = element("p.spoken", { id: `spoken-${plotFrames}` });
  const role = byKeys ? { tabindex: 0, role: "application" } : { role: "group" };
  const plot = element(`div.plot.${kind}`, { ...role, "aria-describedby": spoken.id });
  return { plot, spoken, frame: element("div.frame", {}, plot, spoken) };
}

// Plotly reads a little HTML and TeX in its texts; what stands for itself must be written as entities.
const plotText = (text) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("$", "&#36;");

// How far to the right and upwards an arrow key goes, which then does nothing else.
function arrowWay(event) {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key];
  if (way) event.preventDefault();
  return way ?? [0, 0];
}

function save(content, name) {
  const address = URL.createObjectURL(content);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

// A colour of the style sheet, light or dark.
function colour(name) {
  document.head.style.color = `var(--${name})`;
  return getComputedStyle(document.head).color;
}

// Runs the newest call only, one at a time: a slow machine then skips frames instead of falling behind.
function newestOnly(run) {
  let [waiting, busy] = [null, false];
  return async (...parameters) => {
    waiting = parameters;
    if (busy) return;
    busy = true;
    try {
      while (waiting) {
        const now = waiting;
        waiting = null;
        await run(...now);
        await new Promise(requestAnimationFrame);
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

const config = (buttons) => ({
  displaylogo: false, responsive: true, displayModeBar: TOUCH ? false : "hover", showTips: false, doubleClick: "reset",
  modeBarButtons: buttons, plotlyServerURL: "", showLink: false, showSendToCloud: false,
});

function axisStyle() {
  const [strong, gridcolor] = [colour("line-strong"), colour("line")];
  return { color: colour("text"), gridcolor, zerolinecolor: strong, linecolor: strong };
}

const flatAxis = () =>
  ({ ...axisStyle(), zeroline: false, ticks: "outside", ticklen: 4, tickcolor: colour("line-strong") });

// A trace of marks, and one of lines; what "more" says comes last.
const marks = (name, places, marker, more = {}) =>
  ({ name, type: "scatter", mode: "markers", hoverinfo: "none", ...places, marker, ...more });

const strokes = (name, places, line, more = {}) =>
  ({ name, type: "scatter", mode: "lines", hoverinfo: "skip", connectgaps: false, ...places, line, ...more });

const IN_SPACE = { type: "scatter3d" };
const SILENT = { hoverinfo: "skip" };
const EDGE = { color: "#1a1a1a", width: 1 };

// The places of some checkpoints; null is a gap.
const placesOf = (path, rows) => ({ x: rows.map((row) => path.x[row] ?? null), y: rows.map((row) => path.y[row] ?? null) });

// Where a checkpoint lies on the plane.
const footOf = (path, metric, row) => ({ x: path.x[row], y: path.y[row], value: path.projected[metric]?.[row] ?? NaN });

const networkMarker = ({ checkpoints }, size) => ({ size, symbol: checkpoints?.symbols ?? [], color: "#ffffff", line: EDGE });

const originMarker = () => ({ size: 12, symbol: "star", color: colour("origin"), line: EDGE });

// The origin's own value; a difference has none.
const originValue = ({ origin, isDifference }, metric) =>
  origin.status === MEASURED && !isDifference ? origin.metrics[metric]?.[0] ?? NaN : NaN;

const CLEAR = "rgba(0,0,0,0)";

const baseLayout = () => ({
  autosize: true, paper_bgcolor: CLEAR, plot_bgcolor: CLEAR, showlegend: false, hovermode: "closest", uirevision: "kept",
  font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("text") },
  modebar: { bgcolor: CLEAR, color: colour("muted"), activecolor: colour("accent") },
});

const titled = (text, more = {}) => ({ text, font: { size: 12 }, ...more });

const EMBEDDED = window.self !== window.top;

// A button that shows a part of the page on the whole screen; none where the browser or the outer page forbids that.
function screenButton(target, label) {
  const act = () => (document.fullscreenElement ? document.exitFullscreen() : target.requestFullscreen().catch(() => {}));
  const found = button("", label, act, { class: "screen", hidden: !document.fullscreenEnabled });
  found.append(vectorElement("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" },
    vectorElement("path", { d: "M1 5V1h4M9 1h4v4M13 9v4H9M5 13H1V9", fill: "none", stroke: "currentColor", "stroke-width": 1.8 })));
  return found;
}

// What lies over the page must lie in what is on the screen.
function followScreen(tooltip) {
  document.addEventListener("fullscreenchange", () => {
    const shown = document.fullscreenElement;
    (shown && shown !== document.documentElement ? shown : document.body).append(tooltip.box);
  });
}

// Where the page has no address of its own (in srcdoc, or a blob), only what begins with # says what it shows.
const hasAddress = () => ["http:", "https:", "file:"].includes(location.protocol);

// Redraws a plot whose size has changed; one that is not shown has none.
function fit(plot) {
  if (!plot.data || !plot.offsetParent || !plot.clientWidth) return null;
  const { width, height } = plot._fullLayout;
  return Math.abs(width - plot.clientWidth) < 1 && Math.abs(height - plot.clientHeight) < 1 ? null : Plotly.Plots.resize(plot);
}
