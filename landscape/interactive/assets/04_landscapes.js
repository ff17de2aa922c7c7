// A landscape as the page holds it, and the difference of two.

// More would be a grey veil.
const MOST_DOTS = 4000;

class Landscape {
  constructor(content) {
    Object.assign(this, content);
    this.x = doubles(content.x);
    this.isLine = content.y === null;
    this.y = this.isLine ? Float64Array.of(0) : doubles(content.y);
    this.status = bytes(content.status);
    this.cover = content.cover && integers(content.cover);
    this.metrics = decoded(content.metrics);
    this.frames = Object.fromEntries(Object.entries(content.frames ?? {}).map(([aspect, frame]) => [aspect, new Frame(frame, aspect)]));
    this.origin = { ...content.origin, metrics: decoded(content.origin.metrics) };
    if (content.checkpoints) {
      const path = content.checkpoints;
      this.checkpoints = {
        ...path,
        x: doubles(path.x),
        y: this.isLine ? new Float64Array(path.number.length) : doubles(path.y),
        residual: doubles(path.residual),
        metrics: decoded(path.metrics),
        projected: decoded(path.projected),
        status: bytes(path.status),
      };
    }
  }

  // How far two points lie apart in weight space, or in coordinates where the directions' lengths are not known.
  distance(x0, y0, x1, y1) {
    const [[along, shear], [, across]] = this.geometry ?? [[1, 0], [0, 1]];
    return Math.hypot(along * (x1 - x0) + shear * (y1 - y0), across * (y1 - y0));
  }

  // The rows of each run's path; rows of different runs are never joined.
  get paths() {
    return this.checkpoints?.paths ?? [];
  }

  // The longest path.
  get walked() {
    return this.paths.reduce((longest, rows) => (rows.length > longest.length ? rows : longest), []);
  }

  // The player's steps: the checkpoints of a single run, or the different numbers that those of several runs have.
  get steps() {
    const { paths } = this;
    if (paths.length < 2) return this.walked.map((row) => this.checkpoints.number[row]);
    return [...new Set(paths.flat().map((row) => this.checkpoints.number[row]))].sort((one, two) => one - two);
  }

  // How far each run has come at a step: its rows until then, at least its first. A run that has ended waits at its end.
  come(step) {
    const { paths, steps } = this;
    if (paths.length === 1) return [paths[0].slice(0, step + 1)];
    return paths.map((rows) => {
      const past = rows.filter((row) => this.checkpoints.number[row] <= steps[step]);
      return past.length ? past : rows.slice(0, 1);
    });
  }

  // Networks that belong to no run, without the origin, which has its star.
  get networks() {
    return this.checkpoints?.networks ?? [];
  }

  get columns() {
    return this.x.length;
  }

  get rows() {
    return this.y.length;
  }

  // The coordinates of grid points, by their indices.
  points(indices) {
    return { x: indices.map((index) => this.x[index % this.columns]), y: indices.map((index) => this.y[Math.floor(index / this.columns)]) };
  }

  values(metric) {
    return this.metrics[metric] ?? new Float64Array(this.columns * this.rows).fill(NaN);
  }

  // The values by row, drawn on a scale, for Plotly.
  drawn(metric, scale) {
    const heights = this.values(metric).map((value) => scale.drawn(value));
    return Array.from({ length: this.rows }, (_, row) => heights.subarray(row * this.columns, (row + 1) * this.columns));
  }

  suggested(metric, kind) {
    return this.scales[metric]?.[kind] ?? null;
  }

  // A metric in words, with the data set where there are several: "loss on test".
  text(metric) {
    return this.names[metric]?.text ?? metric;
  }

  // What a metric measures; metrics of one quantity share a scale.
  quantity(metric) {
    return this.names[metric]?.quantity ?? metric;
  }

  isError(metric) {
    return this.names[metric]?.is_error ?? false;
  }

  // The standard error of a metric, by the names in its own list of values; nothing where there is none.
  errorOf(metric, metrics = this.metrics) {
    return metrics[this.names[metric]?.standard_error];
  }

  count(status) {
    return this.status.reduce((total, each) => total + (each === status ? 1 : 0), 0);
  }

  // Whether dots on the map tell what was measured from what was interpolated; too many would hide it.
  get dotted() {
    return this.count(INTERPOLATED) > 0 && this.count(MEASURED) <= MOST_DOTS;
  }

  // What pictures show at a pending point: the value of the measured point whose coarse cell covers it. NaN elsewhere.
  coarse(index, metric) {
    const point = this.cover ? this.cover[index] : -1;
    const value = point < 0 ? NaN : this.values(metric)[point];
    return Number.isFinite(value) ? value : NaN;
  }

  // The measured points, where they are fewer than the coarse cells and not too many for a dot each.
  marked(metric) {
    if (!this.cover) return [];
    const values = this.values(metric);
    const found = [...this.status.keys()].filter((index) => this.status[index] === MEASURED && Number.isFinite(values[index]));
    const coarse = this.status.reduce((total, _, index) => total + (Number.isNaN(this.coarse(index, metric)) ? 0 : 1), 0);
    return found.length < coarse && found.length <= MOST_DOTS ? found : [];
  }

  // What stands in place of a number at a point, or null where it has one.
  missing(index, metric) {
    if (!Number.isNaN(this.coarse(index, metric))) return "coarse";
    if (this.status[index] === PENDING || this.status[index] === FAILED) return STATUS[this.status[index]];
    return Number.isFinite(this.values(metric)[index]) ? null : "not finite";
  }

  csv() {
    const names = Object.keys(this.metrics);
    const lines = [["x", ...(this.isLine ? [] : ["y"]), ...names, "status"].map(csvField).join(",")];
    for (let row = 0; row < this.rows; row += 1) {
      for (let column = 0; column < this.columns; column += 1) {
        const index = row * this.columns + column;
        lines.push([
          exactText(this.x[column]),
          ...(this.isLine ? [] : [exactText(this.y[row])]),
          ...names.map((name) => exactText(this.metrics[name][index])),
          STATUS[this.status[index]],
        ].join(","));
      }
    }
    return `${lines.join("\n")}\n`;
  }
}

function decoded(texts) {
  return mapping(Object.entries(texts).map(([name, text]) => [name, doubles(text)]));
}

// First minus second: all metrics of two landscapes, or two metrics of one. A point counts as measured where it is so in both.
class Difference extends Landscape {
  constructor(first, second, scales, { metrics = null, cover = null } = {}) {
    super({ ...EMPTY, y: first.isLine ? null : "", cover });
    this.x = first.x;
    this.y = first.y;
    this.isDifference = true;
    this.scales = scales;
    const parts = metrics ? metrics.map((metric) => first.text(metric)) : [first.name, second.name];
    this.title = parts.join(" \u2212 ");
    this.name = ["difference", ...parts].join("_");
    this.axis_labels = first.axis_labels;
    this.frames = first.frames;
    this.geometry = first.geometry;
    this.facts = [["difference", this.title], ...(metrics ? [["landscape", first.title]] : [["first", first.title], ["second", second.title]])];
    const shared = Object.keys(first.metrics).filter((name) => name in second.metrics && !first.isError(name));
    const pairs = metrics ? [[this.title, ...metrics]] : shared.map((name) => [name, name, name]);
    this.names = metrics ? mapping([]) : first.names;
    this.only = metrics ? this.title : null;
    this.metrics = mapping(
      pairs.map(([name, one, two]) => [name, first.metrics[one].map((value, index) => value - second.metrics[two][index])]),
    );
    // Both metrics of one landscape are known at the same points.
    if (metrics) this.cover = first.cover;
    this.status = first.status.map((status, index) => jointStatus(status, second.status[index]));
    const [rows, columns] = [this.rows, this.columns];
    this.note = first.isLine ? `line of ${columns} points` : `${columns} \u00d7 ${rows} points`;
    const precisions = [...new Set([first.precision, second.precision])];
    if (precisions.join() !== "float32") this.note += `; measured in ${precisions.join(" and ")}`;
    const gap = Math.max(first.largest_gap ?? 0, second.largest_gap ?? 0);
    const text = gap > 1 ? `features narrower than ${gap} points may be missed` : "";
    this.estimates = mapping(pairs.map(([name]) => [name, text]));
  }

  // The choice of the page does not count: a logarithm has no place for both signs.
  suggested(metric) {
    return this.scales[metric] ?? null;
  }
}

const EMPTY = {
  x: "", status: "", metrics: {}, origin: { x: 0, y: 0, metrics: {}, status: 0, label: "origin", named: false }, checkpoints: null, facts: [],
  scales: {}, names: {}, complete: true, unit: "checkpoint",
};

function jointStatus(first, second) {
  return [FAILED, PENDING, INTERPOLATED].find((status) => first === status || second === status) ?? MEASURED;
}
