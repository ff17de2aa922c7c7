// How values become heights and colours. Values beyond the ends are drawn at the ends, and the labels say so. Which scale
// a landscape has, Python decides, as for the figures.

class Scale {
  // Heights may reach beyond the colours, from bottom to top: a path may lie lower than every grid point.
  constructor({ kind, low, high, threshold, bottom = low, top = high, levels = null, texts = null }) {
    const [empty, flat] = [Number.isNaN(low), !(high > low)];
    Object.assign(this, { kind, low, high, threshold, bottom, top, levels, texts, empty, flat });
  }

  get tall() {
    const { bottom: low, top: high } = this;
    return low === this.low && high === this.high ? this : new Scale({ ...this, low, high, levels: null, texts: null });
  }

  // The height of a value, unclipped; NaN where there is none.
  height(value) {
    if (!Number.isFinite(value)) return NaN;
    if (this.kind === "log") return value > 0 ? Math.log10(value) : NaN;
    if (this.kind !== "symlog") return value;
    const size = Math.abs(value) / this.threshold;
    return Math.sign(value) * (size < 1 ? size : 1 + Math.log10(size));
  }

  // The height at which a value is drawn; one without a logarithm is drawn at the lower end, as in the figures.
  drawn(value) {
    return this.height(Number.isFinite(value) ? clamp(value, this.low, this.high) : NaN);
  }

  // Lowest and highest drawn height, apart from each other even where all values are one.
  get ends() {
    if (this.empty) return [0, 1];
    const low = this.height(this.low);
    const half = Math.abs(low) / 10 || 1;
    return this.flat ? [low - half, low + half] : [low, this.height(this.high)];
  }

  contours(count) {
    const [low, high] = this.ends;
    const size = (high - low) / (count + 1);
    return { start: low + size, end: high - size / 2, size };
  }

  ticks(count = 6) {
    const { kind, low, high, threshold } = this;
    if (this.empty) return [];
    if (this.levels) return this.levels;
    if (this.flat) return [low];
    let found = kind === "log" ? decades(low, high, count) : [];
    if (kind === "symlog") {
      const beyond = (end) => (end > threshold ? decades(threshold, end, count / 2) : []);
      found = [...beyond(-low).map((value) => -value).reverse(), ...(low <= 0 && high >= 0 ? [0] : []), ...beyond(high)];
    }
    return found.length < 3 ? rounded(low, high, count) : found;
  }

  // An axis with ticks of its own, at their heights.
  axis(count, least, place = (tick) => this.height(tick)) {
    const ticks = this.ticks(count);
    return { tickvals: ticks.map(place), ticktext: this.tickTexts(ticks, least) };
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
      return this.texts?.[this.levels.indexOf(tick)]?.replaceAll("-", "\u2212") ?? shortText(tick, digits);
    });
  }
}

const valueTitle = (text, { kind }, more = {}) =>
  titled(plotText(text + ({ log: " (log scale)", symlog: " (log scale around 0)" }[kind] ?? "")), more);

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
  const [first, last] = [low, high].map((end) => Math.floor(Math.log10(end)));
  const powers = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  const strides = [1, 2, 5, 10, 20, 50, 100].map((stride) => [[1], stride]);
  return [[[1, 1.5, 2, 3, 5, 7], 1], [[1, 2, 5], 1], [[1, 3], 1], ...strides]
    .map(([mantissas, stride]) => powers.filter((power) => power % stride === 0)
      .flatMap((power) => mantissas.map((mantissa) => Number(`${mantissa}e${power}`)))
      .filter((value) => value >= low && value <= high))
    .find((found) => found.length <= count) ?? [];
}

// The scale for some cards together, then the ends that the user gave. The rule that joins scales is that of joint_scale in
// landscape/scales/landscape_scale.py.
function scaleFor(cards, { scale, low, high }) {
  const suggested = (kind) => cards.map(({ landscape, metric }) => landscape.scales[metric]?.[kind]).filter(Boolean);
  const found = suggested(scale).length ? suggested(scale) : suggested("auto");
  if (!found.length) return new Scale({ kind: "linear", low: NaN, high: NaN });
  const most = (name) => Math.max(...found.map((item) => item[name]));
  const least = (name) => Math.min(...found.map((item) => item[name]));
  const ends = { low: least("low"), high: most("high"), bottom: least("bottom"), top: most("top") };
  const kinds = new Set(found.map((item) => item.kind));
  let kind = kinds.size === 1 ? found[0].kind : kinds.has("symlog") ? "symlog" : ends.low > 0 ? "log" : "linear";
  const share = found.every((item) => item.bounded) && found.some((item) => item.share);
  const decade = ends.low > 0 && ends.high > 10 * ends.low;
  if (found.length > 1 && scale === "auto" && kind === "linear" && decade && !share) kind = "log";
  if (kind === "log" && ends.bottom <= 0) {  // of a path over a linear scale
    ends.bottom = Math.min(ends.low, ...suggested("log").map(({ lowest_mark }) => lowest_mark ?? Infinity));
  }
  const given = (value) => value !== null && !(kind === "log" && value <= 0);
  if (found.length === 1 && !given(low) && !given(high)) return new Scale(found[0]);
  if (given(low)) ends.low = ends.bottom = low;
  if (given(high)) ends.high = ends.top = high;
  if (ends.high < ends.low) ends.high = ends.top = ends.low;
  return new Scale({ kind, threshold: least("threshold"), ...ends });
}

// Red, green and blue of a colour that is written as "#rrggbb" or "rgb(r,g,b)".
const channels = (text) =>
  text[0] === "#" ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) : text.match(/\d+/g).map(Number);
