// One landscape on the page: surface and map side by side, the path's player, the profile, the table.

class Card extends TurnedCard {
  constructor(landscape, page, beside) {
    super();
    // Whether it shows the page's second metric; what is selected, where another card points, and the profile's line.
    Object.assign(this, { landscape, page, settings: page.settings, beside, selected: null, linked: null, line: null });
    this.section = element("section", { class: "card" });
    this.heading = element("h2");
    this.key = element("span", { class: "key" });
    this.note = element("p", { class: "note" });
    // Those that keys move in are applications; arrow keys then reach the plot.
    this.surface = element("div", { class: "plot surface", tabindex: 0, role: "application" });
    this.map = element("div", { class: "plot map", tabindex: 0, role: "application" });
    this.profile = element("div", { class: "plot profile", ...(landscape.isLine ? { tabindex: 0, role: "application" } : { role: "group" }) });
    this.main = landscape.isLine ? this.profile : this.map;
    this.spoken = [this.surface, this.map, this.profile].map((plot) => spokenText(plot, "plot"));
    this.ending = new AbortController(); // ends what the card listens to beyond itself
    this.readout = element("output", { class: "readout facts", "aria-live": "polite" });
    this.warning = element("p", { class: "warning", role: "note", hidden: true });
    this.table = element("tbody");
    this.chooser = new LineChooser((ends) => this.setLine(ends), (kind) => this.setLine(usualLine(this.landscape, kind)));
    this.player = new Player(landscape, () => this.stepped(), () => page.comparison.walk(this));
    this.build();
    this.moveMark = newestOnly((mark, pointedAt) => this.drawMoving("mark", MARK, [mark], pointedAt));
    this.moveStep = newestOnly(() => (this.standing.length && this.main.data ? this.drawMoving("current", CURRENT, this.standing) : null));
    // Marks in front of the surface and behind it, for the camera as it stands.
    this.moveCamera = newestOnly(() => (this.turnable ? this.restyle() : null));
    this.main.addEventListener("keydown", (event) => this.walk(event));
    this.sized = new ResizeObserver(newestOnly(() => this.resize()));
    this.sized.observe(this.section);
  }

  build() {
    const { landscape } = this;
    const tools = element("div", { class: "tools" },
      button("CSV", "Download the grid as CSV", () => saveGrid(this)),
      button("PNG", "Download this view as PNG", () => savePicture(this, "png")),
      button("SVG", landscape.isLine ? "Download this view as SVG" : "Download this view as SVG; the surface in it is a picture of pixels", () => savePicture(this, "svg")),
      screenButton(this.section, "This landscape on the whole screen"));
    const head = element("header", {}, element("div", {}, this.key, this.heading, this.note), tools);
    const [surfaceText, mapText, profileText] = this.spoken;
    this.about = element("details", { class: "about", open: true }, element("summary", { text: "About this landscape" }), element("table", {}, this.table));
    if (landscape.isLine) {
      this.section.classList.add("line");
      this.section.append(head, element("div", { class: "frame" }, this.profile, profileText), this.warning, this.readout, this.player.box, this.about);
      return;
    }
    const mapFrame = element("div", { class: "frame" }, this.map, mapText);
    this.handles = new Handles(this.map, mapFrame, (ends) => this.setLine(ends));
    const surfaceFrame = element("div", { class: "frame" }, this.surface, surfaceText);
    this.flat = !this.page.webgl;
    if (this.flat) {
      surfaceFrame.append(element("p", { class: "absent", text: "This browser has no WebGL, so the surface cannot be drawn. The map shows the same values." }));
      this.surface.hidden = true;
    } else this.turning = new Turning(this, surfaceFrame);
    this.figure = element("figure", {},
      element("figcaption", { text: "Profile along the dashed line, interpolated bilinearly between the points" }),
      element("div", { class: "frame" }, this.profile, profileText), this.chooser.box);
    this.section.append(
      head,
      element("div", { class: "pair" }, surfaceFrame, mapFrame),
      this.warning, this.readout, this.player.box,
      element("div", { class: "pair lower" }, this.figure, this.about),
    );
  }

  setLandscape(landscape) {
    this.landscape = landscape;
    this.player.setLandscape(landscape);
    this.render();
    if (this.selected) this.select(this.selected);
  }

  get frame() {
    return this.landscape.frames[this.settings.aspect];
  }

  get metric() {
    const chosen = this.landscape.only ?? (this.beside ? this.settings.beside : this.settings.metric);
    return chosen in this.landscape.metrics ? chosen : "loss";
  }

  get quantity() {
    return this.landscape.quantity(this.metric);
  }

  // A name that no other card of the page has.
  get caption() {
    const { landscape } = this;
    if (landscape.isDifference) return landscape.title;
    return this.page.besideShown ? `${landscape.name}: ${landscape.text(this.metric)}` : landscape.name;
  }

  get usualEnds() {
    if (this.landscape.isLine) return null;
    return this.page.comparison.overlaid(this) ? this.page.comparison.usualLine("across") : usualLine(this.landscape, "across");
  }

  // The plots' names and texts for screen readers.
  describe() {
    const { landscape, metric } = this;
    const what = `${landscape.text(metric)}, ${this.caption}`;
    const names = [
      [this.surface, `Surface of ${what}; the arrow keys turn it, plus and minus zoom, Home turns it back`],
      [this.map, `Map of ${what}; the arrow keys walk over its points, Escape lets go`],
      [this.profile, landscape.isLine ? `Curve of ${what}; the arrow keys walk over its points, Escape lets go` : `Profile of ${what}`],
    ];
    for (const [plot, name] of names) plot.setAttribute("aria-label", name);
    const summary = summaryOf(landscape, metric, this.scale);
    for (const [index, text] of this.spoken.entries()) if (landscape.isLine === (index === 2)) text.textContent = summary;
  }

  // What the reader set on this card alone; null is the usual.
  get kept() {
    const { line, player, selected } = this;
    const moved = this.moved && this.page.comparison.namesCamera(this);
    const usualEnds = this.usualEnds;
    return {
      zoom: zoomOf(this.main),
      camera: moved ? this.seen : null,
      line: line && line.some((value, index) => value !== usualEnds[index]) ? line : null,
      step: this.landscape.walked.length && player.step !== player.last ? player.step : null,
      point: selected ? [selected.x, selected.y] : null,
    };
  }

  // Before the first drawing.
  restore({ camera, line, step, point, zoom }) {
    const { landscape } = this;
    this.zoom = zoom;
    if (camera) this.camera = { view: camera, chosen: this.settings.camera };
    if (line && !landscape.isLine) this.line = line;
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
    this.section.setAttribute("aria-label", single ? this.heading.textContent || landscape.title : this.caption);
    this.describe();
    this.table.replaceChildren(...landscape.facts.map(([name, text]) => element("tr", {}, element("th", { scope: "row", text: name }), element("td", { text }))));
    // Of another metric, the value is another one.
    if (this.selected) this.selected = this.gridPoint(this.selected.x, this.selected.y);
    if (this.linked) this.linked = this.placeAt(this.linked);
    if (landscape.isLine) {
      const shared = (this.page.comparing || settings.low !== null || settings.high !== null) && !landscape.isDifference;
      const traces = lineTraces(landscape, metric, { current: this.standing, mark: this.linked ?? this.selected });
      this.draw(this.profile, onAxis(traces, this.scale), profileLayout(landscape.text(metric), this.scale, landscape.axis_labels[0], { shared }));
      return fillWarning(this.warning, this);
    }
    this.line ??= this.usualEnds;
    this.section.style.setProperty("--time-bar", `${timeBarHeight(landscape.checkpoints?.times)}px`);
    const colours = landscape.isDifference ? this.page.diverging : this.page.colours[settings.colours];
    const traces = mapTraces(landscape, metric, this.scale, settings, colours, this.frame);
    const layout = mapLayout(landscape, this.map, traces[0].type === "heatmap", this.frame);
    // Beside others there is no room for the directions' names, which the note says.
    if (this.page.comparison.side) for (const [index, axis] of [layout.xaxis, layout.yaxis].entries()) axis.title.text = this.frame.floor[index];
    this.draw(this.map, traces, { ...layout, shapes: this.shapes() });
    if (!this.flat) {
      const points = { current: this.standing, mark: this.selected };
      const marked = surfaceTraces(landscape, metric, this.scale, colours, this.frame, points);
      this.depth = new Depth(landscape, metric, this.scale, marked);
      const layout = this.depth.framed(surfaceLayout(landscape, metric, this.scale, this.frame), this.frame.cameras[settings.camera]);
      layout.scene.uirevision = settings.camera;
      layout.scene.camera = this.chooseCamera(listedCamera(layout.scene.camera));
      const coarse = plateaus(landscape, metric, this.scale, colours, this.frame);
      this.draw(this.surface, [...withHidden(marked), ...coarse], layout);
      this.moveCamera();
    }
    this.drawProfile();
    return fillWarning(this.warning, this);
  }

  draw(plot, traces, layout) {
    const [first, isMain] = [!plot.data, plot === this.main];
    const kept = first ? this.zoom : zoomOf(plot);
    const axes = isMain ? [layout.xaxis, layout.yaxis] : [];
    // Plotly writes into the layout what the reader zoomed to.
    const usualAxes = isMain ? axes.map(({ range }) => range && [...range]) : null;
    const meaning = axes.map(({ uirevision }) => uirevision).join();
    Plotly.react(plot, traces, layout, config(plot === this.surface ? this.turning.buttons : MAP_BUTTONS));
    const same = first || plot.meaning === meaning;
    Object.assign(plot, { usualAxes, meaning });
    if (isMain && kept && same && !zoomOf(plot)) Plotly.relayout(plot, zoomed(kept));
    if (!first) return;
    if (isMain) plot.on("plotly_relayout", () => this.page.changed());
    listen(plot, (event) => this.hovered(plot, event), () => this.left());
    plot.on("plotly_click", (event) => this.clicked(event));
    if (plot === this.surface) {
      plot.on("plotly_relayout", () => {
        this.moveCamera();
        this.page.comparison.turned(this);
        this.page.changed();
      });
      plot.on("plotly_relayouting", () => this.page.comparison.turned(this));
    }
    if (plot === this.map) plot.on("plotly_afterplot", () => this.handles.place());
  }

  shapes() {
    return mapShapes({ ends: this.line, path: this.landscape.checkpoints, come: this.come, mark: this.pointed, frame: this.frame });
  }

  // A mark, or where the player stands. The plot under the pointer stays as it is: redrawn between press and release, it
  // would lose the click.
  async drawMoving(name, trace, points, pointedAt) {
    if (this.landscape.isLine) {
      if (pointedAt !== this.profile) await drawLineMark(this.profile, name, points, this.scale);
      return;
    }
    if (pointedAt !== this.map) await Plotly.relayout(this.map, { shapes: this.shapes() });
    if (!this.flat && pointedAt !== this.surface) await this.movePoints(trace, points);
  }

  // How far each run has come where the player stands.
  get come() {
    return this.landscape.walked.length ? this.landscape.come(this.player.step) : [];
  }

  // The checkpoints that the player stands at, one for each run, where they lie on the plane.
  get standing() {
    const { checkpoints: path } = this.landscape;
    return this.come.map((past) => past.at(-1)).map((row) => ({ x: path.x[row], y: path.y[row], value: path.projected[this.metric]?.[row] ?? NaN }));
  }

  // Draws traces of the surface, all by default, where they are seen.
  restyle(traces = null, changes = {}) {
    const found = this.depth.seenFrom(viewOf(this.surface));
    const chosen = traces ?? Object.keys(found).map(Number);
    const all = (name) => chosen.map((index) => found[index][name]);
    return Plotly.restyle(this.surface, { x: all("x"), y: all("y"), z: all("z"), ...changes }, chosen);
  }

  movePoints(trace, points) {
    const place = placed(points, this.scale, this.frame);
    const before = this.depth.traces[trace];
    if (!place.z.length && !before.z.length) return null;
    Object.assign(before, place);
    return this.restyle([trace, this.depth.behind(trace)], { meta: [place, place] });
  }

  stepped() {
    this.moveStep?.();
    this.page.changed();
  }

  // The profile -----------------------------------------------------------------------------------------------------

  setLine(ends) {
    if (this.page.comparison.overlaid(this)) this.page.comparison.setLine(ends);
    else this.moveLine(ends);
  }

  moveLine(ends) {
    this.line = ends;
    this.page.changed();
    this.drawProfile();
    Plotly.relayout(this.map, { shapes: this.shapes() });
  }

  drawProfile() {
    const { landscape, metric, line: ends } = this;
    const { x, y } = landscape;
    this.handles.set(ends, [x[0], x.at(-1), y[0], y.at(-1)], this.frame);
    // A profile that stands on one axis with others has no plot of its own.
    this.figure.hidden = this.page.comparison.overlaid(this);
    if (this.figure.hidden) return;
    this.points = alongLine(landscape, landscape.values(metric), ends);
    this.chooser.show(ends, landscape.walked.length > 1);
    const xTitle = `distance along the line, ${landscape.geometry ? "in weight space" : "in units of the plane's coordinates"}`;
    const shared = this.page.comparing && !landscape.isDifference;
    this.draw(this.profile, onAxis(profileTraces(this.points), this.scale), profileLayout(landscape.text(metric), this.scale, xTitle, { shared }));
    this.spoken[2].textContent = curveText(landscape.text(metric), this.points);
  }

  async resize() {
    await Promise.all([this.surface, this.map, this.profile].map(fit));
    this.handles?.place();
  }

  close() {
    this.player.stop();
    this.sized.disconnect();
    this.ending.abort();
    for (const plot of [this.surface, this.map, this.profile]) if (plot.data) Plotly.purge(plot);
    this.section.remove();
  }
}
