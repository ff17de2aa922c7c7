// The map: contours or cells seen from above, with the path, and with each kind of missing point marked in its own way.

const GAPS = ["pending", "failed", "not finite", "interpolated"];

function mapTraces(landscape, metric, scale, settings, colours, frame) {
  const rows = landscape.drawn(metric, scale);
  const [low, high] = landscape.isDifference ? usedEnds(rows) : scale.ends;
  const shown = landscape.isDifference ? partOf(colours, [low, high], scale.ends) : colours;
  const cells = settings.map === "cells" || landscape.thin || scale.flat;
  const shared = {
    name: "grid", ...frame.grid(landscape.x, landscape.y, rows, cells ? "cells" : "between"), zmin: low, zmax: high,
    colorscale: shown, hoverinfo: "none", connectgaps: false, hoverongaps: true,
    colorbar: colourBar(landscape.values(metric), landscape.text(metric), scale),
  };
  const grid = cells
    ? { ...shared, type: "heatmap", zsmooth: false }
    : { ...shared, type: "contour", autocontour: false, contours: { ...scale.contours(16), coloring: "fill" }, line: { width: 0.7, color: colour("contour") } };
  // Contours need four neighbours with values; beside a gap, each cell shows its own value.
  const gaps = rows.some((row) => row.some((value) => Number.isNaN(value)));
  const { colorbar, ...plain } = shared;
  const beside = () => ({
    ...plain, ...frame.grid(landscape.x, landscape.y, rows, "cells"), name: "beside", type: "heatmap", zsmooth: false, showscale: false,
    hoverinfo: "skip", hoverongaps: false,
  });
  return [
    grid, gapTrace(landscape, metric, frame), ...coarseTraces(landscape, metric, scale, shared, frame), measuredTrace(landscape, metric, grid.type, frame),
    ...mapPath(landscape, frame), ...(gaps && !cells ? [beside()] : []),
  ];
}

// Of a difference, the heights that occur, with zero among them: a sign that does not occur needs no colours.
function usedEnds(rows) {
  const [low, high] = finiteRange(rows.flatMap((row) => [...row]));
  const [bottom, top] = [Math.min(low || 0, 0), Math.max(high || 0, 0)];
  return top > bottom ? [bottom, top] : [-1, 1];
}

function colourBar(values, name, scale) {
  const ticks = [...scale.ticks(7)];
  // Whether the ends cut off values.
  const [lowest, highest] = finiteRange(values);
  const [below, above] = [lowest < scale.low, highest > scale.high];
  const near = (end) => ticks.findIndex((tick) => Math.abs(scale.height(tick) - scale.height(end)) < 0.06 * (scale.ends[1] - scale.ends[0]));
  for (const [cut, end] of [[below, scale.low], [above, scale.high]]) {
    if (!cut) continue;
    const index = near(end);
    if (index >= 0) ticks.splice(index, 1, end);
    else ticks.push(end);
  }
  ticks.sort((one, two) => one - two);
  const texts = scale.tickTexts(ticks, 0.04);
  const text = (tick, index) => (below && tick === scale.low ? "\u2264 " : above && tick === scale.high ? "\u2265 " : "") + texts[index];
  return {
    thickness: 12, outlinewidth: 0, xpad: 6, ypad: 0, tickfont: { size: 11 },
    title: { text: plotText(scaleLabel(name, scale)), side: "right", font: { size: 12 } },
    tickvals: ticks.map((tick) => scale.height(tick)), ticktext: ticks.map(text),
  };
}

function gapTrace(landscape, metric, frame) {
  const z = landscape.byRow((index, row, column) => {
    const gap = landscape.missing(index, metric);
    if (gap) return gap === "coarse" ? null : GAPS.indexOf(gap);
    // Every other cell, so that the values shine through what was not measured.
    return landscape.status[index] === INTERPOLATED && (row + column) % 2 === 0 ? 3 : null;
  });
  const stops = GAPS.flatMap((gap, index) => [[index / 4, colour(gap.replace(" ", "-"))], [(index + 1) / 4, colour(gap.replace(" ", "-"))]]);
  return {
    name: "gaps", type: "heatmap", ...frame.grid(landscape.x, landscape.y, z, "cells"), zmin: -0.5, zmax: 3.5, colorscale: stops,
    showscale: false, hoverinfo: "skip", zsmooth: false,
  };
}

// Plotly draws contours above cells, so that on contours dots must say which points were measured. Among coarse cells they
// are small cells of their own, which dots make easier to find.
function measuredTrace(landscape, metric, kind, frame) {
  const between = kind === "contour" && landscape.dotted;
  const shown = between ? [...landscape.status.keys()].filter((index) => landscape.status[index] === MEASURED) : landscape.marked(metric);
  const marker = { size: 2.5, color: "rgba(255,255,255,0.85)", line: { color: "rgba(0,0,0,0.6)", width: 0.5 } };
  return marks("measured", frame.placed(landscape.points(shown)), marker, SILENT);
}

function runColour(run, first) {
  return run === 0 ? first : ["#ff9f1c", "#ff70c0", "#7bf1d6", "#ffe45e"][(run - 1) % 4];
}

function mapPath(landscape, frame) {
  const path = frame.placed(landscape.checkpoints);
  const { origin, paths, networks } = landscape;
  // Between two runs there is a gap.
  const joined = paths.flatMap((rows, run) => (run ? [null, ...rows] : rows));
  const ends = paths.filter((rows) => rows.length > 1);
  const times = path?.times;
  const each = (first, second) => [...ends.map(() => first), ...ends.map(() => second)];
  const home = landscape.isDifference ? [[], []] : [[origin.x], [origin.y ?? 0]];
  const named = [
    ...networks.map((row) => [path.x[row], path.y[row], path.labels[row]]),
    ...(origin.named && !landscape.isDifference ? [[...frame.place(origin.x, origin.y ?? 0), origin.label]] : []),
    ...(paths.length > 1 ? paths.map((rows, run) => [path.x[rows.at(-1)], path.y[rows.at(-1)], path.runs[run], run]) : []),
  ];
  return [
    strokes("halo", placesOf(path, joined), { color: "rgba(20,20,20,0.75)", width: times ? 5.5 : 4 }),
    ...(times ? paths.flatMap((_, run) => timedLines(landscape, frame, run)) : []),
    ...paths.map((rows, run) => marks(run ? `path ${run}` : "path", { ...placesOf(path, rows), customdata: rows }, {
      size: dotSizes(landscape, frame, run, 5), color: times ? "#ffffff" : runColour(run, "#ffffff"),
      line: { color: "#1a1a1a", width: times ? dotSizes(landscape, frame, run, 0.8) : 0.8 },
    }, { mode: times ? "markers" : "lines+markers", line: { color: runColour(run, "#ffffff"), width: 1.8 } })),
    ...(times ? timeBars(times) : []),
    marks("ends", placesOf(path, [...ends.map((rows) => rows[0]), ...ends.map((rows) => rows.at(-1))]), {
      size: each(10, 15), symbol: each("square", "circle-open"), color: each("#4cc9f0", "#ff4d6d"),
      line: { width: each(1, 2.5), color: each("#1a1a1a", "#ff4d6d") },
    }, SILENT),
    marks("networks", { ...placesOf(path, networks), customdata: networks }, networkMarker(landscape, 11)),
    marks("origin", frame.placeAll(...home), originMarker()),
    // The marker cannot be seen; it keeps the text off the mark below it.
    marks("names", { x: named.map(([x]) => x), y: named.map(([, y]) => y) }, { size: 14, color: "rgba(0,0,0,0)" }, {
      ...SILENT, mode: "markers+text", cliponaxis: false, text: named.map(([, , text]) => plotText(text)),
      textposition: named.map(([, , , run]) => (run === undefined ? "top center" : "bottom center")),
      textfont: { color: named.map(([, , , run]) => (run === undefined ? "#ffffff" : hue(landscape, run, "#ffffff"))), size: 13, shadow: "auto" },
    }),
  ];
}

// About the width of a letter of an axis's title.
const LETTER_PIXELS = 6.2;

// The plot says how much room there is.
function mapLayout(landscape, { clientWidth: width, clientHeight: height }, cells, frame) {
  // The profile's handles lie on the frame and would cover numbers that are closer to it.
  const axis = { ...flatAxis(), showgrid: false, ticklabelstandoff: 8 };
  const range = (values) => (cells || values.length < 2 ? edges(values) : [values[0], values.at(-1)]);
  const [left, right, bottom, top] = frame.limits(range(landscape.x), range(landscape.y));
  const bar = timeBarHeight(landscape.checkpoints?.times);
  const [x, y] = frame.labels.map((text, index) => {
    // To scale, the axis has distances, while x and y are the names of the plane's coordinates.
    const whole = plotText(frame.toScale ? text : `${"xy"[index]}: ${text}`);
    const low = index === 1 && whole.length * LETTER_PIXELS > height - bar - 30;
    return width < 480 || low ? whole.replace(" (", "<br>(") : whole;
  });
  // What the reader zoomed to is kept as long as the axes mean the same.
  const side = (text, standoff, ends) => ({
    ...axis, automargin: true, title: { text, standoff, font: { size: 12 } }, range: ends, uirevision: ends.join(" "), constrain: "domain",
  });
  return {
    ...baseLayout(),
    margin: { l: 58, r: 8, t: 28, b: 46 + bar },
    hoverdistance: 8,
    annotations: landscape.checkpoints?.times ? pathNumbers(landscape, frame, width) : [],
    // A finger that moves over the map scrolls the page.
    dragmode: TOUCH ? false : "zoom",
    xaxis: side(x, 8, [left, right]),
    // Distances are as long upwards as across; coordinates fill a square.
    yaxis: { ...side(y, 6, [bottom, top]), scaleanchor: "x", scaleratio: frame.toScale ? 1 : (right - left) / (top - bottom) },
  };
}

// A range that shows the cells of all points in full.
function edges(axis) {
  if (axis.length === 1) return [axis[0] - 0.6, axis[0] + 0.6];
  return [axis[0] - (axis[1] - axis[0]) / 2, axis.at(-1) + (axis.at(-1) - axis.at(-2)) / 2];
}

// What moves: cheap to redraw, because no trace is computed again.
function mapShapes({ ends, path: checkpoints, come, mark, frame }) {
  const path = frame.placed(checkpoints);
  const dot = (name, [x, y], radius, line, fill, width = 2) => shapes.push({
    name, type: "circle", xsizemode: "pixel", ysizemode: "pixel", xanchor: x, yanchor: y, x0: -radius, x1: radius, y0: -radius, y1: radius,
    line: { color: line, width }, fillcolor: fill,
  });
  const runHue = (run) => hue({ checkpoints }, run, colour("current"));
  const shapes = [];
  if (ends) {
    const [[x0, y0], [x1, y1]] = [frame.place(ends[0], ends[1]), frame.place(ends[2], ends[3])];
    shapes.push({ name: "line-halo", type: "line", x0, y0, x1, y1, line: { color: "rgba(20,20,20,0.6)", width: 4 } });
    shapes.push({ name: "line", type: "line", x0, y0, x1, y1, line: { color: colour("profile"), width: 2, dash: "dash" } });
  }
  for (const [run, rows] of path ? come.entries() : []) {
    // At its end a path shows its own colours.
    if (rows.length < 2 || (path.times && rows.length === path.paths[run].length)) continue;
    const points = rows.map((row) => `${path.x[row]},${path.y[row]}`);
    shapes.push({ name: run ? `walked ${run}` : "walked", type: "path", path: `M ${points.join(" L ")}`, line: { color: runHue(run), width: 2.5 } });
  }
  for (const [run, rows] of path ? come.entries() : []) {
    dot(run ? `current ${run}` : "current", [path.x[rows.at(-1)], path.y[rows.at(-1)]], 6.5, "#ffffff", runHue(run));
  }
  if (mark) {
    dot("mark-halo", frame.place(mark.x, mark.y), 7, "#1a1a1a", "rgba(0,0,0,0)", 4);
    dot("mark", frame.place(mark.x, mark.y), 7, colour("mark"), "rgba(0,0,0,0)");
  }
  return shapes;
}
