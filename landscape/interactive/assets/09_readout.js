// What the page says about a point: beside the pointer, and in a line that screen readers follow; and in words about each plot,
// for those who do not see it.

const coordinateFacts = (landscape, x, y) => [["x", shortText(x)], ...(landscape.isLine ? [] : [["y", shortText(y)]])];

// With the distances from the origin along the axes of a picture to scale, where these are not the plane's coordinates.
function placeFacts(landscape, x, y) {
  const [u, v] = landscape.isLine ? [x, y] : landscape.frames.equal.place(x, y);
  const distances = u === x && v === y ? [] : [["distances from the origin", `${shortText(u)} along, ${shortText(v)} across`]];
  return [...coordinateFacts(landscape, x, y), ...distances];
}

// Of a place between the points of the grid.
const betweenFacts = ({ landscape, metric }, { x, y, value }) =>
  [...coordinateFacts(landscape, x, y), [`${landscape.text(metric)} (interpolated)`, shortText(value)]];

function pointFacts({ landscape, metric }, { row, column, x: atX, y: atY }) {
  const index = row * landscape.columns + column;
  const facts = [
    ...placeFacts(landscape, atX, atY),
    ...metricFacts(landscape, landscape.metrics, index),
    ["status", STATUS[landscape.status[index]]],
  ];
  const value = landscape.coarse(index, metric);
  if (Number.isNaN(value)) return facts;
  const { x: [x], y: [y] } = landscape.points([landscape.cover[index]]);
  const place = coordinateFacts(landscape, x, y).map(([, text]) => text).join(", ");
  return [...facts, ["not measured", `the ${landscape.isLine ? "step" : "colour"} is that of (${place}): ${shortText(value, 6)}`]];
}

// Each metric with its standard error behind it.
function metricFacts(landscape, metrics, index) {
  const behind = new Set(Object.keys(metrics).map((name) => landscape.names[name]?.standard_error));
  return Object.keys(metrics).filter((name) => !behind.has(name)).map((name) => {
    const error = landscape.errorOf(name, metrics);
    const text = shortText(metrics[name][index], 6) + (error ? ` \u00b1 ${shortText(error[index], 3)}` : "");
    return [name === "loss_error" ? "estimated error of the loss" : landscape.text(name), text];
  });
}

function checkpointFacts(landscape, step) {
  const path = landscape.checkpoints;
  const facts = [[path.roles[step], path.labels[step]], ...placeFacts(landscape, path.x[step], path.y[step])];
  for (const [name, text] of metricFacts(landscape, path.metrics, step)) facts.push([`own ${name}`, text]);
  const where = landscape.isLine ? "line" : "plane";
  for (const name of Object.keys(path.projected)) {
    if (landscape.quantity(name) !== "loss") continue;
    facts.push([`${landscape.text(name)} at its foot on the ${where}`, shortText(path.projected[name][step], 6)]);
    const own = path.own[name]?.find(({ row }) => row === step);
    if (own?.reason) facts.push([`why the own ${landscape.text(name)} differs`, own.reason]);
  }
  return [...facts, [`distance from the ${where}`, shortText(path.residual[step], 4)], ["status", STATUS[path.status[step]]]];
}

// One of several runs that the player walks, in a few words.
function runFacts(landscape, run, row) {
  const path = landscape.checkpoints;
  const name = path.runs[run];
  const label = path.labels[row].startsWith(`${name}, `) ? path.labels[row].slice(name.length + 2) : path.labels[row];
  return [name, `own loss ${shortText(path.metrics.loss[row], 6)}, at its foot ${shortText(path.projected.loss[row], 6)} (${label})`];
}

function originFacts(landscape) {
  const { label, x, y, metrics, status } = landscape.origin;
  return [["origin", label], ...coordinateFacts(landscape, x, y), ...metricFacts(landscape, metrics, 0), ["status", STATUS[status]]];
}

function fillFacts(target, facts) {
  target.replaceChildren(
    ...facts.map(([name, text]) => element("span.fact", {}, element("span.name", { text: name }), element("span.value", { text }))),
  );
}

class Tooltip {
  constructor() {
    this.box = element("div.tooltip", { "aria-hidden": "true", hidden: true });
    document.body.append(this.box);
  }

  show(facts, event) {
    fillFacts(this.box, facts);
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height, style } = this.box;
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    style.left = `${Math.max(4, left)}px`;
    style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 4))}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}

const scaleWords = (scale) =>
  ({ log: "on a logarithmic scale", symlog: "on a scale that is logarithmic around zero" }[scale.kind] ?? "on a linear scale");

const placeWords = (landscape, x, y) => landscape.isLine ? shortText(x, 3) : `(${shortText(x, 3)}, ${shortText(y, 3)})`;

const noValueWords = (landscape, metric) =>
  `There is no finite value of ${landscape.text(metric)}${landscape.count(PENDING) ? " yet" : ""}.`;

function summaryOf(landscape, metric, scale) {
  const { networks, paths, checkpoints: path, columns, rows } = landscape;
  const values = landscape.metrics[metric];
  const [low, high] = finiteRange(values);
  if (Number.isNaN(low)) return noValueWords(landscape, metric);
  const at = values.indexOf(low);
  const { x: [x], y: [y] } = landscape.points([at]);
  const estimated = landscape.status[at] === INTERPOLATED ? ", where it is interpolated" : "";
  const size = landscape.isLine ? `${columns} points of a line` : `${columns} by ${rows} points of a plane`;
  const missing = [INTERPOLATED, FAILED, PENDING].filter((status) => landscape.count(status));
  return [
    `${landscape.text(metric)} at ${size}, ${scaleWords(scale)}: from ${shortText(low, 4)} to ${shortText(high, 4)}.`,
    ...(low < high ? [`Its minimum on the grid is at ${placeWords(landscape, x, y)}${estimated}.`] : []),
    ...(missing.length ? [`${missing.map((status) => `${landscape.count(status)} points are ${STATUS[status]}`).join(", ")}.`] : []),
    ...paths.map((steps, run) => pathWords(landscape, metric, steps, run)),
    ...networks.map((row) => `The network ${path.labels[row]} is at ${placeWords(landscape, path.x[row], path.y[row])}.`),
  ].join(" ");
}

function pathWords(landscape, metric, rows, run) {
  const path = landscape.checkpoints;
  const name = landscape.paths.length > 1 ? `The path of ${path.runs[run]}` : "The path";
  const end = (row) => {
    const { x, y, value } = footOf(path, metric, row);
    return `${path.labels[row]} at ${placeWords(landscape, x, y)}${Number.isFinite(value) ? `, ${landscape.text(metric)} ${shortText(value, 4)}` : ""}`;
  };
  if (rows.length === 1) return `${name} has one checkpoint: ${end(rows[0])}.`;
  return `${name} has ${rows.length} checkpoints, from ${end(rows[0])}, to ${end(rows.at(-1))}.`;
}

function curveText(name, points) {
  const [low, high] = finiteRange(points.map(({ value }) => value));
  if (Number.isNaN(low)) return `${name}: no finite value.`;
  const lowest = points.find(({ value }) => value === low);
  return `${name}: from ${shortText(low, 4)} to ${shortText(high, 4)}, minimum at ${shortText(lowest.position, 3)}.`;
}

// What a reader must know to read a picture: what is clipped, left out, not measured, or not to scale.

function fillWarning({ landscape, metric, scale, frame, map, warning: box }) {
  const values = landscape.metrics[metric];
  const texts = [];
  const sentence = (text) => text && texts.push(`${text[0].toUpperCase()}${text.slice(1)}.`);
  const [low, high] = finiteRange(values);
  if (Number.isNaN(low)) texts.push(noValueWords(landscape, metric));
  else if (low === high) texts.push(`The ${landscape.isLine ? "line" : "surface"} is flat: ${landscape.text(metric)} is ${shortText(low)} at every finite point.`);
  const count = (test) => values.filter((value) => Number.isFinite(value) && test(value)).length;
  const nonpositive = scale.kind === "log" ? count((value) => value <= 0) : 0;
  // Checkpoints, networks and the origin may lie lower than the grid.
  const marks = scale.kind === "log" ? landscape.scales[metric]?.log?.marks_without_place ?? "" : "";
  if (nonpositive || marks) {
    const which = low < 0 || marks === "0 and less" ? "0 or less" : "0";
    const who = { 0: "Some marked points are", 1: "1 value is" }[nonpositive] ?? `${nonpositive} values are`;
    const end = shortText((landscape.isLine || !nonpositive ? scale.tall : scale).low);
    texts.push(`${who} ${which}, which has no place on a log scale: drawn at ${end}.`);
  }
  if (!landscape.isLine) {
    for (const note of [landscape.times?.note[frame.aspect], ...frame.notes]) sentence(note);
    const above = ["above", shortText(scale.high), count((value) => value > scale.high)];
    const below = ["below", shortText(scale.low), count((value) => value < scale.low) - nonpositive];
    for (const [side, end, number] of [above, below]) if (number > 0) texts.push(`Clipped: ${number} values ${side} ${end} are drawn at ${end}.`);
  }
  const kinds = {};
  const contours = map.data?.[0].type === "contour";
  for (let index = 0; index < values.length; index += 1) {
    const gap = landscape.missing(index, metric) ?? (landscape.status[index] === INTERPOLATED ? "interpolated" : null);
    if (gap) kinds[gap] = (kinds[gap] ?? 0) + 1;
  }
  const estimate = kinds.interpolated && landscape.estimates[metric];
  // Contours hide the hatching of interpolated cells; dots mark the measured ones instead, where there is room.
  if (contours && kinds.interpolated) {
    texts.push(landscape.dotted ? `Dots are the ${landscape.count(MEASURED)} measured points, the others are interpolated.`
      : `${kinds.interpolated} points are interpolated; the map of cells shows which.`);
    delete kinds.interpolated;
  }
  sentence(estimate);
  const dots = landscape.marked(metric).length;
  if (dots && !(contours && landscape.dotted)) texts.push(`Dots are the ${dots} measured points.`);
  box.replaceChildren(...texts.map((text) => element("span", { text })),
    ...["coarse", ...GAPS].filter((gap) => kinds[gap]).map((gap) => {
      const text = gap === "coarse" ? "coarse: value of the nearest measured point" : gap;
      return element("span.key", {}, element("i", { class: gap.replace(" ", "-") }), `${text} (${kinds[gap]})`);
    }));
  box.hidden = !box.childNodes.length;
}
