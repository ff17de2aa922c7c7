// Two handles on the map hold the profile's line: dragged by mouse or finger, or moved by arrow keys.

class Handles {
  constructor(plot, frame, moved) {
    Object.assign(this, { plot, moved, ends: null });
    this.handles = [0, 1].map((which) => this.handle(which));
    frame.append(...this.handles);
    new ResizeObserver(() => this.place()).observe(frame);
  }

  handle(which) {
    const text = `${which ? "End" : "Start"} of the profile line; drag it or press the arrow keys`;
    const found = element("button", { type: "button", class: "handle", "aria-label": text, title: text });
    found.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      found.focus();
      found.setPointerCapture(event.pointerId);
    });
    found.addEventListener("pointermove", (event) => {
      if (!found.hasPointerCapture(event.pointerId)) return;
      const { xaxis, yaxis } = this.plot._fullLayout;
      const box = this.plot.getBoundingClientRect();
      this.move(which, ...this.frame.back(xaxis.p2d(event.clientX - box.left - xaxis._offset), yaxis.p2d(event.clientY - box.top - yaxis._offset)));
    });
    found.addEventListener("keydown", (event) => {
      const [right, up] = arrowWay(event.key);
      if (!right && !up) return;
      event.preventDefault();
      const share = event.shiftKey ? 0.1 : 0.01;
      const [xLow, xHigh, yLow, yHigh] = this.bounds;
      const [x, y] = this.ends.slice(2 * which);
      this.move(which, x + right * share * (xHigh - xLow), y + up * share * (yHigh - yLow));
    });
    return found;
  }

  set(ends, bounds, frame) {
    Object.assign(this, { ends, frame, bounds });
    this.place();
  }

  // The line stays on the grid, because nothing is known beyond it.
  move(which, x, y) {
    const [xLow, xHigh, yLow, yHigh] = this.bounds;
    const ends = [...this.ends];
    ends.splice(2 * which, 2, clamp(x, xLow, xHigh), clamp(y, yLow, yHigh));
    this.moved(ends);
  }

  place() {
    const layout = this.plot._fullLayout;
    for (const [which, handle] of this.handles.entries()) {
      handle.hidden = !this.ends || !layout?.xaxis?.d2p;
      if (handle.hidden) continue;
      const { xaxis, yaxis } = layout;
      const [across, up] = this.frame.place(...this.ends.slice(2 * which));
      const [left, top] = [xaxis.d2p(across), yaxis.d2p(up)];
      handle.hidden = left < -1 || left > xaxis._length + 1 || top < -1 || top > yaxis._length + 1;
      handle.style.left = `${left + xaxis._offset}px`;
      handle.style.top = `${top + yaxis._offset}px`;
    }
  }
}
