// Paths of many checkpoints: coloured by time, with dots that do not touch, and with arrowheads. What lies where, Python
// has found (landscape/interactive/timed_paths.py); short paths have one colour, and a dot at every checkpoint.

// The pieces of a path on the map, each of one colour, and its arrowheads.
function timedLines({ times, paths }, path, frame, run) {
  const lines = times.pieces[run].map(([first, last, color]) =>
    strokes("time", placesOf(path, paths[run].slice(first, last + 1)), { color, width: 3.2 }));
  const { x, y, ...turned } = times.drawn[frame.aspect][run].arrows;
  return [...lines, marks("arrows", frame.placeAll(x, y), { symbol: "arrow", size: 14, line: EDGE, ...turned }, SILENT)];
}

// Numbers of checkpoints beside a path, where Python found room for them on a map of usual size.
const LEAST_NUMBERED = 400;

function pathNumbers(landscape, frame, width) {
  const path = frame.placed(landscape.checkpoints);
  const found = landscape.times && width >= LEAST_NUMBERED ? landscape.times.numbers[frame.aspect] : [];
  return found.map(([row, right, up]) => ({
    name: "number", x: path.x[row], y: path.y[row], text: String(path.number[row]), showarrow: false, xshift: right, yshift: up,
    xanchor: "center", yanchor: "middle", borderpad: 0, font: { color: "#ffffff", size: 11, shadow: "auto" },
  }));
}

// Under the map, a bar for each run's hue; the last one has the numbers. (Plotly cannot draw a level bar whose labels are off.)
const timeBars = (times) => times.ramps.map((ramp, run) => {
  const below = times.ramps.length - 1 - run;
  const numbers = below ? { ypad: 47 + 8 * below, ticks: "", tickvals: [] } : { ypad: 8, ticks: "outside" };
  return marks("time bar", { x: [null], y: [null] }, {
    color: [times.low], cmin: times.low, cmax: times.high, showscale: true, colorscale: ramp,
    colorbar: {
      orientation: "h", x: 0.5, len: 0.7, y: 0, yref: "container", yanchor: "bottom", thickness: 7, outlinewidth: 0.5, xpad: 0,
      nticks: 6, ticklen: 3, tickfont: { size: 11 }, ...numbers, title: { text: below ? "" : plotText(times.label), side: "bottom", font: { size: 11 } },
    },
  }, SILENT);
});

// The colour of a run as a whole; that of the first one, where it has no colours of time, depends on what is below it.
const hue = ({ checkpoints }, run, first) => checkpoints.hues[run] ?? first;

// How much higher a map is with the bars.
const timeBarHeight = (times) => times ? 48 + 8 * times.ramps.length : 0;

// The sizes of a path's marks: nothing where a dot would touch another.
const dotSizes = ({ times, paths }, frame, run, size) =>
  (times ? paths[run].map((row) => (times.drawn[frame.aspect][run].dots.includes(row) ? size : 0)) : size);

// On the surface an arrowhead is a chevron, whose three points lie at the height of the path.
const chevrons = ({ landscape, metric, scale, frame }, lift) =>
  landscape.times.drawn[frame.aspect].flatMap(({ arrows, chevrons: each }) => each.flatMap((points, index) =>
    [...points.map(([x, y]) => [x, y, scale.drawn(landscape.between(metric, x, y)) + lift, arrows.color[index]]), [null, null, null, "#ffffff"]]));

// How many pieces of a path between two checkpoints follow the surface.
function piecesBetween(landscape, from, to) {
  const { x, y } = landscape.checkpoints;
  if (!landscape.times) return 12;
  const cells = [[x, landscape.x], [y, landscape.y]].map(([places, axis]) => ((places[to] - places[from]) * (axis.length - 1)) / (axis.at(-1) - axis[0]));
  return clamp(Math.ceil(4 * Math.hypot(...cells)), 1, 12);
}
