// Curves: a line's own points, or a plane's values between its points along a line that the user draws.

const PROFILE_POINTS = 257;

// Positions, coordinates and values along a line on a plane, from one end to the other.
function alongLine(landscape, metric, [x0, y0, x1, y1]) {
  const length = landscape.distance(x0, y0, x1, y1);
  return Array.from({ length: PROFILE_POINTS }, (_, index) => {
    const share = index / (PROFILE_POINTS - 1);
    // Weighted like this, both ends are exact.
    const x = x0 * (1 - share) + x1 * share;
    const y = y0 * (1 - share) + y1 * share;
    return { position: share * length, x, y, value: landscape.between(metric, x, y) };
  });
}

function curveOf(name, points, line, more = {}) {
  const places = { x: points.map(({ position }) => position), y: finite(points.map(({ value }) => value)) };
  return strokes(name, places, { width: 2.4, ...line }, { hoverinfo: "none", ...more });
}

// One standard error around a curve: the traces below and above it.
function band(x, values, error, fillcolor, [below, above] = ["below", "above"]) {
  const edge = (sign) => ({ x, y: finite(values.map((value, index) => value + sign * error[index])) });
  return [strokes(below, edge(-1), { width: 0 }), strokes(above, edge(1), { width: 0 }, { fill: "tonexty", fillcolor })];
}

function lineTraces({ landscape, metric, standing, pointed }) {
  const { checkpoints: path, origin, networks } = landscape;
  const values = landscape.metrics[metric];
  const error = landscape.errorOf(metric);
  const x = [...landscape.x];
  const symbol = Array.from(landscape.status, (status) => (status === INTERPOLATED ? "circle-open" : "circle"));
  const dots = { size: x.length > 150 ? 3 : 6, color: colour("accent"), symbol };
  const gaps = x.filter((_, index) => ![null, "coarse"].includes(landscape.missing(index, metric)));
  const [lowest] = finiteRange(values);
  const placedAt = (rows) => ({ x: rows.map((row) => path.x[row]), y: finite(rows.map((row) => footOf(path, metric, row).value)), customdata: rows });
  const named = (text) => ({ mode: "markers+text", text, textposition: "top center", textfont: { color: colour("text"), size: 12 }, cliponaxis: false });
  const own = (path?.own[metric] ?? []).map(({ row }) => row);
  const value = originValue(landscape, metric);
  const home = Number.isFinite(value) ? { x: [origin.x], y: [value] } : { x: [], y: [] };
  return [
    ...(error ? band(x, values, error, colour("band")) : []),
    marks("grid", { x, y: finite(values) }, dots, { mode: "lines+markers", connectgaps: false, line: { color: colour("accent"), width: 2.2 } }),
    coarseSteps({ landscape, metric }),
    marks("gaps", { x: gaps, y: gaps.map(() => lowest || 0) }, { size: 8, symbol: "x-thin-open", color: colour("failed"), line: { width: 2 } }),
    marks("path", placedAt(landscape.paths.flat()), { size: 7, color: "#ffffff", line: { color: colour("current"), width: 2 } }),
    marks("networks", placedAt(networks), networkMarker(landscape, 10), named(networks.map((row) => plotText(path.labels[row])))),
    marks("own", { customdata: own, x: own.map((row) => path.x[row]), y: own.map((row) => path.metrics[metric][row]) }, {
      size: 9, symbol: "diamond-open", color: colour("text"), line: { width: 1.5 },
    }),
    marks("origin", home, originMarker(), named([plotText(origin.named ? origin.label : "")])),
    lineMark("current", standing, colour("current")), lineMark("mark", [pointed], colour("mark")),
  ];
}

// What the reader or the player points at on a line.
const lineMark = (name, points, color) =>
  marks(name, linePlaces(points), { size: 13, color, line: { color: "#ffffff", width: 2 } }, { ...SILENT, cliponaxis: false });

function linePlaces(points) {
  const there = points.filter((point) => point && Number.isFinite(point.value));
  return { x: there.map(({ x }) => x), y: there.map(({ value }) => value) };
}

function drawLineMark(plot, name, points, scale) {
  const [{ x, y }] = onAxis([linePlaces(points)], scale);
  return Plotly.restyle(plot, { x: [x], y: [y] }, [plot.data.findIndex((trace) => trace.name === name)]);
}

// Curves as the axis of values takes them: Plotly has none that is logarithmic around zero, so that heights stand on it,
// and on a logarithmic one it leaves out what has no logarithm, which is drawn at the lower end here as in the figures.
function onAxis(traces, scale) {
  const { low } = scale.tall;
  const held = (value) => (Number.isFinite(value) && value <= 0 ? low : value);
  if (scale.kind === "log") return traces.map((trace) => ({ ...trace, y: trace.y.map(held) }));
  if (scale.kind !== "symlog") return traces;
  return traces.map((trace) => ({ ...trace, y: trace.y.map((value) => (value === null ? null : scale.height(value))) }));
}

// The axis of values has the scale of the card; several cards that share one have the same axis.
function profileLayout(text, scale, xTitle, shared) {
  const { tall } = scale;
  const logarithmic = scale.kind === "log";
  const ticks = logarithmic ? tall.axis(6, 0.07, (tick) => tick) : tall.axis(6, 0.07);
  const own = !shared || tall.empty || tall.flat;
  const [low, high] = tall.ends;
  const margin = 0.05 * (high - low);
  const range = own ? { autorange: true } : { range: [low - margin, high + margin], autorange: false };
  return {
    ...baseLayout(),
    margin: { l: 62, r: 16, t: 10, b: 46 },
    dragmode: TOUCH ? false : "zoom",
    xaxis: { ...flatAxis(), title: titled(plotText(xTitle).replace("\n", "<br>"), { standoff: 8 }) },
    yaxis: {
      ...flatAxis(), title: valueTitle(text, scale, { standoff: 6 }), type: logarithmic ? "log" : "linear",
      ...range, ...(scale.kind === "linear" ? { nticks: 6 } : ticks),
      // Of another metric, or on another scale, what the reader zoomed to is another place.
      uirevision: [text, scale.kind, range.range].join(" "),
    },
  };
}

// The usual lines to start with: across and up through the origin as far as any of the planes reaches, and along a path.
function usualLine(landscapes, kind) {
  const [{ checkpoints: path, walked: rows, origin, x, y }] = landscapes;
  if (kind === "path" && rows.length > 1) return [rows[0], rows.at(-1)].flatMap((row) => [path.x[row], path.y[row]]);
  const ends = (name) => [Math.min(...landscapes.map((each) => each[name][0])), Math.max(...landscapes.map((each) => each[name].at(-1)))];
  const [[left, right], [bottom, top]] = [ends("x"), ends("y")];
  const [across, up] = [clamp(origin.x, x[0], x.at(-1)), clamp(origin.y ?? 0, y[0], y.at(-1))];
  return kind === "up" ? [across, bottom, across, top] : [left, up, right, up];
}

const unitOf = (landscapes) =>
  (landscapes.every(({ geometry }) => geometry) ? "in weight space" : "in units of the plane's coordinates");
