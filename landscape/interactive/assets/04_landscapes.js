// A landscape as the page holds it, and the difference of two. What its fields mean, landscape/interactive/content.py says.

// More would be a grey veil.
const MOST_DOTS = 4000;

class Landscape {
  constructor(fields) {
    Object.assign(this, fields);
    [this.columns, this.rows] = [this.x.length, this.y.length];
    this.thin = this.rows < 2 || this.columns < 2;
  }

  // How far two points lie apart in weight space, or in coordinates where the directions' lengths are not known.
  distance(x0, y0, x1, y1) {
    return Math.hypot(...mapped(this.geometry ?? PLAIN, x1 - x0, y1 - y0));
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

  points(indices) {
    return { x: indices.map((index) => this.x[index % this.columns]), y: indices.map((index) => this.y[Math.floor(index / this.columns)]) };
  }

  // The ends of x and of y: the first and last points or, of "cells" and where there is one point, the borders of their cells.
  ends(cells) {
    return [this.x, this.y].map((axis, at) => (cells || axis.length < 2 ? this.bounds[at] : axis)).map((axis) => [axis[0], axis.at(-1)]);
  }

  // What a function returns of each point, row by row.
  byRow(read) {
    const { columns } = this;
    return Array.from(this.y, (_y, row) => Array.from(this.x, (_x, column) => read(row * columns + column, row, column)));
  }

  between(metric, x, y) {
    return bilinear(this.x, this.y, this.metrics[metric], x, y);
  }

  drawn(metric, scale) {
    const heights = this.metrics[metric].map((value) => scale.drawn(value));
    return Array.from({ length: this.rows }, (_, row) => heights.subarray(row * this.columns, (row + 1) * this.columns));
  }

  // With the data set where there are several: "loss on test".
  text(metric) {
    return this.names[metric]?.text ?? metric;
  }

  // What a metric measures; metrics of one quantity share a scale.
  quantity(metric) {
    return this.names[metric]?.quantity ?? metric;
  }

  // The standard error of a metric, by the names in its own list of values; nothing where there is none.
  errorOf(metric, metrics = this.metrics) {
    return metrics[this.names[metric]?.standard_error];
  }

  at(status) {
    return [...this.status.keys()].filter((index) => this.status[index] === status);
  }

  count(status) {
    return this.at(status).length;
  }

  // Whether dots on the map tell what was measured from what was interpolated; too many would hide it.
  get dotted() {
    return this.count(INTERPOLATED) > 0 && this.count(MEASURED) <= MOST_DOTS;
  }

  // What pictures show at a pending point: the value of the measured point whose coarse cell covers it. NaN elsewhere.
  coarse(index, metric) {
    const value = this.cover ? this.metrics[metric][this.cover[index]] : NaN;
    return Number.isFinite(value) ? value : NaN;
  }

  // The measured points, where they are fewer than the coarse cells and not too many for a dot each.
  marked(metric) {
    if (!this.cover) return [];
    const found = this.at(MEASURED).filter((index) => Number.isFinite(this.metrics[metric][index]));
    const coarse = this.status.filter((_, index) => Number.isFinite(this.coarse(index, metric))).length;
    return found.length < coarse && found.length <= MOST_DOTS ? found : [];
  }

  // What stands in place of a number at a point, or null where it has one.
  missing(index, metric) {
    if (!Number.isNaN(this.coarse(index, metric))) return "coarse";
    if (this.status[index] === PENDING || this.status[index] === FAILED) return STATUS[this.status[index]];
    return Number.isFinite(this.metrics[metric][index]) ? null : "not finite";
  }

  csv() {
    const names = Object.keys(this.metrics);
    const axes = this.isLine ? ["x"] : ["x", "y"];
    const lines = this.byRow((index) => {
      const place = this.points([index]);
      const numbers = [...axes.map((axis) => place[axis][0]), ...names.map((name) => this.metrics[name][index])];
      return [...numbers.map(exactText), STATUS[this.status[index]]].join(",");
    });
    return `${[[...axes, ...names, "status"].map(csvField).join(","), ...lines.flat()].join("\n")}\n`;
  }
}

const readLandscape = ({ frames, ...content }) => new Landscape({
  ...content, frames: Object.fromEntries(Object.entries(frames).map(([aspect, frame]) => [aspect, new Frame(frame, aspect)])),
});

const PATHLESS = { paths: [], walked: [], networks: [], steps: [], times: null };

// First minus second: all metrics of two landscapes, or two metrics of one, which are known at the same points.
function differenceOf(first, second, { metrics, scales, used, plateaus, note, estimate, ...points }) {
  const parts = metrics ? metrics.map((metric) => first.text(metric)) : [first.name, second.name];
  const title = parts.join(" \u2212 ");
  const shared = Object.keys(first.metrics).filter((name) => name in second.metrics && !first.names[name].is_error);
  const pairs = metrics ? [[title, ...metrics]] : shared.map((name) => [name, name, name]);
  // Two metrics of one landscape are a metric of their own.
  const own = (values) => (metrics ? mapping([[title, Object.values(values)[0]]]) : values);
  return new Landscape({
    ...first, ...points, title, note, checkpoints: null, ...PATHLESS, isDifference: true, only: metrics ? title : null,
    name: ["difference", ...parts].join("_"),
    scales: own(scales),
    used: own(used),
    plateaus: own(plateaus),
    facts: [["difference", title], ...(metrics ? [["landscape", first.title]] : [["first", first.title], ["second", second.title]])],
    names: mapping(metrics ? [] : Object.entries(first.names).map(([name, about]) => [name, { ...about, text: `difference of ${about.text}` }])),
    metrics: mapping(pairs.map(([name, one, two]) => [name, first.metrics[one].map((value, index) => value - second.metrics[two][index])])),
    estimates: mapping(pairs.map(([name]) => [name, estimate])),
    origin: { x: 0, y: 0, metrics: {}, status: PENDING, label: "origin", named: false },
  });
}
