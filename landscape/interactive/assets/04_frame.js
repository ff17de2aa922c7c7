// Where a plane's points lie in its pictures: by distances in weight space, or by coordinates that fill a square.

// Pixels of the picture of an oblique plane, along its longer side: finer than a map on a screen shows.
const CONTOUR_PIXELS = 260;
const CELL_PIXELS = 560;

const PLAIN = [[1, 0], [0, 1]];

// Coordinates by a matrix that leaves the direction of x as it is.
const mapped = ([[along, shear], [, across]], x, y) => [along * x + shear * y, across * y];

class Frame {
  // The matrix takes (x, y) to the picture's coordinates; null leaves them as they are.
  // The box has the proportions of a surface, and each camera is counted from the surface's middle in units of the box.
  constructor(fields, aspect) {
    Object.assign(this, fields, { aspect, matrix: fields.matrix ?? PLAIN, toScale: fields.matrix !== null });
    this.oblique = this.matrix[0][1] !== 0;
    // What stands at the axes of a surface's floor, where there is little room.
    this.floor = this.toScale ? ["distance along x", this.oblique ? "distance across x" : "distance along y"] : ["x", "y"];
  }

  place(x, y) {
    return mapped(this.matrix, x, y);
  }

  // The plane's coordinates of a place in the picture.
  back(u, v) {
    const [[along, shear], [, across]] = this.matrix;
    const y = v / across;
    return [(u - shear * y) / along, y];
  }

  // A gap in a path, null, stays one.
  placeAll(x, y) {
    const found = Array.from(x, (value, index) => (value === null ? [null, null] : this.place(value, y[index])));
    return { x: found.map(([u]) => u), y: found.map(([, v]) => v) };
  }

  // Checkpoints, or whatever has coordinates, as they lie in the picture; null stays null.
  placed(points) {
    return points ? { ...points, ...this.placeAll(points.x, points.y) } : points;
  }

  // The coordinates of columns and of rows, in a picture that is not oblique.
  sides(x, y) {
    return { x: Array.from(x, (value) => this.place(value, 0)[0]), y: Array.from(y, (value) => this.place(0, value)[1]) };
  }

  // The picture's ends: left, right, bottom, top.
  limits([left, right], [bottom, top]) {
    const corners = [[left, bottom], [right, bottom], [left, top], [right, top]].map(([x, y]) => this.place(x, y));
    const [u, v] = [0, 1].map((axis) => corners.map((corner) => corner[axis]));
    return [Math.min(...u), Math.max(...u), Math.min(...v), Math.max(...v)];
  }

  // A grid for Plotly, whose maps are rectangles: the coordinates of columns and rows, and values row by row. Those of an
  // oblique plane are read off on a fine grid that covers it, interpolated bilinearly as contours are, or as cells.
  grid(landscape, rows, cells) {
    const { x, y } = landscape;
    if (!this.oblique) return { ...this.sides(x, y), z: rows };
    const ends = landscape.ends(cells);
    const [left, right, bottom, top] = this.limits(...ends);
    const size = (cells ? CELL_PIXELS : CONTOUR_PIXELS) / Math.max(right - left, top - bottom);
    const steps = [Math.ceil((right - left) * size), Math.ceil((top - bottom) * size)];
    const [u, v] = [[left, right, steps[0]], [bottom, top, steps[1]]].map(([low, high, count]) =>
      Array.from({ length: count + 1 }, (_, index) => low + ((high - low) * index) / count));
    const values = Float64Array.from(rows.flatMap((row) => Array.from(row, (value) => value ?? NaN)));
    const read = (across, up) => {
      // A place on the border may lie a little beyond it.
      const [atX, atY] = this.back(across, up).map((value, axis) => {
        const inside = clamp(value, ...ends[axis]);
        return Math.abs(value - inside) < 1e-9 * (ends[axis][1] - ends[axis][0]) ? inside : NaN;
      });
      if (!cells) return bilinear(x, y, values, atX, atY);
      return Number.isNaN(atX + atY) ? NaN : values[nearest(y, atY) * x.length + nearest(x, atX)];
    };
    return { x: u, y: v, z: v.map((up) => finite(u.map((across) => read(across, up)))) };
  }

  // A grid's points for a surface, which may be a parallelogram.
  surface(x, y) {
    if (!this.oblique) return this.sides(x, y);
    const rows = Array.from(y, (up) => this.placeAll(x, x.map(() => up)));
    return { x: rows.map((row) => row.x), y: rows.map((row) => row.y) };
  }
}
