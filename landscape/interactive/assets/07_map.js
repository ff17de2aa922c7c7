// The map: contours or cells seen from above, with the path, and with each kind of missing point marked in its own way.

const GAPS = ["pending", "failed", "not finite", "interpolated"];

function mapTraces(card) {
  const { landscape, metric, scale, settings, colours, frame } = card;
  const rows = landscape.drawn(metric, scale);
  // Of a difference, colours of a sign that does not occur are left out.
  const { ends: [zmin, zmax], colours: colorscale } = landscape.used?.[metric] ?? { ends: scale.ends, colours };
  const cells = settings.map === "cells" || landscape.thin || scale.flat;
  const grid = {
    name: "grid", ...frame.grid(landscape, rows, cells), zmin, zmax, colorscale,
    hoverinfo: "none", connectgaps: false, hoverongaps: true, colorbar: colourBar(landscape.metrics[metric], landscape.text(metric), scale),
    ...(cells ? { type: "heatmap", zsmooth: false }
      : { type: "contour", autocontour: false, contours: { ...scale.contours(16), coloring: "fill" }, line: { width: 0.7, color: colour("contour") } }),
  };
  // Contours need four neighbours with values; beside a gap, each cell shows its own value.
  const gaps = !cells && rows.some((row) => row.some(Number.isNaN));
  return [
    grid, gapTrace(card), ...coarseTraces(card, grid), measuredTrace(card, cells), ...mapPath(card),
    ...(gaps ? [cellTrace("beside", landscape, rows, frame, grid, { connectgaps: false })] : []),
  ];
}

function colourBar(values, name, scale) {
  const { low, high } = scale;
  const ticks = [...scale.ticks(7)];
  // Whether the ends cut off values.
  const [lowest, highest] = finiteRange(values);
  const signs = new Map([...(highest > high ? [[high, "\u2265 "]] : []), ...(lowest < low ? [[low, "\u2264 "]] : [])]);
  for (const end of [...signs.keys()].reverse()) {
    const near = ticks.findIndex((tick) => Math.abs(scale.height(tick) - scale.height(end)) < 0.06 * (scale.ends[1] - scale.ends[0]));
    ticks.splice(near < 0 ? ticks.length : near, 1, end);
  }
  ticks.sort((one, two) => one - two);
  return {
    thickness: 12, outlinewidth: 0, xpad: 6, ypad: 0, tickfont: { size: 11 },
    title: valueTitle(name, scale, { side: "right" }), tickvals: ticks.map((tick) => scale.height(tick)),
    ticktext: scale.tickTexts(ticks, 0.04).map((text, index) => (signs.get(ticks[index]) ?? "") + text),
  };
}

function gapTrace({ landscape, metric, frame }) {
  const z = landscape.byRow((index, row, column) => {
    const gap = landscape.missing(index, metric);
    if (gap) return gap === "coarse" ? null : GAPS.indexOf(gap);
    // Every other cell, so that the values shine through what was not measured.
    return landscape.status[index] === INTERPOLATED && (row + column) % 2 === 0 ? 3 : null;
  });
  const colorscale = GAPS.flatMap((gap, index) => [index, index + 1].map((stop) => [stop / 4, colour(gap.replace(" ", "-"))]));
  return cellTrace("gaps", landscape, z, frame, { zmin: -0.5, zmax: 3.5, colorscale });
}

// Plotly draws contours above cells, so that on contours dots must say which points were measured. Among coarse cells they
// are small cells of their own, which dots make easier to find.
function measuredTrace({ landscape, metric, frame }, cells) {
  const shown = !cells && landscape.dotted ? landscape.at(MEASURED) : landscape.marked(metric);
  const marker = { size: 2.5, color: "rgba(255,255,255,0.85)", line: { color: "rgba(0,0,0,0.6)", width: 0.5 } };
  return marks("measured", frame.placed(landscape.points(shown)), marker, SILENT);
}

function mapPath({ landscape, frame }) {
  const { origin, paths, networks, isDifference, times } = landscape;
  const path = frame.placed(landscape.checkpoints);
  // Between two runs there is a gap.
  const joined = paths.flatMap((rows, run) => (run ? [null, ...rows] : rows));
  const ends = paths.filter((rows) => rows.length > 1);
  const each = (first, second) => [...ends.map(() => first), ...ends.map(() => second)];
  const home = frame.placeAll(...(isDifference ? [[], []] : [[origin.x], [origin.y ?? 0]]));
  const name = (x, y, text, color = "#ffffff", position = "top center") => ({ x, y, text: plotText(text), color, position });
  const named = [
    ...networks.map((row) => name(path.x[row], path.y[row], path.labels[row])),
    ...(origin.named && !isDifference ? [name(home.x[0], home.y[0], origin.label)] : []),
    ...(paths.length > 1 ? paths.map((rows, run) =>
      name(path.x[rows.at(-1)], path.y[rows.at(-1)], path.runs[run], hue(landscape, run, "#ffffff"), "bottom center")) : []),
  ];
  const all = (field) => named.map((one) => one[field]);
  return [
    strokes("halo", placesOf(path, joined), { color: "rgba(20,20,20,0.75)", width: times ? 5.5 : 4 }),
    ...(times ? paths.flatMap((_, run) => timedLines(landscape, path, frame, run)) : []),
    ...paths.map((rows, run) => marks(run ? `path ${run}` : "path", { ...placesOf(path, rows), customdata: rows }, {
      size: dotSizes(landscape, frame, run, 5), color: times ? "#ffffff" : hue(landscape, run, "#ffffff"),
      line: { color: "#1a1a1a", width: dotSizes(landscape, frame, run, 0.8) },
    }, { mode: times ? "markers" : "lines+markers", line: { color: hue(landscape, run, "#ffffff"), width: 1.8 } })),
    ...(times ? timeBars(times) : []),
    marks("ends", placesOf(path, [...ends.map((rows) => rows[0]), ...ends.map((rows) => rows.at(-1))]), {
      size: each(10, 15), symbol: each("square", "circle-open"), color: each("#4cc9f0", "#ff4d6d"),
      line: { width: each(1, 2.5), color: each("#1a1a1a", "#ff4d6d") },
    }, SILENT),
    marks("networks", { ...placesOf(path, networks), customdata: networks }, networkMarker(landscape, 11)),
    marks("origin", home, originMarker()),
    // The marker cannot be seen; it keeps the text off the mark below it.
    marks("names", { x: all("x"), y: all("y") }, { size: 14, color: CLEAR }, {
      ...SILENT, mode: "markers+text", cliponaxis: false, text: all("text"), textposition: all("position"),
      textfont: { color: all("color"), size: 13, shadow: "auto" },
    }),
  ];
}

// About the width of a letter of an axis's title.
const LETTER_PIXELS = 6.2;

// The plot says how much room there is.
function mapLayout({ landscape, map: { clientWidth: width, clientHeight: height }, frame }, cells) {
  // The profile's handles lie on the frame and would cover numbers that are closer to it.
  const axis = { ...flatAxis(), showgrid: false, ticklabelstandoff: 8, automargin: true, constrain: "domain" };
  const [left, right, bottom, top] = frame.limits(...landscape.ends(cells));
  const bar = timeBarHeight(landscape.times);
  const [x, y] = frame.labels.map((text, index) => {
    // To scale, the axis has distances, while x and y are the names of the plane's coordinates.
    const whole = plotText(frame.toScale ? text : `${"xy"[index]}: ${text}`);
    const low = index === 1 && whole.length * LETTER_PIXELS > height - bar - 30;
    return width < 480 || low ? whole.replace(" (", "<br>(") : whole;
  });
  // What the reader zoomed to is kept as long as the axes mean the same.
  const side = (text, standoff, ends) => ({ ...axis, title: titled(text, { standoff }), range: ends, uirevision: ends.join(" ") });
  return {
    ...baseLayout(),
    margin: { l: 58, r: 8, t: 28, b: 46 + bar },
    hoverdistance: 8,
    annotations: pathNumbers(landscape, frame, width),
    // A finger that moves over the map scrolls the page.
    dragmode: TOUCH ? false : "zoom",
    xaxis: side(x, 8, [left, right]),
    // Distances are as long upwards as across; coordinates fill a square.
    yaxis: { ...side(y, 6, [bottom, top]), scaleanchor: "x", scaleratio: frame.toScale ? 1 : (right - left) / (top - bottom) },
  };
}

// What moves: cheap to redraw, because no trace is computed again.
function mapShapes({ landscape, line: ends, come, pointed, frame }) {
  const path = frame.placed(landscape.checkpoints);
  const line = (name, type, place, color, width, more = {}) => ({ name, type, ...place, line: { color, width, ...more } });
  const dot = (name, [x, y], radius, color, fillcolor, width = 2) => ({
    ...line(name, "circle", { x0: -radius, x1: radius, y0: -radius, y1: radius }, color, width),
    xsizemode: "pixel", ysizemode: "pixel", xanchor: x, yanchor: y, fillcolor,
  });
  const runHue = (run) => hue(landscape, run, colour("current"));
  const found = [];
  if (ends) {
    const [[x0, y0], [x1, y1]] = [frame.place(ends[0], ends[1]), frame.place(ends[2], ends[3])];
    found.push(line("line-halo", "line", { x0, y0, x1, y1 }, "rgba(20,20,20,0.6)", 4));
    found.push(line("line", "line", { x0, y0, x1, y1 }, colour("profile"), 2, { dash: "dash" }));
  }
  for (const [run, rows] of come.entries()) {
    // At its end a path shows its own colours.
    if (rows.length < 2 || (landscape.times && rows.length === landscape.paths[run].length)) continue;
    const points = rows.map((row) => `${path.x[row]},${path.y[row]}`);
    found.push(line(run ? `walked ${run}` : "walked", "path", { path: `M ${points.join(" L ")}` }, runHue(run), 2.5));
  }
  for (const [run, rows] of come.entries()) {
    const row = rows.at(-1);
    found.push(dot(run ? `current ${run}` : "current", [path.x[row], path.y[row]], 6.5, "#ffffff", runHue(run)));
  }
  if (pointed) {
    const place = frame.place(pointed.x, pointed.y);
    found.push(dot("mark-halo", place, 7, "#1a1a1a", CLEAR, 4), dot("mark", place, 7, colour("mark"), CLEAR));
  }
  return found;
}
