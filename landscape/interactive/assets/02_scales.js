// How values become heights and colours. Values beyond the ends are drawn at the ends, and the labels say so.

class Scale {
  constructor(kind, low, high, threshold = 1) {
    this.kind = kind;
    this.low = low;
    this.high = high;
    this.threshold = threshold;
  }

  get empty() {
    return Number.isNaN(this.low);
  }

  get flat() {
    return !(this.high > this.low);
  }

  // The height of a value, unclipped; NaN where there is none.
  height(value) {
    if (!Number.isFinite(value)) return NaN;
    if (this.kind === "log") return value > 0 ? Math.log10(value) : NaN;
    if (this.kind === "symlog") {
      const size = Math.abs(value) / this.threshold;
      return Math.sign(value) * (size < 1 ? size : 1 + Math.log10(size));
    }
    return value;
  }

  // The height at which a value is drawn.
  drawn(value) {
    if (this.kind === "log" && value <= 0) return NaN;
    return this.height(Number.isFinite(value) ? Math.min(Math.max(value, this.low), this.high) : NaN);
  }

  // Lowest and highest drawn height, apart from each other even where all values are one.
  get ends() {
    if (this.empty) return [0, 1];
    const low = this.height(this.low);
    if (!this.flat) return [low, this.height(this.high)];
    const half = Math.abs(low) / 10 || 1;
    return [low - half, low + half];
  }

  // Start, end and distance of contour lines, in heights.
  contours(count) {
    const [low, high] = this.ends;
    const size = (high - low) / (count + 1);
    return { start: low + size, end: high - size / 2, size };
  }

  ticks(count = 6) {
    if (this.empty) return [];
    if (this.flat) return [this.low];
    let found = [];
    if (this.kind === "log") found = decades(this.low, this.high, count);
    if (this.kind === "symlog") {
      const above = this.high > this.threshold ? decades(this.threshold, this.high, count / 2) : [];
      const below = this.low < -this.threshold ? decades(this.threshold, -this.low, count / 2) : [];
      found = [...below.map((value) => -value).reverse(), ...(this.low <= 0 && this.high >= 0 ? [0] : []), ...above];
    }
    return found.length < 3 ? rounded(this.low, this.high, count) : found;
  }

  // Whether the ends cut off values.
  clipped(values) {
    const [low, high] = finiteRange(values);
    return { below: low < this.low, above: high > this.high };
  }
}

function scaleLabel(metric, scale) {
  return metric + ({ log: " (log scale)", symlog: " (log scale around 0)" }[scale.kind] ?? "");
}

function rounded(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw) * power;
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; index += 1) {
    found.push(Number((index * step).toPrecision(12)));
  }
  return found;
}

function decades(low, high, count) {
  const first = Math.floor(Math.log10(low));
  const last = Math.floor(Math.log10(high));
  for (const [mantissas, stride] of [[[1, 1.5, 2, 3, 5, 7], 1], [[1, 2, 5], 1], [[1, 3], 1], ...[1, 2, 5, 10, 20, 50, 100].map((n) => [[1], n])]) {
    const found = [];
    for (let power = first; power <= last; power += 1) {
      if (power % stride !== 0) continue;
      for (const mantissa of mantissas) {
        const value = Number(`${mantissa}e${power}`);
        if (value >= low && value <= high) found.push(value);
      }
    }
    if (found.length <= count) return found;
  }
  return [];
}

// The scale for some landscapes together: what each suggests for itself, joined, then the ends that the user gave.
function scaleFor(landscapes, metric, settings) {
  const found = landscapes.map((landscape) => landscape.suggested(metric, settings.scale)).filter((item) => item && !Number.isNaN(item.low));
  const kinds = new Set(found.map((item) => item.kind));
  const kind = kinds.size === 1 ? found[0].kind : "linear";
  if (!found.length) return new Scale("linear", NaN, NaN);
  let low = Math.min(...found.map((item) => item.low));
  let high = Math.max(...found.map((item) => item.high));
  if (settings.low !== null && !(kind === "log" && settings.low <= 0)) low = settings.low;
  if (settings.high !== null && !(kind === "log" && settings.high <= 0)) high = settings.high;
  if (high < low) high = low;
  return new Scale(kind, low, high, Math.min(...found.map((item) => item.threshold)));
}
