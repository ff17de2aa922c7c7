// Curves: a line's own points, or a plane's values between its points along a line that the user draws.

const PROFILE_POINTS = 257;

// Positions, coordinates and values along a line on a plane, from one end to the other.
function alongLine(landscape, values, [x0, y0, x1, y1]) {
  const length = landscape.distance(x0, y0, x1, y1);
  return Array.from({ length: PROFILE_POINTS }, (_, index) => {
    const share = index / (PROFILE_POINTS - 1);
    // Weighted like this, both ends are exact.
    const x = x0 * (1 - share) + x1 * share;
    const y = y0 * (1 - share) + y1 * share;
    return { position: share * length, x, y, value: bilinear(landscape.x, landscape.y, values, x, y) };
  });
}

function profileTraces(points) {
  return [
    {
      name: "profile", type: "scatter", mode: "lines", connectgaps: false, hoverinfo: "none",
      x: points.map((point) => point.position), y: points.map((point) => (Number.isNaN(point.value) ? null : point.value)),
      line: { color: colour("accent"), width: 2.4 },
    },
  ];
}

function lineTraces(landscape, metric, { current, mark }) {
  const values = landscape.values(metric);
  const error = landscape.errorOf(metric);
  const x = [...landscape.x];
  const finite = (list) => Array.from(list, (value) => (Number.isFinite(value) ? value : null));
  const traces = [];
  if (error) {
    const band = (sign) => finite(values.map((value, index) => value + sign * error[index]));
    const edge = { type: "scatter", mode: "lines", x, hoverinfo: "skip", line: { width: 0 }, connectgaps: false };
    traces.push({ ...edge, name: "below", y: band(-1) }, { ...edge, name: "above", y: band(1), fill: "tonexty", fillcolor: colour("band") });
  }
  const marks = [...landscape.status].map((status) => (status === INTERPOLATED ? "circle-open" : "circle"));
  traces.push({
    name: "grid", type: "scatter", mode: "lines+markers", x, y: finite(values), connectgaps: false, hoverinfo: "none",
    line: { color: colour("accent"), width: 2.2 }, marker: { size: x.length > 150 ? 3 : 6, symbol: marks, color: colour("accent") },
  });
  traces.push(coarseSteps(landscape, metric));
  const gaps = x.filter((_, index) => ![null, "coarse"].includes(landscape.missing(index, metric)));
  const shown = finiteRange(values)[0];
  traces.push({
    name: "gaps", type: "scatter", mode: "markers", x: gaps, y: gaps.map(() => (Number.isNaN(shown) ? 0 : shown)), hoverinfo: "none",
    marker: { size: 8, symbol: "x-thin-open", color: colour("failed"), line: { width: 2 } },
  });
  const path = landscape.checkpoints;
  const { origin } = landscape;
  const placedAt = (rows) => ({ x: rows.map((row) => path.x[row]), y: finite(rows.map((row) => path.projected[metric]?.[row] ?? NaN)) });
  const named = { mode: "markers+text", textposition: "top center", textfont: { color: colour("text"), size: 12 }, cliponaxis: false };
  const rows = landscape.paths.flat();
  const add = (name, places, marker) => traces.push({ name, type: "scatter", mode: "markers", hoverinfo: "none", ...places, marker });
  add("path", { customdata: rows, ...placedAt(rows) }, { size: 7, color: "#ffffff", line: { color: colour("current"), width: 2 } });
  const labels = landscape.networks.map((row) => plotText(path.labels[row]));
  add("networks", { customdata: landscape.networks, ...placedAt(landscape.networks), ...named, text: labels }, {
    size: 10, symbol: landscape.networks.map((_, index) => SHAPES[index % SHAPES.length]), color: "#ffffff", line: { color: "#1a1a1a", width: 1 },
  });
  const own = (path?.own[metric] ?? []).map(({ row }) => row);
  add("own", { customdata: own, x: own.map((row) => path.x[row]), y: own.map((row) => path.metrics[metric][row]) }, {
    size: 9, symbol: "diamond-open", color: colour("text"), line: { width: 1.5 },
  });
  const value = origin.status === MEASURED ? origin.metrics[metric]?.[0] ?? NaN : NaN;
  const shows = !landscape.isDifference && Number.isFinite(value);
  add("origin", { x: shows ? [origin.x] : [], y: shows ? [value] : [], ...named, text: [plotText(origin.named ? origin.label : "")] }, {
    size: 12, symbol: "star", color: colour("origin"), line: { color: "#1a1a1a", width: 1 },
  });
  return [...traces, lineMark("current", current, colour("current")), lineMark("mark", [mark], colour("mark"))];
}

// What the reader or the player points at on a line.
function lineMark(name, points, fill) {
  return {
    name, type: "scatter", mode: "markers", hoverinfo: "skip", ...linePlaces(points), cliponaxis: false,
    marker: { size: 13, color: fill, line: { color: "#ffffff", width: 2 } },
  };
}

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
function profileLayout(text, scale, xTitle, { shared }) {
  const axis = { ...axisStyle(), zeroline: false, ticks: "outside", ticklen: 4, tickcolor: colour("line-strong") };
  const { tall } = scale;
  const logarithmic = scale.kind === "log";
  const values = tall.ticks(6);
  const ticks = { tickvals: logarithmic ? values : values.map((value) => scale.height(value)), ticktext: tall.tickTexts(values, 0.07) };
  const own = !shared || tall.empty || tall.flat;
  const [low, high] = tall.ends;
  const margin = 0.05 * (high - low);
  const range = own ? { autorange: true } : { range: [low - margin, high + margin], autorange: false };
  return {
    ...baseLayout(),
    margin: { l: 62, r: 16, t: 10, b: 46 },
    dragmode: TOUCH ? false : "zoom",
    xaxis: { ...axis, title: { text: plotText(xTitle).replace("\n", "<br>"), standoff: 8, font: { size: 12 } } },
    yaxis: {
      ...axis, title: { text: plotText(scaleLabel(text, scale)), standoff: 6, font: { size: 12 } }, type: logarithmic ? "log" : "linear",
      ...range, ...(scale.kind === "linear" ? { nticks: 6 } : ticks),
      // Of another metric, or on another scale, what the reader zoomed to is another place.
      uirevision: [text, scale.kind, range.range].join(" "),
    },
  };
}

// The usual lines to start with: across and up through the origin, and along the path.
function usualLine(landscape, kind) {
  const [left, right] = [landscape.x[0], landscape.x[landscape.columns - 1]];
  const [bottom, top] = [landscape.y[0], landscape.y[landscape.rows - 1]];
  const inside = (value, low, high) => Math.min(Math.max(value, low), high);
  const x = inside(landscape.origin.x, left, right);
  const y = inside(landscape.origin.y ?? 0, bottom, top);
  const path = landscape.checkpoints;
  if (kind === "up") return [x, bottom, x, top];
  const rows = landscape.walked;
  if (kind === "path" && rows.length > 1) {
    return [path.x[rows[0]], path.y[rows[0]], path.x[rows.at(-1)], path.y[rows.at(-1)]];
  }
  return [left, y, right, y];
}
