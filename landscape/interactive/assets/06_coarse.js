// Coarse cells of an unfinished landscape: each shows the value of a measured point nearby, washed out and hatched. Which
// point that is, Python says (landscape/sampling/grids.py). They are for looking at alone: no number of the page, no
// profile and no file has them.

const COARSE_OPACITY = 0.55;
// About how many hatching lines there are across a map.
const HATCHES = 60;

// The cells as a trace of a map, drawn like its values, and the hatching above them.
function coarseTraces({ landscape, metric, scale, frame }, grid) {
  const rows = landscape.byRow((index) => finite([scale.drawn(landscape.coarse(index, metric))])[0]);
  if (rows.every((row) => row.every((value) => value === null))) return [];
  const cells = cellTrace("coarse", landscape, rows, frame, grid, { opacity: COARSE_OPACITY });
  return [cells, hatching(landscape, (row, column) => rows[row][column] !== null, frame)];
}

// A map of cells that does not answer to the pointer.
const cellTrace = (name, landscape, rows, frame, { colorscale, zmin, zmax }, more = {}) => ({
  name, type: "heatmap", ...frame.grid(landscape, rows, true), zmin, zmax, colorscale,
  showscale: false, hoverinfo: "skip", hoverongaps: false, zsmooth: false, ...more,
});

// Lines from corner to corner, along every unbroken run of cells on some diagonals of the grid.
function hatching(landscape, isCoarse, frame) {
  const { rows, columns, bounds: [x, y] } = landscape;
  const step = Math.max(1, Math.round(Math.max(rows, columns) / HATCHES));
  const [across, up] = [[], []];
  for (let diagonal = 0; diagonal < rows + columns - 1; diagonal += step) {
    let begun = null;
    const last = Math.min(diagonal, columns - 1);
    for (let column = Math.max(0, diagonal - rows + 1); column <= last + 1; column += 1) {
      const there = column <= last && isCoarse(diagonal - column, column);
      if (there) begun ??= column;
      if (there || begun === null) continue;
      across.push(x[begun], x[column], null);
      up.push(y[diagonal - begun + 1], y[diagonal - column + 1], null);
      begun = null;
    }
  }
  return strokes("hatching", frame.placeAll(across, up), { color: colour("card"), width: 1 });
}

// Flat pieces of a surface, at the heights of the points from which coarse cells take their values; nothing where there are none.
function plateaus({ landscape, metric, scale, colours, frame }) {
  const pieces = landscape.plateaus[metric] ?? [];
  if (!pieces.length) return [];
  // A cell at the border does not reach beyond it.
  const [x, y] = landscape.ends(false).map((ends, axis) => landscape.bounds[axis].map((bound) => clamp(bound, ...ends)));
  const rings = pieces.flatMap(([top, bottom, left, right]) => [[left, top], [right, top], [right, bottom], [left, bottom]]);
  const heights = pieces.map(([, , , , index]) => scale.drawn(landscape.metrics[metric][index]));
  const corners = {
    ...frame.placeAll(rings.map(([at]) => x[at]), rings.map(([, at]) => y[at])), z: heights.flatMap((height) => Array(4).fill(height)),
  };
  const closed = (places) => pieces.flatMap((_, piece) => [...places.slice(4 * piece, 4 * piece + 4), places[4 * piece], null]);
  const outline = { x: closed(corners.x), y: closed(corners.y), z: closed(corners.z) };
  const triangles = (one, other) => pieces.flatMap((_, piece) => [4 * piece + one, 4 * piece + other]);
  const page = channels(colour("card"));
  const washed = colours.map(([place, text]) =>
    [place, `rgb(${channels(text).map((value, channel) => Math.round(COARSE_OPACITY * value + (1 - COARSE_OPACITY) * page[channel]))})`]);
  const [cmin, cmax] = scale.ends;
  const light = { ambient: 1, diffuse: 0, specular: 0, fresnel: 0 };
  // The measured points themselves, where they are fewer than coarse cells.
  const there = landscape.marked(metric);
  const dots = { ...frame.placed(landscape.points(there)), z: there.map((index) => scale.drawn(landscape.metrics[metric][index])) };
  return [
    {
      name: "coarse", type: "mesh3d", ...corners, i: triangles(0, 0), j: triangles(1, 2), k: triangles(2, 3), intensitymode: "cell",
      intensity: heights.flatMap((height) => [height, height]), colorscale: washed, cmin, cmax, flatshading: true, lighting: light,
      hoverinfo: "none", showscale: false,
    },
    strokes("outlines", outline, { color: colour("line-strong"), width: 1 }, IN_SPACE),
    marks("measured", dots, { size: there.length > 150 ? 1 : 2, color: colour("text") }, IN_SPACE),
  ];
}

// A line's coarse cells: steps at the height of the point from which they take their value.
function coarseSteps({ landscape, metric }) {
  const [ends] = landscape.bounds;
  const steps = Array.from(landscape.x, (_, index) => [index, landscape.coarse(index, metric)]).filter(([, value]) => Number.isFinite(value));
  const places = { x: steps.flatMap(([index]) => [ends[index], ends[index + 1], null]), y: steps.flatMap(([, value]) => [value, value, null]) };
  return strokes("coarse", places, { color: colour("accent"), width: 2, dash: "dot" }, { opacity: COARSE_OPACITY });
}
