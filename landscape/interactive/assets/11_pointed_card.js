// Pointing at a card's plots, keeping a point of it, and walking over its points by keys.

class PointedCard {
  // What is marked: under the pointer, where another card points, or what the reader keeps.
  get pointed() {
    return this.mark ?? this.linked ?? this.selected;
  }

  hovered(plot, event) {
    const [point] = event.points;
    const { landscape, metric } = this;
    const name = point.data.name.replace(" behind", "");
    if (name === "profile") {
      this.mark = this.points[point.pointNumber];
      this.page.tooltip.show(this.betweenFacts(this.mark), event.event);
    } else if (name.startsWith("path") || name === "networks" || name === "own" || name === "current") {
      const row = name === "current" ? landscape.come(this.player.step)[point.pointNumber].at(-1) : point.data.customdata[point.pointNumber];
      const path = landscape.checkpoints;
      this.mark = { x: path.x[row], y: path.y[row], value: path.projected[metric]?.[row] };
      this.say(checkpointFacts(landscape, row), event.event);
    } else if (name === "origin") {
      const { x, y, metrics } = landscape.origin;
      this.mark = { x, y, value: metrics[metric]?.[0] };
      this.say(originFacts(landscape), event.event);
    } else {
      const [x, y] = this.coordinates(point);
      if (!this.holds(x, y)) return this.left();
      this.mark = this.gridPoint(x, y);
      this.say(this.pointFacts(this.mark), event.event);
    }
    this.page.comparison.point(this, this.mark);
    return this.moveMark(this.mark, plot);
  }

  // Marks the place that another card points at, and says what is there; beyond the grid nothing is.
  showLinked(place, keep = false) {
    const { landscape } = this;
    if (keep && place) this.selected = null;
    const there = place && cell(landscape.x, place.x) && (landscape.isLine || cell(landscape.y, place.y));
    this.linked = there ? this.placeAt(place) : null;
    // What the reader points at is spoken once.
    this.readout.setAttribute("aria-live", this.linked ? "off" : "polite");
    this.say(this.linked?.facts ?? (this.selected ? this.pointFacts(this.selected) : []));
    this.moveMark(this.pointed);
  }

  // A grid point, or a place between grid points, where the value is interpolated.
  placeAt({ x, y }) {
    const { landscape } = this;
    const near = this.gridPoint(x, y);
    if (near.x === x && (landscape.isLine || near.y === y)) return { ...near, facts: this.pointFacts(near) };
    const value = bilinear(landscape.x, landscape.y, landscape.values(this.metric), x, landscape.isLine ? 0 : y);
    return { x, y, value, facts: this.betweenFacts({ x, y, value }) };
  }

  betweenFacts({ x, y, value }) {
    const { landscape } = this;
    return [...coordinateFacts(landscape, x, y), [`${landscape.text(this.metric)} (interpolated)`, shortText(value)]];
  }

  pointFacts({ row, column }) {
    return pointFacts(this.landscape, this.metric, row, column);
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
    else {
      this.page.comparison.point(this, null);
      this.moveMark(this.pointed);
    }
  }

  clicked(event) {
    const point = event.points[0];
    const { landscape } = this;
    const row = point.data.name.startsWith("path") ? point.data.customdata[point.pointNumber] : -1;
    const step = landscape.paths.length > 1 ? landscape.steps.indexOf(landscape.checkpoints?.number[row]) : landscape.walked.indexOf(row);
    if (step >= 0) this.player.lead(step);
    else if (point.data.name !== "profile") {
      const [x, y] = this.coordinates(point);
      if (this.holds(x, y)) this.select({ x, y });
    }
  }

  select(point) {
    this.selected = this.gridPoint(point.x, point.y);
    this.linked = null;
    this.readout.setAttribute("aria-live", "polite");
    this.page.changed();
    this.say(this.pointFacts(this.selected));
    this.page.comparison.point(this, this.selected, { keep: true });
    this.moveMark(this.selected);
  }

  walk(event) {
    if (event.target !== this.main) return;
    const [right, up] = arrowWay(event.key);
    if (event.key === "Escape") {
      this.selected = this.linked = null;
      this.say([]);
      this.page.comparison.point(this, null);
      this.moveMark(null);
      this.page.changed();
    }
    if (!right && !up) return;
    event.preventDefault();
    const { landscape } = this;
    // A place between the points that another card marked is where the walk begins, too.
    const { x, y } = this.selected ?? this.linked ?? landscape.origin;
    const from = this.gridPoint(x, y ?? 0);
    const column = clamp(from.column + right, 0, landscape.columns - 1);
    this.select({ x: landscape.x[column], y: landscape.y[clamp(from.row + up, 0, landscape.rows - 1)] });
  }
}
