// One landscape on the page: surface and map side by side, the path's player, the profile, the table.

class Card extends PointedCard {
  constructor(landscape, page, beside) {
    super();
    // Whether it shows the page's second metric; what is selected, where another card points, and the profile's line.
    const { settings, comparison } = page;
    Object.assign(this, { landscape, page, settings, comparison, beside, selected: null, linked: null, line: null });
    const { isLine } = landscape;
    this.section = element(isLine ? "section.card.line" : "section.card");
    this.heading = element("h2");
    this.key = element("span.key");
    this.note = element("p.note");
    this.framed = ["surface", "map", "profile"].map((kind) => plotFrame(kind, isLine || kind !== "profile"));
    [this.surface, this.map, this.profile] = this.framed.map(({ plot }) => plot);
    this.main = isLine ? this.profile : this.map;
    this.ending = new AbortController(); // ends what the card listens to beyond itself
    this.readout = element("output.readout.facts", { "aria-live": "polite" });
    this.warning = element("p.warning", { role: "note", hidden: true });
    this.table = element("tbody");
    this.chooser = new LineChooser((ends) => this.setLine(ends), (kind) => this.setLine(usualLine([this.landscape], kind)));
    this.player = new Player(landscape, () => this.stepped(), () => comparison.walk(this));
    this.build();
    this.moveMark = newestOnly((mark, pointedAt) => this.drawMoving("mark", MARK, [mark], pointedAt));
    this.moveStep = newestOnly(() => this.standing.length && this.main.data && this.drawMoving("current", CURRENT, this.standing));
    // Marks in front of the surface and behind it, for the camera as it stands.
    this.moveCamera = newestOnly(() => this.turnable && this.restyle());
    this.main.addEventListener("keydown", (event) => this.walk(event));
    this.sized = new ResizeObserver(newestOnly(() => this.resize()));
    this.sized.observe(this.section);
  }

  build() {
    const { isLine } = this.landscape;
    const [surface, map, profile] = this.framed.map(({ frame }) => frame);
    const tools = element("div.tools", {}, button("CSV", "Download the grid as CSV", () => saveGrid(this)),
      ...pictureButtons("this view", (format) => savePicture(this, format), isLine ? "" : "; the surface in it is a picture of pixels"),
      screenButton(this.section, "This landscape on the whole screen"));
    const head = element("header", {}, element("div", {}, this.key, this.heading, this.note), tools);
    const words = [this.warning, this.readout, this.player.box];
    this.about = element("details.about", { open: true }, element("summary", { text: "About this landscape" }), element("table", {}, this.table));
    if (isLine) return this.section.append(head, profile, ...words, this.about);
    this.handles = new Handles(this, map);
    this.flat = this.surface.hidden = !this.page.webgl;
    if (this.flat) surface.append(element("p.absent", { text: "This browser has no WebGL, so the surface cannot be drawn. The map shows the same values." }));
    else this.turning = new Turning(this, surface);
    this.figure = element("figure", {},
      element("figcaption", { text: "Profile along the dashed line, interpolated bilinearly between the points" }), profile, this.chooser.box);
    return this.section.append(head, element("div.pair", {}, surface, map), ...words, element("div.pair.lower", {}, this.figure, this.about));
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

  get colours() {
    return this.landscape.isDifference ? this.page.diverging : this.page.colours[this.settings.colours];
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
    const { comparison } = this;
    return usualLine(comparison.overlaid(this) ? comparison.planes : [this.landscape], "across");
  }

  describe() {
    const { landscape, metric } = this;
    const { isLine } = landscape;
    const what = `${landscape.text(metric)}, ${this.caption}`;
    const walked = `${what}; the arrow keys walk over its points, Escape lets go`;
    this.surface.ariaLabel = `Surface of ${what}; the arrow keys turn it, plus and minus zoom, Home turns it back`;
    this.map.ariaLabel = `Map of ${walked}`;
    this.profile.ariaLabel = isLine ? `Curve of ${walked}` : `Profile of ${what}`;
    const summary = summaryOf(landscape, metric, this.scale);
    for (const { spoken } of isLine ? this.framed.slice(2) : this.framed.slice(0, 2)) spoken.textContent = summary;
  }

  // What the reader set on this card alone; null is the usual.
  get kept() {
    const { line, player, selected, usualEnds } = this;
    return {
      zoom: zoomOf(this.main),
      camera: this.moved && this.comparison.namesCamera(this) ? this.seen : null,
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
    if (!landscape.isLine) this.line = line;
    if (step?.[0] >= 0 && landscape.walked.length) this.player.go(Math.min(Math.trunc(step[0]), this.player.last));
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
    this.section.ariaLabel = single ? this.heading.textContent || landscape.title : this.caption;
    this.describe();
    this.table.replaceChildren(...landscape.facts.map(([name, text]) =>
      element("tr", {}, element("th", { scope: "row", text: name }), element("td", { text }))));
    // Of another metric, the value is another one.
    if (this.selected) this.selected = this.gridPoint(this.selected);
    if (this.linked) this.linked = this.placeAt(this.linked);
    if (landscape.isLine) {
      const shared = (this.page.comparing || settings.low !== null || settings.high !== null) && !landscape.isDifference;
      this.draw(this.profile, onAxis(lineTraces(this), this.scale), profileLayout(landscape.text(metric), this.scale, landscape.axis_labels[0], shared));
      return fillWarning(this);
    }
    this.line ??= this.usualEnds;
    this.section.style.setProperty("--time-bar", `${timeBarHeight(landscape.times)}px`);
    const traces = mapTraces(this);
    const layout = mapLayout(this, traces[0].type === "heatmap");
    // Beside others there is no room for the directions' names, which the note says.
    if (this.comparison.side) [layout.xaxis.title.text, layout.yaxis.title.text] = this.frame.floor;
    this.draw(this.map, traces, { ...layout, shapes: mapShapes(this) });
    if (!this.flat) {
      const marked = surfaceTraces(this);
      this.depth = new Depth(this, marked);
      const layout = surfaceLayout(this);
      layout.scene.uirevision = settings.camera;
      layout.scene.camera = this.chooseCamera(this.depth.framed(layout, listedCamera(this.frame.cameras[settings.camera])));
      this.draw(this.surface, [...withHidden(marked), ...plateaus(this)], layout);
      this.moveCamera();
    }
    this.drawProfile();
    return fillWarning(this);
  }

  draw(plot, traces, layout) {
    const [first, axes] = [!plot.data, plot === this.main ? [layout.xaxis, layout.yaxis] : []];
    const kept = first ? this.zoom : zoomOf(plot);
    // Plotly writes into the layout what the reader zoomed to.
    const usualAxes = axes.map(({ range }) => range && [...range]);
    const meaning = axes.map(({ uirevision }) => uirevision).join();
    Plotly.react(plot, traces, layout, config(plot === this.surface ? this.turning.buttons : MAP_BUTTONS));
    const same = first || plot.meaning === meaning;
    Object.assign(plot, { usualAxes, meaning });
    if (axes.length && kept && same && !zoomOf(plot)) Plotly.relayout(plot, zoomed(kept));
    if (!first) return;
    if (axes.length) plot.on("plotly_relayout", () => this.page.changed());
    listen(plot, (event) => this.hovered(plot, event), () => this.left());
    plot.on("plotly_click", (event) => this.clicked(event));
    if (plot === this.surface) {
      plot.on("plotly_relayout", () => {
        this.moveCamera();
        this.comparison.turned(this);
        this.page.changed();
      });
      plot.on("plotly_relayouting", () => this.comparison.turned(this));
    }
    if (plot === this.map) plot.on("plotly_afterplot", () => this.handles.place());
  }

  // A mark, or where the player stands. The plot under the pointer stays as it is: redrawn between press and release, it
  // would lose the click.
  async drawMoving(name, trace, points, pointedAt) {
    if (this.landscape.isLine && pointedAt !== this.profile) await drawLineMark(this.profile, name, points, this.scale);
    if (this.landscape.isLine) return;
    if (pointedAt !== this.map) await Plotly.relayout(this.map, { shapes: mapShapes(this) });
    if (!this.flat && pointedAt !== this.surface) await this.movePoints(trace, points);
  }

  // How far each run has come where the player stands.
  get come() {
    return this.landscape.walked.length ? this.landscape.come(this.player.step) : [];
  }

  // The checkpoints that the player stands at, one for each run, where they lie on the plane.
  get standing() {
    const { checkpoints: path } = this.landscape;
    return this.come.map((past) => footOf(path, this.metric, past.at(-1)));
  }

  // Whether there is a surface whose camera can be read and moved.
  get turnable() {
    return Boolean(this.surface._fullLayout?.scene);
  }

  // The camera as nine numbers.
  get seen() {
    return listedCamera(cameraOf(this.surface));
  }

  // Whether the reader turned the surface, or it follows one that was turned.
  get moved() {
    return Boolean(this.usualCamera) && this.turnable && areFar(this.seen, this.usualCamera, 1e-3);
  }

  // From where to draw a scene with this usual camera. Plotly keeps what a mouse turned, but not what keys, a link or another
  // card did; another choice of "View from" undoes all of it.
  chooseCamera(usual) {
    const before = this.usualCamera;
    const leader = this.comparison.leader(this);
    const kept = this.camera?.chosen === this.settings.camera && (this.moved || !before);
    let view = usual;
    if (leader) view = lookingLike(leader.seen, leader.usualCamera, usual);
    else if (kept) view = before ? lookingLike(this.seen, before, usual) : this.camera.view;
    this.usualCamera = usual;
    this.camera = { view, chosen: this.settings.camera };
    return cameraFrom(view);
  }

  async turn(camera) {
    this.following = true;
    await Plotly.relayout(this.surface, { "scene.camera": cameraFrom(camera) });
    this.following = false;
  }

  // Draws traces of the surface, all by default, where they are seen.
  restyle(traces = null, changes = {}) {
    const found = this.depth.seenFrom(viewOf(this.surface));
    const chosen = traces ?? Object.keys(found).map(Number);
    const [x, y, z] = ["x", "y", "z"].map((name) => chosen.map((index) => found[index][name]));
    return Plotly.restyle(this.surface, { x, y, z, ...changes }, chosen);
  }

  movePoints(trace, points) {
    const place = placed(points, this);
    const before = this.depth.traces[trace];
    if (!place.z.length && !before.z.length) return null;
    Object.assign(before, place);
    return this.restyle([trace, this.depth.behind(trace)], { meta: [place, place] });
  }

  stepped() {
    this.moveStep?.();
    this.page.changed();
  }

  setLine(ends) {
    if (this.comparison.overlaid(this)) this.comparison.setLines(() => ends);
    else this.moveLine(ends);
  }

  moveLine(ends) {
    this.line = ends;
    this.page.changed();
    this.drawProfile();
    Plotly.relayout(this.map, { shapes: mapShapes(this) });
  }

  drawProfile() {
    const { landscape, metric, line: ends } = this;
    this.handles.place();
    // A profile that stands on one axis with others has no plot of its own.
    this.figure.hidden = this.comparison.overlaid(this);
    if (this.figure.hidden) return;
    this.points = alongLine(landscape, metric, ends);
    this.chooser.show(ends, landscape.walked.length > 1);
    const text = landscape.text(metric);
    const shared = this.page.comparing && !landscape.isDifference;
    const layout = profileLayout(text, this.scale, `distance along the line, ${unitOf([landscape])}`, shared);
    this.draw(this.profile, onAxis([curveOf("profile", this.points, { color: colour("accent") })], this.scale), layout);
    this.framed[2].spoken.textContent = curveText(text, this.points);
  }

  async resize() {
    await Promise.all(this.framed.map(({ plot }) => fit(plot)));
    this.handles?.place();
  }

  close() {
    this.player.stop();
    this.sized.disconnect();
    this.ending.abort();
    for (const { plot } of this.framed) if (plot.data) Plotly.purge(plot);
    this.section.remove();
  }
}
