// Pointing at a card's plots, keeping a point of it, and walking over its points by keys.

class PointedCard {
  // What is marked: under the pointer, where another card points, or what the reader keeps.
  get pointed() {
    return this.mark ?? this.linked ?? this.selected;
  }

  hovered(plot, event) {
    const [point] = event.points;
    const { landscape, metric } = this;
    const { data: { customdata, ...trace }, pointNumber: at } = point;
    const name = trace.name.replace(" behind", "");
    if (name === "profile") {
      this.mark = this.points[at];
      this.page.tooltip.show(betweenFacts(this, this.mark), event.event);
    } else if (name.startsWith("path") || ["networks", "own", "current"].includes(name)) {
      const row = name === "current" ? this.come[at].at(-1) : customdata[at];
      this.mark = footOf(landscape.checkpoints, metric, row);
      this.say(checkpointFacts(landscape, row), event.event);
    } else if (name === "origin") {
      const { x, y, metrics } = landscape.origin;
      this.mark = { x, y, value: metrics[metric]?.[0] };
      this.say(originFacts(landscape), event.event);
    } else {
      const place = this.placeOf(point);
      if (!place) return this.left();
      this.mark = this.gridPoint(place);
      this.say(pointFacts(this, this.mark), event.event);
    }
    this.comparison.point(this, this.mark);
    return this.moveMark(this.mark, plot);
  }

  // Marks the place that another card points at, and says what is there; beyond the grid nothing is.
  showLinked(place, keep = false) {
    const { landscape } = this;
    if (keep && place) this.selected = null;
    const there = place && cell(landscape.x, place.x) && (landscape.isLine || cell(landscape.y, place.y));
    this.linked = there ? this.placeAt(place) : null;
    // What the reader points at is spoken once.
    this.readout.ariaLive = this.linked ? "off" : "polite";
    this.say(this.linked?.facts ?? (this.selected ? pointFacts(this, this.selected) : []));
    this.moveMark(this.pointed);
  }

  // A grid point, or a place between grid points, where the value is interpolated.
  placeAt({ x, y }) {
    const { landscape } = this;
    const near = this.gridPoint({ x, y });
    if (near.x === x && (landscape.isLine || near.y === y)) return { ...near, facts: pointFacts(this, near) };
    const place = { x, y, value: landscape.between(this.metric, x, landscape.isLine ? 0 : y) };
    return { ...place, facts: betweenFacts(this, place) };
  }

  // Where on the plane a point is that Plotly reports; nowhere beside an oblique plane, where the map is empty.
  placeOf({ x: u, y: v }) {
    const { landscape, frame } = this;
    if (landscape.isLine) return { x: u, y: v };
    const [x, y] = frame.back(u, v);
    const [across, up] = landscape.ends(true);
    const inside = clamp(x, ...across) === x && clamp(y, ...up) === y;
    return inside || !frame.oblique ? { x, y } : null;
  }

  // The grid point that is nearest to a place; a line's points have no y.
  gridPoint({ x, y }) {
    const { landscape } = this;
    const column = nearest(landscape.x, x);
    const row = landscape.isLine ? 0 : nearest(landscape.y, y);
    return { row, column, x: landscape.x[column], y: landscape.y[row], value: landscape.metrics[this.metric][row * landscape.columns + column] };
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
      this.comparison.point(this, null);
      this.moveMark(this.pointed);
    }
  }

  clicked(event) {
    const [point] = event.points;
    const { paths, steps, walked, checkpoints } = this.landscape;
    const row = point.data.name.startsWith("path") ? point.data.customdata[point.pointNumber] : -1;
    const step = paths.length > 1 ? steps.indexOf(checkpoints.number[row]) : walked.indexOf(row);
    const place = this.placeOf(point);
    if (step >= 0) this.player.lead(step);
    else if (point.data.name !== "profile" && place) this.select(place);
  }

  select(place) {
    const point = this.gridPoint(place);
    this.linked = null;
    this.readout.ariaLive = "polite";
    this.keep(point, pointFacts(this, point));
  }

  // The point that the reader selected, or none.
  keep(point, facts) {
    this.selected = point;
    this.page.changed();
    this.say(facts);
    this.comparison.point(this, point, { keep: true });
    this.moveMark(point);
  }

  walk(event) {
    if (event.target !== this.main) return;
    const [right, up] = arrowWay(event);
    if (event.key === "Escape") {
      this.linked = null;
      this.keep(null, []);
    }
    if (!right && !up) return;
    const { landscape } = this;
    // A place between the points that another card marked is where the walk begins, too.
    const { x, y } = this.selected ?? this.linked ?? landscape.origin;
    const { row, column } = this.gridPoint({ x, y: y ?? 0 });
    const at = (axis, index) => axis[clamp(index, 0, axis.length - 1)];
    this.select({ x: at(landscape.x, column + right), y: at(landscape.y, row + up) });
  }
}
