// Coarse cells of an unfinished landscape: each shows the value of a measured point nearby, washed out and hatched. Which
// point that is, Python says (landscape/sampling/coarse_cells.py). They are for looking at alone: no number of the page, no
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
  name, type: "heatmap", ...frame.grid(landscape.x, landscape.y, rows, "cells"), zmin, zmax, colorscale,
  showscale: false, hoverinfo: "skip", hoverongaps: false, zsmooth: false, ...more,
});

// Lines from corner to corner, along every unbroken run of cells on some diagonals of the grid.
function hatching(landscape, isCoarse, frame) {
  const { rows, columns } = landscape;
  const [x, y] = [bounds(landscape.x), bounds(landscape.y)];
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

// The n + 1 bounds of the cells around n coordinates.
function bounds(axis) {
  const [low, high] = edges(axis);
  return [low, ...Array.from(axis.slice(1), (value, index) => (axis[index] + value) / 2), high];
}

// Flat pieces of a surface, at the heights of the points from which coarse cells take their values; nothing where there are none.
function plateaus({ landscape, metric, scale, colours, frame }) {
  const pieces = landscape.plateaus[metric] ?? [];
  if (!pieces.length) return [];
  const mesh = { x: [], y: [], z: [], i: [], j: [], k: [], facecolor: [] };
  const outline = { x: [], y: [], z: [] };
  // A cell at the border does not reach beyond it.
  const [x, y] = [landscape.x, landscape.y].map((axis) => bounds(axis).map((value) => clamp(value, axis[0], axis.at(-1))));
  const [low, high] = scale.ends;
  const paint = partOf(colours, scale.ends, scale.ends);
  const page = channels(colour("card"));
  for (const [first, [top, bottom, left, right, index]] of pieces.entries()) {
    const height = scale.drawn(landscape.values(metric)[index]);
    const ring = frame.placeAll([x[left], x[right], x[right], x[left]], [y[top], y[top], y[bottom], y[bottom]]);
    for (const [axis, places] of Object.entries({ ...ring, z: Array(4).fill(height) })) {
      mesh[axis].push(...places);
      outline[axis].push(...places, places[0], null);
    }
    for (const [axis, corners] of [["i", [0, 0]], ["j", [1, 2]], ["k", [2, 3]]]) mesh[axis].push(...corners.map((corner) => 4 * first + corner));
    const own = channels(paint[Math.round((32 * (height - low)) / (high - low))][1]);
    const mixed = rgb(own.map((value, channel) => COARSE_OPACITY * value + (1 - COARSE_OPACITY) * page[channel]));
    mesh.facecolor.push(mixed, mixed);
  }
  const light = { ambient: 1, diffuse: 0, specular: 0, fresnel: 0 };
  // The measured points themselves, where they are fewer than coarse cells.
  const there = landscape.marked(metric);
  const dots = { ...frame.placed(landscape.points(there)), z: there.map((index) => scale.drawn(landscape.values(metric)[index])) };
  return [
    { name: "coarse", type: "mesh3d", ...mesh, flatshading: true, lighting: light, hoverinfo: "none", showscale: false },
    strokes("outlines", outline, { color: colour("line-strong"), width: 1 }, IN_SPACE),
    marks("measured", dots, { size: there.length > 150 ? 1 : 2, color: colour("text") }, IN_SPACE),
  ];
}

// A line's coarse cells: steps at the height of the point from which they take their value.
function coarseSteps({ landscape, metric }) {
  const ends = bounds(landscape.x);
  const steps = Array.from(landscape.x, (_, index) => [index, landscape.coarse(index, metric)]).filter(([, value]) => Number.isFinite(value));
  const places = { x: steps.flatMap(([index]) => [ends[index], ends[index + 1], null]), y: steps.flatMap(([, value]) => [value, value, null]) };
  return strokes("coarse", places, { color: colour("accent"), width: 2, dash: "dot" }, { opacity: COARSE_OPACITY });
}
