// How values become heights and colours. Values beyond the ends are drawn at the ends, and the labels say so. Which scale
// a landscape has, Python decides, as for the figures.

class Scale {
  // Heights may reach beyond the colours, from bottom to top: a path may lie lower than every grid point.
  constructor(kind, low, high, { threshold = 1, bottom = low, top = high, levels = null, texts = null } = {}) {
    const [empty, flat] = [Number.isNaN(low), !(high > low)];
    Object.assign(this, { kind, low, high, threshold, bottom, top, levels, texts, empty, flat });
  }

  // The scale of heights.
  get tall() {
    if (this.bottom === this.low && this.top === this.high) return this;
    return new Scale(this.kind, this.bottom, this.top, { threshold: this.threshold });
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

  // The height at which a value is drawn; one without a logarithm is drawn at the lower end, as in the figures.
  drawn(value) {
    return this.height(Number.isFinite(value) ? clamp(value, this.low, this.high) : NaN);
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
    if (this.levels) return this.levels;
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

  // The texts of ticks, empty where one would lie less than a share of the axis above the text before it.
  tickTexts(ticks, least) {
    const [low, high] = this.ends;
    let last = -Infinity;
    // So many digits that no two look the same.
    let digits = 3;
    while (digits < 15 && new Set(ticks.map((tick) => shortText(tick, digits))).size < new Set(ticks).size) digits += 1;
    return ticks.map((tick) => {
      const place = (this.height(tick) - low) / (high - low);
      if (place - last < least) return "";
      last = place;
      const level = this.levels ? this.levels.indexOf(tick) : -1;
      return level < 0 ? shortText(tick, digits) : this.texts[level].replaceAll("-", "\u2212");
    });
  }
}

function scaleLabel(text, scale) {
  return text + ({ log: " (log scale)", symlog: " (log scale around 0)" }[scale.kind] ?? "");
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

// The scale for some landscapes together, each with one of its metrics, then the ends that the user gave. The rule that
// joins scales is that of joint_scale in landscape/scales/landscape_scale.py.
function scaleFor(pairs, { scale, low, high }) {
  const suggested = (kind) => pairs.map(([landscape, metric]) => landscape.scales[metric]?.[kind]).filter(Boolean);
  const found = suggested(scale).length ? suggested(scale) : suggested("auto");
  if (!found.length) return new Scale("linear", NaN, NaN);
  const [least, most] = [(name) => Math.min(...found.map((item) => item[name])), (name) => Math.max(...found.map((item) => item[name]))];
  const ends = { low: least("low"), high: most("high"), bottom: least("bottom"), top: most("top") };
  const kinds = new Set(found.map((item) => item.kind));
  let kind = kinds.size === 1 ? found[0].kind : kinds.has("symlog") ? "symlog" : ends.low > 0 ? "log" : "linear";
  const share = found.every((item) => item.bounded) && found.some((item) => item.share);
  const decade = ends.low > 0 && ends.high > 10 * ends.low;
  if (found.length > 1 && scale === "auto" && kind === "linear" && decade && !share) kind = "log";
  const given = (value) => value !== null && !(kind === "log" && value <= 0);
  if (given(low)) ends.low = ends.bottom = low;
  if (given(high)) ends.high = ends.top = high;
  if (ends.high < ends.low) ends.high = ends.top = ends.low;
  const own = found.length === 1 && !given(low) && !given(high) ? { levels: found[0].levels, texts: found[0].texts } : {};
  const { bottom, top } = ends;
  return new Scale(kind, ends.low, ends.high, { threshold: least("threshold"), bottom, top, ...own });
}

// Red, green and blue of a colour that is written as "#rrggbb" or "rgb(r,g,b)".
function channels(text) {
  return text[0] === "#" ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) : text.match(/\d+/g).map(Number);
}

// The part of a colour scale between two heights, given the heights of the whole: the same height keeps its colour.
function partOf(colours, [low, high], [bottom, top]) {
  const stops = colours.map(([, text]) => channels(text));
  const at = (height) => {
    const place = clamp((height - bottom) / (top - bottom), 0, 1) * (colours.length - 1);
    const first = Math.min(Math.floor(place), colours.length - 2);
    return `rgb(${stops[first].map((value, index) => Math.round(value + (place - first) * (stops[first + 1][index] - value))).join(",")})`;
  };
  return Array.from({ length: 33 }, (_, index) => [index / 32, at(low + ((high - low) * index) / 32)]);
}
