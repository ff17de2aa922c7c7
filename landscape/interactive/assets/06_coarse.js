// Coarse cells of an unfinished landscape: each shows the value of a measured point nearby, washed out and hatched. Which
// point that is, Python says (landscape/sampling/coarse_cells.py). They are for looking at alone: no number of the page, no
// profile and no file has them.

const COARSE_OPACITY = 0.55;
// About how many hatching lines there are across a map.
const HATCHES = 60;

// The cells as a trace of a map, drawn on a scale like the values, and the hatching above them.
function coarseTraces(landscape, metric, scale, { colorscale, zmin, zmax }, frame) {
  const { columns } = landscape;
  const rows = Array.from({ length: landscape.rows }, (_, row) => Array.from({ length: columns }, (_unused, column) => {
    const value = scale.drawn(landscape.coarse(row * columns + column, metric));
    return Number.isNaN(value) ? null : value;
  }));
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
  return {
    name: "hatching", type: "scatter", mode: "lines", ...frame.placeAll(across, up), hoverinfo: "skip", connectgaps: false,
    line: { color: colour("card"), width: 1 },
  };
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
  const clipped = (axis) => bounds(axis).map((value) => Math.min(Math.max(value, axis[0]), axis[axis.length - 1]));
  const [x, y] = [clipped(landscape.x), clipped(landscape.y)];
  const [low, high] = scale.ends;
  const paint = partOf(colours, [low, high], [low, high]);
  const page = channels(colour("card"));
  for (const [top, bottom, left, right, index] of coarseBlocks(landscape, metric, scale)) {
    const height = scale.drawn(landscape.values(metric)[index]);
    const ring = [[left, top], [right, top], [right, bottom], [left, bottom]].map(([column, row]) => frame.place(x[column], y[row]));
    const first = mesh.x.length;
    for (const [u, v] of ring) {
      mesh.x.push(u);
      mesh.y.push(v);
      mesh.z.push(height);
    }
    for (const [u, v] of [...ring, ring[0]]) {
      outline.x.push(u);
      outline.y.push(v);
      outline.z.push(height);
    }
    for (const list of Object.values(outline)) list.push(null);
    mesh.i.push(first, first);
    mesh.j.push(first + 1, first + 2);
    mesh.k.push(first + 2, first + 3);
    const own = channels(paint[Math.round((32 * (height - low)) / (high - low))][1]);
    const mixed = `rgb(${own.map((value, channel) => Math.round(COARSE_OPACITY * value + (1 - COARSE_OPACITY) * page[channel])).join(",")})`;
    mesh.facecolor.push(mixed, mixed);
  }
  if (!mesh.x.length) return [];
  const light = { ambient: 1, diffuse: 0, specular: 0, fresnel: 0 };
  return [
    { name: "coarse", type: "mesh3d", ...mesh, flatshading: true, lighting: light, hoverinfo: "none", showscale: false },
    { name: "outlines", type: "scatter3d", mode: "lines", ...outline, hoverinfo: "skip", connectgaps: false, line: { color: colour("line-strong"), width: 1 } },
    measuredOnSurface(landscape, metric, scale, frame),
  ];
}

// The measured points themselves, where they are fewer than coarse cells.
function measuredOnSurface(landscape, metric, scale, frame) {
  const there = landscape.marked(metric);
  const { x, y } = landscape.points(there);
  return {
    name: "measured", type: "scatter3d", mode: "markers", hoverinfo: "none", ...frame.placeAll(x, y),
    z: there.map((index) => scale.drawn(landscape.values(metric)[index])), marker: { size: there.length > 150 ? 1 : 2, color: colour("text") },
  };
}

// Rectangles of cells that show one point's value: first row, last row + 1, first column, last column + 1, that point. A
// point that is no corner of the surface itself lies on its own plateau.
function coarseBlocks(landscape, metric, scale) {
  const { rows, columns } = landscape;
  const heights = landscape.drawn(metric, scale);
  const points = new Int32Array(rows * columns).fill(-1);
  const giving = new Set();
  for (let index = 0; index < points.length; index += 1) {
    if (Number.isNaN(scale.drawn(landscape.coarse(index, metric)))) continue;
    points[index] = landscape.cover[index];
    giving.add(points[index]);
  }
  const there = (row, column) => heights[row]?.[column] !== undefined && !Number.isNaN(heights[row][column]);
  const isCorner = (row, column) => [[1, 1], [1, -1], [-1, 1], [-1, -1]].some(([up, right]) => there(row + up, column) && there(row, column + right) && there(row + up, column + right));
  for (const index of giving) if (!isCorner(Math.floor(index / columns), index % columns)) points[index] = index;
  const found = new Map();
  for (const [index, point] of points.entries()) {
    if (point < 0) continue;
    const [row, column] = [Math.floor(index / columns), index % columns];
    const box = found.get(point) ?? { top: row, bottom: row, left: column, right: column, count: 0 };
    found.set(point, { top: box.top, bottom: row + 1, left: Math.min(box.left, column), right: Math.max(box.right, column + 1), count: box.count + 1 });
  }
  const blocks = [];
  for (const [point, { top, bottom, left, right, count }] of found) {
    if (count === (bottom - top) * (right - left)) {
      blocks.push([top, bottom, left, right, point]);
      continue;
    }
    for (let row = top; row < bottom; row += 1) {
      for (let column = left, begun = null; column <= right; column += 1) {
        const own = column < right && points[row * columns + column] === point;
        if (own && begun === null) begun = column;
        if (own || begun === null) continue;
        blocks.push([row, row + 1, begun, column, point]);
        begun = null;
      }
    }
  }
  return blocks;
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
  return {
    name: "coarse", type: "scatter", mode: "lines", x, y, connectgaps: false, hoverinfo: "skip", opacity: COARSE_OPACITY,
    line: { color: colour("accent"), width: 2, dash: "dot" },
  };
}
