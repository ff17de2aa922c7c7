// What each plot shows, in words, for those who do not see it.

let spokenTexts = 0;

// A text that screen readers read with a plot.
function spokenText(plot, kind) {
  spokenTexts += 1;
  const found = element("p", { class: "spoken", id: `${kind}-${spokenTexts}` });
  plot.setAttribute("aria-describedby", found.id);
  return found;
}

function scaleWords(scale) {
  return { log: "on a logarithmic scale", symlog: "on a scale that is logarithmic around zero" }[scale.kind] ?? "on a linear scale";
}

function placeWords(landscape, x, y) {
  return landscape.isLine ? shortText(x, 3) : `(${shortText(x, 3)}, ${shortText(y, 3)})`;
}

function noValueWords(landscape, metric) {
  return `There is no finite value of ${landscape.text(metric)}${landscape.count(PENDING) ? " yet" : ""}.`;
}

// Range, minimum, what is missing, and the paths.
function summaryOf(landscape, metric, scale) {
  const values = landscape.values(metric);
  const [low, high] = finiteRange(values);
  const text = landscape.text(metric);
  if (Number.isNaN(low)) return noValueWords(landscape, metric);
  const at = values.indexOf(low);
  const { x: [x], y: [y] } = landscape.points([at]);
  const estimated = landscape.status[at] === INTERPOLATED ? ", where it is interpolated" : "";
  const size = landscape.isLine ? `${landscape.columns} points of a line` : `${landscape.columns} by ${landscape.rows} points of a plane`;
  const sentences = [
    `${text} at ${size}, ${scaleWords(scale)}: from ${shortText(low, 4)} to ${shortText(high, 4)}.`,
    ...(low < high ? [`Its minimum on the grid is at ${placeWords(landscape, x, y)}${estimated}.`] : []),
  ];
  const { networks: rows, checkpoints: path } = landscape;
  const networks = rows.map((each) => `The network ${path.labels[each]} is at ${placeWords(landscape, path.x[each], path.y[each])}.`);
  const missing = [INTERPOLATED, FAILED, PENDING].map((status) => [landscape.count(status), STATUS[status]]).filter(([count]) => count);
  if (missing.length) sentences.push(`${missing.map(([count, name]) => `${count} points are ${name}`).join(", ")}.`);
  return [...sentences, ...landscape.paths.map((rows, run) => pathWords(landscape, metric, rows, run)), ...networks].join(" ");
}

function pathWords(landscape, metric, rows, run) {
  const path = landscape.checkpoints;
  const name = landscape.paths.length > 1 ? `The path of ${path.runs[run]}` : "The path";
  const end = (row) => {
    const value = path.projected[metric]?.[row];
    const foot = Number.isFinite(value) ? `, ${landscape.text(metric)} ${shortText(value, 4)}` : "";
    return `${path.labels[row]} at ${placeWords(landscape, path.x[row], path.y[row])}${foot}`;
  };
  if (rows.length === 1) return `${name} has one checkpoint: ${end(rows[0])}.`;
  return `${name} has ${rows.length} checkpoints, from ${end(rows[0])}, to ${end(rows.at(-1))}.`;
}

// Range and minimum of one curve.
function curveText(name, points) {
  const [low, high] = finiteRange(points.map(({ value }) => value));
  if (Number.isNaN(low)) return `${name}: no finite value.`;
  const lowest = points.find(({ value }) => value === low);
  return `${name}: from ${shortText(low, 4)} to ${shortText(high, 4)}, minimum at ${shortText(lowest.position, 3)}.`;
}
