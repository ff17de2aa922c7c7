// One landscape on the page: surface and map side by side, the path's player, the profile, the table.

class Card {
  constructor(landscape, page, beside) {
    this.landscape = landscape;
    this.page = page;
    this.beside = beside; // shows the page's second metric
    this.selected = null;
    this.line = null;
    this.section = element("section", { class: "card" });
    this.heading = element("h2");
    this.note = element("p", { class: "note" });
    this.surface = element("div", { class: "plot surface" });
    this.map = element("div", { class: "plot map", tabindex: 0, role: "application", "aria-label": "Map of the landscape; the arrow keys walk over its points" });
    this.profile = element("div", { class: "plot profile" });
    this.readout = element("output", { class: "readout facts", "aria-live": "polite" });
    this.warning = element("p", { class: "warning", role: "note", hidden: true });
    this.table = element("tbody");
    this.inputs = ["x of the start", "y of the start", "x of the end", "y of the end"].map((text, index) =>
      element("input", { type: "number", step: "any", "aria-label": text, on: { change: () => this.lineTyped(index) } }));
    this.player = new Player(landscape, (step) => this.stepped(step));
    this.build();
    this.moveMark = newestOnly((mark, pointedAt) => this.drawMark(mark, pointedAt));
    this.moveStep = newestOnly(() => this.drawStep());
    this.moveCamera = newestOnly(() => this.drawDepth());
    this.map.addEventListener("keydown", (event) => this.walk(event));
  }

  build() {
    const { landscape } = this;
    const tools = element("div", { class: "tools" },
      button("CSV", "Download the grid as CSV", () => this.downloadCsv()),
      button("PNG", "Download this view as PNG", () => this.downloadPicture()));
    const head = element("header", {}, element("div", {}, this.heading, this.note), tools);
    const table = element("details", { class: "about", open: true }, element("summary", { text: "About this landscape" }), element("table", {}, this.table));
    if (landscape.isLine) {
      this.section.append(head, element("div", { class: "frame" }, this.profile), this.warning, this.readout, this.player.box, table);
      return;
    }
    const mapFrame = element("div", { class: "frame" }, this.map);
    this.handles = new Handles(this.map, mapFrame, (ends) => this.setLine(ends));
    const surfaceFrame = element("div", { class: "frame" }, this.surface);
    this.flat = !this.page.webgl;
    if (this.flat) surfaceFrame.append(element("p", { class: "absent", text: "This browser has no WebGL, so the surface cannot be drawn. The map shows the same values." }));
    const presets = [["across", "Across"], ["up", "Upwards"], ["path", "Start to end"]].map(([kind, text]) =>
      button(text, `Draw the line: ${text.toLowerCase()}`, () => this.setLine(usualLine(this.landscape, kind)), { hidden: kind === "path" && landscape.walked.length < 2 }));
    const [x0, y0, x1, y1] = this.inputs;
    this.section.append(
      head,
      element("div", { class: "pair" }, surfaceFrame, mapFrame),
      this.warning, this.readout, this.player.box,
      element("div", { class: "pair lower" },
        element("figure", {},
          element("figcaption", { text: "Profile along the dashed line, interpolated bilinearly between the points" }),
          element("div", { class: "frame" }, this.profile),
          element("div", { class: "line-controls" }, ...presets,
            element("span", { class: "ends" }, "coordinates from (", x0, ",", y0, ") to (", x1, ",", y1, ")"))),
        table),
    );
  }

  setLandscape(landscape) {
    this.landscape = landscape;
    this.player.setLandscape(landscape);
    this.render();
    if (this.selected) this.select(this.selected);
  }

  get settings() {
    return this.page.settings;
  }

  get frame() {
    return this.landscape.frames[this.settings.aspect];
  }

  get metric() {
    const chosen = this.landscape.only ?? (this.beside ? this.settings.beside : this.settings.metric);
    return chosen in this.landscape.metrics ? chosen : "loss";
  }

  // What the reader set on this card alone; null is the usual.
  get kept() {
    const { line, player, selected, usualCamera } = this;
    const camera = usualCamera && this.surface._fullLayout?.scene ? cameraOf(this.surface) : null;
    const moved = camera && camera.some((value, index) => Math.abs(value - usualCamera[index]) > 1e-3);
    const usualEnds = this.landscape.isLine ? null : usualLine(this.landscape, "across");
    return {
      camera: moved ? camera : null,
      line: line && line.some((value, index) => value !== usualEnds[index]) ? line : null,
      step: this.landscape.walked.length && player.step !== player.last ? player.step : null,
      point: selected ? [selected.x, selected.y] : null,
    };
  }

  // Before the first drawing.
  restore({ camera, line, step, point }) {
    const { landscape } = this;
    const view = camera && { eye: named(camera.slice(0, 3)), center: named(camera.slice(3, 6)), up: named(camera.slice(6)) };
    if (view) this.camera = { view, chosen: this.settings.camera };
    if (line && !landscape.isLine) this.line = [0, 1, 2, 3].map((index) => inside(line[index], index % 2 ? landscape.y : landscape.x));
    if (step !== null && landscape.walked.length) this.player.go(Math.min(step, this.player.last));
    if (point) this.selected = { x: point[0], y: point[1] };
  }

  render() {
    const { landscape, metric, settings } = this;
    this.scale = this.page.scaleOf(this);
    // With only one landscape, the page's own heading says it already.
    const single = this.page.landscapes.length === 1;
    const parts = single && !landscape.isDifference ? [] : [landscape.title];
    if (this.page.besideShown && !landscape.isDifference) parts.push(landscape.text(metric));
    this.heading.textContent = parts.join(": ");
    this.heading.hidden = !parts.length;
    this.note.textContent = single || landscape.isDifference ? landscape.note : `${landscape.name}; ${landscape.note}`;
    this.section.setAttribute("aria-label", this.heading.textContent || landscape.title);
    this.table.replaceChildren(...landscape.facts.map(([name, text]) => element("tr", {}, element("th", { scope: "row", text: name }), element("td", { text }))));
    if (landscape.isLine) {
      const compared = { shared: this.page.comparing && !landscape.isDifference };
      this.draw(this.profile, lineTraces(landscape, metric), profileLayout(landscape.text(metric), this.scale, landscape.axis_labels[0], compared));
      this.showWarning();
      return;
    }
    this.line ??= usualLine(landscape, "across");
    if (this.selected) this.selected = this.gridPoint(this.selected.x, this.selected.y);
    const colours = colourScale(landscape.isDifference ? "difference" : settings.colours);
    const traces = mapTraces(landscape, metric, this.scale, settings, colours, this.frame);
    this.draw(this.map, traces, { ...mapLayout(landscape, this.map.clientWidth, traces[0].type === "heatmap", this.frame), shapes: this.shapes() });
    if (!this.flat) {
      const points = { current: this.standing, mark: this.selected };
      const marked = surfaceTraces(landscape, metric, this.scale, colours, this.frame, points);
      this.depth = new Depth(landscape, metric, this.scale, marked);
      const layout = this.depth.framed(surfaceLayout(landscape, metric, this.scale, this.frame), this.frame.cameras[settings.camera]);
      // Plotly writes into the camera that it is given, and keeps one that the reader turned until another is chosen.
      layout.scene.uirevision = settings.camera;
      this.usualCamera = listedCamera(layout.scene.camera);
      if (this.camera?.chosen === settings.camera) layout.scene.camera = { ...this.camera.view };
      const coarse = plateaus(landscape, metric, this.scale, colours, this.frame);
      this.draw(this.surface, [...withHidden(marked), ...coarse], layout);
      this.moveCamera();
    }
    this.drawProfile();
    this.showWarning();
  }

  draw(plot, traces, layout) {
    const first = !plot.data;
    Plotly.react(plot, traces, layout, config(plot === this.surface ? SURFACE_BUTTONS : MAP_BUTTONS));
    if (!first) return;
    plot.on("plotly_hover", (event) => this.hovered(plot, event));
    plot.on("plotly_unhover", () => this.left());
    // A plot that is redrawn under the pointer sends no event when the pointer leaves it.
    plot.addEventListener("mouseleave", () => this.left());
    plot.on("plotly_click", (event) => this.clicked(event));
    if (plot === this.surface) {
      plot.on("plotly_relayout", () => {
        this.moveCamera();
        this.page.changed();
      });
    }
    if (plot === this.map) plot.on("plotly_afterplot", () => this.handles.place());
  }

  showWarning() {
    const { landscape, metric, scale } = this;
    const values = landscape.values(metric);
    const texts = [];
    const [low, high] = finiteRange(values);
    if (Number.isNaN(low)) texts.push(`There is no finite value of ${landscape.text(metric)} yet.`);
    else if (low === high) texts.push(`The surface is flat: ${landscape.text(metric)} is ${shortText(low)} at every finite point.`);
    if (!landscape.isLine) {
      texts.push(...this.frame.notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`));
      const count = (test) => values.reduce((total, value) => total + (Number.isFinite(value) && test(value) ? 1 : 0), 0);
      const above = count((value) => value > scale.high);
      const nonpositive = scale.kind === "log" ? count((value) => value <= 0) : 0;
      const below = count((value) => value < scale.low) - nonpositive;
      if (above) texts.push(`Clipped: ${above} values above ${shortText(scale.high)} are drawn at ${shortText(scale.high)}.`);
      if (below > 0) texts.push(`Clipped: ${below} values below ${shortText(scale.low)} are drawn at ${shortText(scale.low)}.`);
      if (nonpositive) texts.push(`${nonpositive} values are zero or negative and have no logarithm; they are left out.`);
    }
    const kinds = {};
    const contours = this.map.data?.[0].type === "contour";
    for (let index = 0; index < values.length; index += 1) {
      const gap = landscape.missing(index, metric) ?? (landscape.status[index] === INTERPOLATED ? "interpolated" : null);
      if (gap) kinds[gap] = (kinds[gap] ?? 0) + 1;
    }
    const estimate = kinds.interpolated && landscape.estimates[metric];
    // Contours hide the hatching of interpolated cells; dots mark the measured ones instead, where there is room.
    if (contours && kinds.interpolated) {
      const text = landscape.dotted ? `Dots are the ${landscape.count(MEASURED)} measured points, the others are interpolated.` : `${kinds.interpolated} points are interpolated; the map of cells shows which.`;
      texts.push(text);
      delete kinds.interpolated;
    }
    if (estimate) texts.push(`${estimate[0].toUpperCase()}${estimate.slice(1)}.`);
    if (landscape.marked(metric).length && !(contours && landscape.dotted)) texts.push(`Dots are the ${landscape.marked(metric).length} measured points.`);
    this.warning.replaceChildren(...texts.map((text) => element("span", { text })),
      ...["coarse", ...GAPS].filter((gap) => kinds[gap]).map((gap) => {
        const text = gap === "coarse" ? "coarse: value of the nearest measured point" : gap;
        return element("span", { class: "key" }, element("i", { class: gap.replace(" ", "-") }), `${text} (${kinds[gap]})`);
      }));
    this.warning.hidden = !this.warning.childNodes.length;
  }

  shapes() {
    const { landscape } = this;
    const come = landscape.walked.length ? landscape.come(this.player.step) : [];
    return mapShapes({ ends: this.line, path: landscape.checkpoints, come, mark: this.mark ?? this.selected, frame: this.frame });
  }

  // Hovering and selecting ------------------------------------------------------------------------------------------

  hovered(plot, event) {
    const point = event.points[0];
    const { landscape } = this;
    const name = point.data.name.replace(" behind", "");
    if (name === "profile") {
      const at = this.points[point.pointNumber];
      this.mark = { x: at.x, y: at.y, value: at.value };
      this.page.tooltip.show([["x", shortText(at.x)], ["y", shortText(at.y)], [`${landscape.text(this.metric)} (interpolated)`, shortText(at.value)]], event.event);
    } else if (name.startsWith("path") || name === "networks" || name === "own" || name === "current") {
      const row = name === "current" ? landscape.come(this.player.step)[point.pointNumber].at(-1) : point.data.customdata[point.pointNumber];
      const path = landscape.checkpoints;
      this.mark = { x: path.x[row], y: path.y[row], value: (path.projected[this.metric] ?? [])[row] };
      this.say(checkpointFacts(landscape, row), event.event);
    } else if (name === "origin") {
      const { origin } = landscape;
      this.mark = { x: origin.x, y: origin.y, value: origin.metrics[this.metric]?.[0] };
      this.say(originFacts(landscape), event.event);
    } else {
      const [x, y] = this.coordinates(point);
      if (!this.holds(x, y)) return this.left();
      this.mark = this.gridPoint(x, y);
      this.say(pointFacts(landscape, this.metric, this.mark.row, this.mark.column), event.event);
    }
    return this.moveMark(this.mark, plot);
  }

  // The plane's coordinates of a point that Plotly reports; a line's points have no y.
  coordinates(point) {
    return this.landscape.isLine ? [point.x, point.y] : this.frame.back(point.x, point.y);
  }

  // Whether a place belongs to the cell of a grid point; beside an oblique plane the map is empty.
  holds(x, y) {
    const { landscape } = this;
    if (landscape.isLine || !this.frame.oblique) return true;
    return [[x, edges(landscape.x)], [y, edges(landscape.y)]].every(([value, [low, high]]) => value >= low && value <= high);
  }

  // The grid point that is nearest to a place; a line's points have no y.
  gridPoint(x, y) {
    const { landscape } = this;
    const column = nearest(landscape.x, x);
    const row = landscape.isLine ? 0 : nearest(landscape.y, y);
    return { row, column, x: landscape.x[column], y: landscape.y[row], value: landscape.values(this.metric)[row * landscape.columns + column] };
  }

  say(facts, event) {
    fillFacts(this.readout, facts);
    if (event) this.page.tooltip.show(facts, event);
  }

  left() {
    this.mark = null;
    this.page.tooltip.hide();
    if (this.selected) this.select(this.selected);
    else this.moveMark(null);
  }

  clicked(event) {
    const point = event.points[0];
    const { landscape } = this;
    const row = point.data.name.startsWith("path") ? point.data.customdata[point.pointNumber] : -1;
    const step = landscape.paths.length > 1 ? landscape.steps.indexOf(landscape.checkpoints?.number[row]) : landscape.walked.indexOf(row);
    if (step >= 0) this.player.go(step);
    else if (point.data.name !== "profile") {
      const [x, y] = this.coordinates(point);
      if (this.holds(x, y)) this.select({ x, y });
    }
  }

  select(point) {
    this.selected = this.gridPoint(point.x, point.y);
    this.page.changed();
    this.say(pointFacts(this.landscape, this.metric, this.selected.row, this.selected.column));
    this.moveMark(this.selected);
  }

  walk(event) {
    if (event.target !== this.map) return;
    const [right, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key] ?? [0, 0];
    if (event.key === "Escape") {
      this.selected = null;
      this.readout.replaceChildren();
      this.moveMark(null);
      this.page.changed();
    }
    if (!right && !up) return;
    event.preventDefault();
    const { landscape } = this;
    const from = this.selected ?? this.gridPoint(landscape.origin.x, landscape.origin.y ?? 0);
    const column = Math.min(Math.max(from.column + right, 0), landscape.columns - 1);
    const row = Math.min(Math.max(from.row + up, 0), landscape.rows - 1);
    this.select({ x: landscape.x[column], y: landscape.y[row] });
  }

  // The plot under the pointer stays as it is: redrawn between press and release, it would lose the click.
  async drawMark(mark, pointedAt) {
    if (this.landscape.isLine) return;
    if (pointedAt !== this.map) await Plotly.relayout(this.map, { shapes: this.shapes() });
    if (!this.flat && pointedAt !== this.surface) await this.movePoints(SURFACE.mark, [mark]);
  }

  async drawStep() {
    if (this.landscape.isLine || !this.standing.length || !this.map.data) return;
    await Plotly.relayout(this.map, { shapes: this.shapes() });
    if (!this.flat) await this.movePoints(SURFACE.current, this.standing);
  }

  // The checkpoints that the player stands at, one for each run, where they lie on the plane.
  get standing() {
    const { checkpoints: path, walked } = this.landscape;
    const rows = walked.length ? this.landscape.come(this.player.step).map((past) => past.at(-1)) : [];
    return rows.map((row) => ({ x: path.x[row], y: path.y[row], value: path.projected[this.metric]?.[row] ?? NaN }));
  }

  // Marks in front of the surface and behind it, for the camera as it stands.
  async drawDepth() {
    if (!this.surface._fullLayout?.scene) return;
    const found = this.depth.seenFrom(viewOf(this.surface));
    const lists = Object.values(found);
    const all = (name) => lists.map((list) => list[name]);
    await Plotly.restyle(this.surface, { x: all("x"), y: all("y"), z: all("z") }, Object.keys(found).map(Number));
  }

  movePoints(trace, points) {
    const place = Object.fromEntries(Object.entries(placed(points, this.scale, this.frame)).map(([name, list]) => [name, [...list]]));
    const before = this.depth.traces[trace];
    if (!place.z.length && !before.z.length) return null;
    Object.assign(before, place);
    const found = this.depth.seenFrom(viewOf(this.surface));
    const traces = [trace, this.depth.behind(trace)];
    const both = (name) => traces.map((index) => found[index][name]);
    return Plotly.restyle(this.surface, { x: both("x"), y: both("y"), z: both("z"), meta: [place, place] }, traces);
  }

  stepped(step) {
    this.moveStep?.(step);
    this.page.changed();
  }

  // The profile -----------------------------------------------------------------------------------------------------

  setLine(ends) {
    this.line = ends;
    this.page.changed();
    this.drawProfile();
    Plotly.relayout(this.map, { shapes: this.shapes() });
  }

  drawProfile() {
    const { landscape, metric, line: ends } = this;
    this.points = alongLine(landscape, landscape.values(metric), ends);
    const [columns, rows] = [landscape.columns - 1, landscape.rows - 1];
    this.handles.set(ends, [landscape.x[0], landscape.x[columns], landscape.y[0], landscape.y[rows]], this.frame);
    for (const [index, input] of this.inputs.entries()) input.value = Number(ends[index].toPrecision(4));
    this.draw(this.profile, profileTraces(this.points), profileLayout(landscape.text(metric), this.scale, landscape.geometry ? "distance along the line, in weight space" : "distance along the line, in units of the plane's coordinates", { shared: this.page.comparing && !landscape.isDifference }));
  }

  lineTyped(index) {
    const value = Number(this.inputs[index].value);
    const ends = [...this.line];
    if (this.inputs[index].value !== "" && Number.isFinite(value)) ends[index] = value;
    this.setLine(ends);
  }

  // Downloads -------------------------------------------------------------------------------------------------------

  get fileStem() {
    return this.landscape.name.replace(/\.h5$/, "").replace(/[^\w.-]+/g, "_");
  }

  downloadCsv() {
    save(new Blob([this.landscape.csv()], { type: "text/csv" }), `${this.fileStem}.csv`);
  }

  async downloadPicture() {
    const plots = this.landscape.isLine ? [this.profile] : this.flat ? [this.map] : [this.surface, this.map];
    const said = [...this.warning.children].map((each) => each.textContent).join(" ");
    save(await picture(plots, this.landscape.title, `${this.landscape.text(this.metric)}: ${this.scale.kind} scale. ${said}`), `${this.fileStem}_${this.metric.replace(/[^\w.-]+/g, "_")}.png`);
  }

  resize() {
    for (const plot of [this.surface, this.map, this.profile]) if (plot.data) Plotly.Plots.resize(plot);
  }

  close() {
    this.player.stop();
    for (const plot of [this.surface, this.map, this.profile]) if (plot.data) Plotly.purge(plot);
    this.section.remove();
  }
}
