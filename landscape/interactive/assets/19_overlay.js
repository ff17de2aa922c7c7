// The profiles of several planes, or several lines, on one axis.

class Overlay {
  constructor(comparison, isLine) {
    Object.assign(this, { comparison, isLine, page: comparison.page });
    const text = isLine ? "All lines on one axis" : "All profiles on one axis";
    this.heading = element("h2", { text });
    this.note = element("p.note");
    const { plot, spoken, frame } = plotFrame("profile", false);
    Object.assign(this, { plot, spoken });
    plot.tabIndex = -1;
    this.legend = element("ul.legend");
    this.chooser = new LineChooser((ends) => comparison.setLines(() => ends), (kind) => this.choose(kind));
    const tools = element("div.tools", {}, ...pictureButtons("these curves", (format) => this.savePicture(format)));
    this.box = element("section.overlay", { "aria-label": text },
      element("header", {}, element("div", {}, this.heading, this.note), tools), this.legend, frame, ...(isLine ? [] : [this.chooser.box]));
    new ResizeObserver(newestOnly(() => fit(this.plot))).observe(this.plot);
  }

  get cards() {
    return this.comparison.together(this.isLine);
  }

  arrange() {
    if (!this.cards.length) return this.box.remove();
    // Lines are the picture itself; profiles belong below the maps that they are drawn on.
    return this.isLine ? this.page.main.prepend(this.box) : this.page.main.append(this.box);
  }

  choose(kind) {
    const { comparison } = this;
    const own = ({ landscape, line }) => (landscape.walked.length > 1 ? usualLine([landscape], kind) : line);
    comparison.setLines(kind === "path" ? own : () => usualLine(comparison.planes, kind));
  }

  // Whether all planes have one line, so that a place of it has the same coordinates in all.
  get common() {
    if (this.isLine) return true;
    const [first, ...others] = this.cards.map((card) => card.line);
    return others.every((line) => line.every((value, index) => value === first[index]));
  }

  // Each card with the positions and values of its curve, and the points of the plane or line that they belong to.
  get curves() {
    const { cards, common } = this;
    const measured = cards.every(({ landscape }) => landscape.geometry);
    return cards.map((card) => {
      const values = card.landscape.metrics[card.metric];
      if (this.isLine) return { card, points: Array.from(card.landscape.x, (x, index) => ({ position: x, x, y: 0, value: values[index] })) };
      const points = alongLine(card.landscape, card.metric, card.line);
      const length = measured ? points.at(-1).position : Math.hypot(card.line[2] - card.line[0], card.line[3] - card.line[1]);
      const start = common ? shareOfOrigin(card.line, measured ? card.landscape.geometry : PLAIN) : 0;
      return { card, points: points.map((point, index) => ({ ...point, position: (index / (points.length - 1) - start) * length })) };
    });
  }

  get xTitle() {
    const { cards } = this;
    if (this.isLine) {
      const texts = new Set(cards.map(({ landscape }) => landscape.axis_labels[0]));
      return texts.size === 1 ? [...texts][0] : "coordinate on each line";
    }
    const from = this.common ? "the line from its point nearest the origin" : "each line from its start";
    return `distance along ${from}, ${unitOf(cards.map(({ landscape }) => landscape))}`;
  }

  render() {
    if (!this.cards.length) return;
    const [first] = this.cards;
    this.drawnCurves = this.curves;
    const scale = this.page.settings.shared ? first.scale : scaleFor(this.cards, this.page.settings);
    const text = first.quantity === first.metric ? first.landscape.text(first.metric) : first.quantity;
    // On a phone there is room for half of a long title.
    const xTitle = this.plot.clientWidth < 560 ? this.xTitle.replace(", ", ",\n") : this.xTitle;
    const layout = profileLayout(text, scale, xTitle, true);
    Plotly.react(this.plot, onAxis(this.drawnCurves.flatMap((curve) => this.traces(curve)), scale), layout, config(MAP_BUTTONS));
    if (!this.listening) listen(this.plot, (event) => this.hovered(event), () => this.left());
    this.listening = true;
    const along = this.common ? "Along the dashed line" : "Each along the dashed line of its own map";
    this.note.textContent = this.isLine ? "with one standard error, where it was measured" : `${along}, interpolated bilinearly between the points`;
    this.legend.replaceChildren(...this.drawnCurves.map(({ card }) => element("li", {}, curveKey(this.comparison.style(card)), card.caption)));
    if (!this.isLine) this.chooser.show(this.common ? first.line : null, this.cards.some(({ landscape }) => landscape.walked.length > 1));
    this.plot.ariaLabel = `${this.heading.textContent}: ${text}`;
    this.spoken.textContent = this.drawnCurves.map(({ card, points }) => curveText(card.caption, points)).join(" ");
  }

  traces({ card, points }) {
    const { colour: own, dash } = this.comparison.style(card);
    const mode = this.isLine && points.length < 150 ? "lines+markers" : "lines";
    const curve = curveOf(card.caption, points, { color: own, dash }, { mode, marker: { size: 5, color: own } });
    const error = this.isLine ? card.landscape.errorOf(card.metric) : null;
    const values = points.map(({ value }) => value);
    return [...(error ? band(curve.x, values, error, `rgba(${channels(own)},0.1804)`, ["band", "band"]) : []), curve];
  }

  hovered(event) {
    const [point] = event.points;
    const curve = this.drawnCurves.find(({ card }) => card.caption === point.data.name);
    if (!curve) return;
    const at = curve.points[point.pointNumber];
    const facts = coordinateFacts(curve.card.landscape, at.x, at.y);
    const same = this.isLine ? null : this.common;
    for (const { card, points } of this.drawnCurves) {
      const there = same ? points[point.pointNumber] : points.find(({ x }) => same === null && x === at.x);
      if (card === curve.card || there) facts.push([card.caption, shortText((card === curve.card ? at : there).value)]);
    }
    this.page.tooltip.show(facts, event.event);
    for (const { card } of this.comparison.linked ? this.drawnCurves : [curve]) card.showLinked({ x: at.x, y: at.y });
  }

  left() {
    this.page.tooltip.hide();
    for (const card of this.cards) card.showLinked(null);
  }

  savePicture(format) {
    const names = this.cards.map((card) => card.caption).join(", ");
    return savePlots([this.plot], names, this.note.textContent, this.isLine ? "lines" : "profiles", format);
  }
}

// Which share of a line lies before its point that is nearest to the coordinates' origin; the matrix takes coordinates to
// distances.
function shareOfOrigin([x0, y0, x1, y1], matrix) {
  const [u0, v0] = mapped(matrix, x0, y0);
  const [across, up] = mapped(matrix, x1 - x0, y1 - y0);
  const square = across * across + up * up;
  return square ? clamp(-(u0 * across + v0 * up) / square, 0, 1) : 0;
}

// A short piece of a curve, for a legend.
function curveKey({ colour: own, dash }) {
  const pattern = { solid: "", dash: "9 5", dot: "2.5 3.5", dashdot: "9 4 2.5 4", longdash: "14 5", longdashdot: "14 4 2.5 4" }[dash];
  return vectorElement("svg", { class: "curve-key", width: 34, height: 10, "aria-hidden": "true" },
    vectorElement("line", { x1: 0, x2: 34, y1: 5, y2: 5, stroke: own, "stroke-width": 3, "stroke-dasharray": pattern }));
}
