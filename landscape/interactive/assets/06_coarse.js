// Coarse cells of an unfinished landscape: each shows the value of a measured point nearby, washed out and hatched. Which
// point that is, Python says (landscape/sampling/coarse_cells.py). They are for looking at alone: no number of the page, no
// profile and no file has them.

const COARSE_OPACITY = 0.55;
// About how many hatching lines there are across a map.
const HATCHES = 60;

// The cells as a trace of a map, drawn on a scale like the values, and the hatching above them.
function coarseTraces(landscape, metric, scale, { colorscale, zmin, zmax }, frame) {
  const rows = landscape.byRow((index) => finite([scale.drawn(landscape.coarse(index, metric))])[0]);
  if (rows.every((row) => row.every((value) => value === null))) return [];
  return [
    {
      name: "coarse", type: "heatmap", ...frame.grid(landscape.x, landscape.y, rows, "cells"), zmin, zmax, colorscale, opacity: COARSE_OPACITY,
      showscale: false, hoverinfo: "skip", hoverongaps: false, zsmooth: false,
    },
    hatching(landscape, (row, column) => rows[row][column] !== null, frame),
  ];
}

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
      if (there && begun === null) begun = column;
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
  return [low, ...Array.from(axis).slice(1).map((value, index) => (axis[index] + value) / 2), high];
}

// Flat pieces of a surface, at the heights of the points from which coarse cells take their values; nothing where there are none.
function plateaus(landscape, metric, scale, colours, frame) {
  const mesh = { x: [], y: [], z: [], i: [], j: [], k: [], facecolor: [] };
  const outline = { x: [], y: [], z: [] };
  // A cell at the border does not reach beyond it.
  const clipped = (axis) => bounds(axis).map((value) => clamp(value, axis[0], axis.at(-1)));
  const [x, y] = [clipped(landscape.x), clipped(landscape.y)];
  const [low, high] = scale.ends;
  const paint = partOf(colours, [low, high], [low, high]);
  const page = channels(colour("card"));
  for (const [top, bottom, left, right, index] of landscape.plateaus[metric] ?? []) {
    const height = scale.drawn(landscape.values(metric)[index]);
    const ring = frame.placeAll([x[left], x[right], x[right], x[left]], [y[top], y[top], y[bottom], y[bottom]]);
    const first = mesh.x.length;
    for (const [axis, places] of Object.entries({ ...ring, z: Array(4).fill(height) })) {
      mesh[axis].push(...places);
      outline[axis].push(...places, places[0], null);
    }
    mesh.i.push(first, first);
    mesh.j.push(first + 1, first + 2);
    mesh.k.push(first + 2, first + 3);
    const own = channels(paint[Math.round((32 * (height - low)) / (high - low))][1]);
    const mixed = `rgb(${own.map((value, channel) => Math.round(COARSE_OPACITY * value + (1 - COARSE_OPACITY) * page[channel])).join(",")})`;
    mesh.facecolor.push(mixed, mixed);
  }
  if (!mesh.x.length) return [];
  const light = { ambient: 1, diffuse: 0, specular: 0, fresnel: 0 };
  // The measured points themselves, where they are fewer than coarse cells.
  const there = landscape.marked(metric);
  const heights = there.map((index) => scale.drawn(landscape.values(metric)[index]));
  const dots = { ...frame.placed(landscape.points(there)), z: heights };
  return [
    { name: "coarse", type: "mesh3d", ...mesh, flatshading: true, lighting: light, hoverinfo: "none", showscale: false },
    strokes("outlines", outline, { color: colour("line-strong"), width: 1 }, IN_SPACE),
    marks("measured", dots, { size: there.length > 150 ? 1 : 2, color: colour("text") }, IN_SPACE),
  ];
}

// A line's coarse cells: steps at the height of the point from which they take their value.
function coarseSteps(landscape, metric) {
  const ends = bounds(landscape.x);
  const [x, y] = [[], []];
  for (let index = 0; index < landscape.columns; index += 1) {
    const value = landscape.coarse(index, metric);
    if (!Number.isFinite(value)) continue;
    x.push(ends[index], ends[index + 1], null);
    y.push(value, value, null);
  }
  return strokes("coarse", { x, y }, { color: colour("accent"), width: 2, dash: "dot" }, { opacity: COARSE_OPACITY });
}
