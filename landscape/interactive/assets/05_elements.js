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
