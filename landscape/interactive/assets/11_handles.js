// Two handles on the map hold the profile's line: dragged by mouse or finger, or moved by arrow keys; and its controls.

class Handles {
  constructor(card, frame) {
    this.card = card;
    this.handles = [0, 1].map((which) => this.handle(which));
    frame.append(...this.handles);
    new ResizeObserver(() => this.place()).observe(frame);
  }

  handle(which) {
    const { card } = this;
    const text = `${which ? "End" : "Start"} of the profile line; drag it or press the arrow keys`;
    const pointerdown = (event) => {
      event.preventDefault();
      found.focus();
      found.setPointerCapture(event.pointerId);
    };
    const pointermove = ({ pointerId, clientX, clientY }) => {
      if (!found.hasPointerCapture(pointerId)) return;
      const { xaxis, yaxis } = card.map._fullLayout;
      const { left, top } = card.map.getBoundingClientRect();
      this.move(which, card.frame.back(xaxis.p2d(clientX - left - xaxis._offset), yaxis.p2d(clientY - top - yaxis._offset)));
    };
    const keydown = (event) => {
      const share = event.shiftKey ? 0.1 : 0.01;
      const { line, landscape: { x, y } } = card;
      const [right, up] = arrowWay(event).map((way, at) => way * share * ([x, y][at].at(-1) - [x, y][at][0]));
      if (right || up) this.move(which, [line[2 * which] + right, line[2 * which + 1] + up]);
    };
    const found = button("", text, null, { class: "handle", on: { pointerdown, pointermove, keydown } });
    return found;
  }

  // The line stays on the grid, because nothing is known beyond it.
  move(which, [x, y]) {
    const { line, landscape } = this.card;
    const inside = (value, axis) => clamp(value, axis[0], axis.at(-1));
    this.card.setLine(line.toSpliced(2 * which, 2, inside(x, landscape.x), inside(y, landscape.y)));
  }

  place() {
    const { line, frame, map: { _fullLayout: layout } } = this.card;
    for (const [which, handle] of this.handles.entries()) {
      handle.hidden = !line || !layout?.xaxis?.d2p;
      if (handle.hidden) continue;
      const { xaxis, yaxis } = layout;
      const [across, up] = frame.place(...line.slice(2 * which));
      const [left, top] = [xaxis.d2p(across), yaxis.d2p(up)];
      handle.hidden = left < -1 || left > xaxis._length + 1 || top < -1 || top > yaxis._length + 1;
      handle.style.left = `${left + xaxis._offset}px`;
      handle.style.top = `${top + yaxis._offset}px`;
    }
  }
}

class LineChooser {
  // "moved" hears the new ends, "choose" the kind of a usual line.
  constructor(moved, choose) {
    this.moved = moved;
    this.inputs = ["x of the start", "y of the start", "x of the end", "y of the end"].map((text, index) =>
      element("input", { type: "number", step: "any", "aria-label": text, on: { change: () => this.typed(index) } }));
    const usual = [["across", "Across"], ["up", "Upwards"], ["path", "Start to end"]].map(([kind, text]) =>
      button(text, `Draw the line: ${text.toLowerCase()}`, () => choose(kind)));
    this.alongPath = usual.at(-1);
    const [x0, y0, x1, y1] = this.inputs;
    this.box = element("div.line-controls", {}, ...usual,
      element("span.ends", {}, "coordinates from (", x0, ",", y0, ") to (", x1, ",", y1, ")"));
  }

  // No ends where several planes have different ones.
  show(ends, hasPath) {
    this.ends = ends;
    this.alongPath.hidden = !hasPath;
    this.box.querySelector(".ends").hidden = !ends;
    for (const [index, input] of this.inputs.entries()) input.value = ends ? Number(ends[index].toPrecision(4)) : "";
  }

  typed(index) {
    const value = this.inputs[index].valueAsNumber;
    this.moved(this.ends.with(index, Number.isFinite(value) ? value : this.ends[index]));
  }
}
