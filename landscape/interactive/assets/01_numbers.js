// Numbers as they come from the file: exact 64-bit values, NaN and infinities among them.

const STATUS = ["pending", "measured", "interpolated", "failed"];
const [PENDING, MEASURED, INTERPOLATED, FAILED] = [0, 1, 2, 3];

function bytes(text) {
  // A plain loop: megabytes of letters pass here before the page can open.
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let index = 0; index < letters.length; index += 1) found[index] = letters.charCodeAt(index);
  return found;
}

function integers(text) {
  return new Int32Array(bytes(text).buffer);
}

function doubles(text) {
  return new Float64Array(bytes(text).buffer);
}

// Numbers as Plotly takes them: nothing where one is not finite.
function finite(values) {
  return Array.from(values, (value) => (Number.isFinite(value) ? value : null));
}

// An object that has the given names only: every other one has "constructor", "__proto__" and the like from birth.
function mapping(entries) {
  const found = Object.create(null);
  for (const [name, value] of entries) found[name] = value;
  return found;
}

// JSON whose objects have the names in the text only; a metric may be called "constructor".
function parsed(text) {
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  return JSON.parse(text, (_, value) => (isObject(value) ? mapping(Object.entries(value)) : value));
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

// The shortest text that reads back as the same number, for files.
function exactText(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  return Object.is(value, -0) ? "-0" : String(value);
}

// A number for reading: the digits that matter.
function shortText(value, digits = 5) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "infinite" : "minus infinite";
  return String(Number(value.toPrecision(digits))).replace("-", "\u2212");
}

function finiteRange(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (Number.isFinite(value)) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : [NaN, NaN];
}

// Indices of two neighbours with a number between them, or beyond which it lies; the axis ascends.
function around(axis, value) {
  let low = 0;
  let high = axis.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (axis[middle] <= value) low = middle;
    else high = middle;
  }
  return [low, high];
}

// Index of the coordinate that is nearest to a number.
function nearest(axis, value) {
  const [low, high] = around(axis, value);
  return Math.abs(axis[low] - value) <= Math.abs(axis[high] - value) ? low : high;
}

// Index of the cell that holds a number and where in it the number lies (0 to 1); null beyond the axis.
function cell(axis, value) {
  const last = axis.length - 1;
  if (!(value >= axis[0] && value <= axis[last])) return null;
  if (last === 0) return [0, 0];
  const [low, high] = around(axis, value);
  return [low, (value - axis[low]) / (axis[high] - axis[low])];
}

// Bilinear interpolation; NaN beside a point without a finite value, so that gaps stay gaps.
function bilinear(x, y, values, atX, atY) {
  const across = cell(x, atX);
  const up = cell(y, atY);
  if (!across || !up) return NaN;
  let total = 0;
  for (const [row, vertical] of [[up[0], 1 - up[1]], [up[0] + 1, up[1]]]) {
    for (const [column, horizontal] of [[across[0], 1 - across[1]], [across[0] + 1, across[1]]]) {
      const weight = vertical * horizontal;
      if (weight === 0) continue;
      const value = values[row * x.length + column];
      if (!Number.isFinite(value)) return NaN;
      total += weight * value;
    }
  }
  return total;
}

function csvField(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
