// Paths of many checkpoints: coloured by time, with dots that do not touch, and with arrowheads. What lies where, Python
// has found (landscape/interactive/timed_paths.py); short paths have one colour, and a dot at every checkpoint.

// The pieces of a path on the map, each of one colour, and its arrowheads.
function timedLines(landscape, frame, run) {
  const path = frame.placed(landscape.checkpoints);
  const { times, paths } = landscape.checkpoints;
  const [rows, colours] = [paths[run], times.colours[run]];
  const lines = times.pieces[run].map(([first, last]) => {
    const line = { color: colours[(first + last) >> 1], width: 3.2 };
    return strokes("time", placesOf(path, rows.slice(first, last + 1)), line);
  });
  const { arrows } = times.drawn[frame.aspect][run];
  return [...lines, marks("arrows", frame.placeAll(arrows.map(([, x]) => x), arrows.map(([, , y]) => y)), {
    symbol: "arrow", size: 14, angle: arrows.map(([, , , angle]) => angle), line: EDGE,
    color: arrows.map(([place]) => colours[Math.round(place)]),
  }, SILENT)];
}

// Numbers of checkpoints beside a path, where Python found room for them on a map of usual size.
const LEAST_NUMBERED = 400;

function pathNumbers(landscape, frame, width) {
  const { times, number } = landscape.checkpoints;
  const path = frame.placed(landscape.checkpoints);
  const found = width < LEAST_NUMBERED ? [] : times.numbers[frame.aspect];
  return found.map(([row, right, up]) => ({
    name: "number", x: path.x[row], y: path.y[row], text: String(number[row]), showarrow: false, xshift: right, yshift: up,
    xanchor: "center", yanchor: "middle", borderpad: 0, font: { color: "#ffffff", size: 11, shadow: "auto" },
  }));
}

// Under the map, a bar for each run's hue; the last one has the numbers. (Plotly cannot draw a level bar whose labels are off.)
function timeBars(times) {
  return times.ramps.map((ramp, run) => {
    const last = run === times.ramps.length - 1;
    return marks("time bar", { x: [null], y: [null] }, {
      color: [times.low], cmin: times.low, cmax: times.high, showscale: true, colorscale: ramp.map((each, index) => [index / (ramp.length - 1), each]),
      colorbar: {
        orientation: "h", x: 0.5, len: 0.7, y: 0, yref: "container", yanchor: "bottom", thickness: 7, outlinewidth: 0.5, xpad: 0,
        ypad: 8 + (times.ramps.length - 1 - run) * 8 + (last ? 0 : 39), nticks: 6, ...(last ? {} : { tickvals: [] }), ticks: last ? "outside" : "", ticklen: 3,
        tickfont: { size: 11 }, title: { text: last ? plotText(times.label) : "", side: "bottom", font: { size: 11 } },
      },
    }, SILENT);
  });
}

// The colour of a run as a whole.
function hue(landscape, run, first) {
  return landscape.checkpoints?.times?.ramps[run][2] ?? runColour(run, first);
}

// How much higher a map is with the bars.
function timeBarHeight(times) {
  return times ? 48 + 8 * times.ramps.length : 0;
}

// The sizes of a path's marks: nothing where a dot would touch another.
function dotSizes(landscape, frame, run, size) {
  const { times, paths } = landscape.checkpoints;
  if (!times) return size;
  const dots = new Set(times.drawn[frame.aspect][run].dots);
  return paths[run].map((row) => (dots.has(row) ? size : 0));
}

// On the surface an arrowhead is a chevron, whose three points lie at the height of the path.
function chevrons(landscape, metric, scale, lift, frame) {
  const { times } = landscape.checkpoints;
  const [x, y, z, colours] = [[], [], [], []];
  for (const [run, { arrows, chevrons: each }] of times.drawn[frame.aspect].entries()) {
    for (const [index, points] of each.entries()) {
      for (const [across, up] of points) {
        x.push(across);
        y.push(up);
        z.push(scale.drawn(bilinear(landscape.x, landscape.y, landscape.values(metric), across, up)) + lift);
        colours.push(times.colours[run][Math.round(arrows[index][0])]);
      }
      for (const list of [x, y, z]) list.push(null);
      colours.push("#ffffff");
    }
  }
  return strokes("arrows", frame.placed({ x, y, z }), { color: colours, width: 6 }, IN_SPACE);
}

// How many pieces of a path between two checkpoints follow the surface.
function piecesBetween(landscape, from, to) {
  const { x, y, times } = landscape.checkpoints;
  if (!times) return 12;
  const cells = [[x, landscape.x], [y, landscape.y]].map(([places, axis]) => ((places[to] - places[from]) * (axis.length - 1)) / (axis.at(-1) - axis[0]));
  return clamp(Math.ceil(4 * Math.hypot(...cells)), 1, 12);
}
