// The whole screen for a part of the page, and the page inside another one.

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
