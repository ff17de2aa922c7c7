// What the page says about a point: beside the pointer, and in a line that screen readers follow.

function coordinateFacts(landscape, x, y) {
  return [["x", shortText(x)], ...(landscape.isLine ? [] : [["y", shortText(y)]])];
}

// With the distances from the origin along the axes of a picture to scale, where these are not the plane's coordinates.
function placeFacts(landscape, x, y) {
  const [u, v] = landscape.isLine ? [x, y] : landscape.frames.equal.place(x, y);
  const distances = u === x && v === y ? [] : [["distances from the origin", `${shortText(u)} along, ${shortText(v)} across`]];
  return [...coordinateFacts(landscape, x, y), ...distances];
}

function pointFacts(landscape, metric, row, column) {
  const index = row * landscape.columns + column;
  const facts = [
    ...placeFacts(landscape, landscape.x[column], landscape.y[row]),
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
  const facts = [];
  const behind = new Set(Object.keys(metrics).map((name) => landscape.names[name]?.standard_error));
  for (const [name, values] of Object.entries(metrics)) {
    if (behind.has(name)) continue;
    const error = landscape.errorOf(name, metrics);
    const text = shortText(values[index], 6) + (error ? ` \u00b1 ${shortText(error[index], 3)}` : "");
    facts.push([name === "loss_error" ? "estimated error of the loss" : landscape.text(name), text]);
  }
  return facts;
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
    ...facts.map(([name, text]) => element("span", { class: "fact" }, element("span", { class: "name", text: name }), element("span", { class: "value", text }))),
  );
}

class Tooltip {
  constructor() {
    this.box = element("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
    document.body.append(this.box);
  }

  show(facts, event) {
    fillFacts(this.box, facts);
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    this.box.style.left = `${Math.max(4, left)}px`;
    this.box.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 4))}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}
