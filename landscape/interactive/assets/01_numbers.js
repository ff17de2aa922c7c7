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

// Numbers as Plotly takes them: nothing where one is not finite.
const finite = (values) => Array.from(values, (value) => (Number.isFinite(value) ? value : null));

// An object that has the given names only: every other one has "constructor", "__proto__" and the like from birth.
const mapping = (entries) => Object.setPrototypeOf(Object.fromEntries(entries), null);

const ARRAYS = new Map([["f8", Float64Array], ["i4", Int32Array], ["u1", Uint8Array]]);

// JSON with arrays of numbers, and whose objects have the names in the text only; a metric may be called "constructor".
const parsed = (text) => JSON.parse(text, (_, value) => {
  if (!(value instanceof Object) || Array.isArray(value)) return value;
  const Kind = ARRAYS.get(value.dtype);
  return Kind ? new Kind(bytes(value.bdata).buffer) : Object.setPrototypeOf(value, null);
});

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// The shortest text that reads back as the same number, for files.
const exactText = (value) =>
  Object.is(value, -0) ? "-0" : String(value).replace("NaN", "nan").replace("Infinity", "inf");

// A number for reading: the digits that matter.
function shortText(value, digits = 5) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "infinite" : "minus infinite";
  return String(Number(value.toPrecision(digits))).replace("-", "\u2212");
}

function finiteRange(values) {
  let [low, high] = [NaN, NaN];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (!(value >= low)) low = value;
    if (!(value <= high)) high = value;
  }
  return [low, high];
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
  const [across, up] = [cell(x, atX), cell(y, atY)];
  return across && up ? inCell(values, x.length, across, up) : NaN;
}

// The same given the cell, by its lower column and row, each with where in the cell the place lies.
function inCell(values, columns, [column, right], [row, above]) {
  const value = (across, up, weight) => (weight ? weight * values[(row + up) * columns + column + across] : 0);
  const total = value(0, 0, (1 - right) * (1 - above)) + value(1, 0, right * (1 - above)) + value(0, 1, (1 - right) * above) + value(1, 1, right * above);
  return Number.isFinite(total) ? total : NaN;
}

const csvField = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
