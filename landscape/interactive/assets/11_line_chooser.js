// The controls of a profile's line: the usual lines, and the coordinates of its ends.

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
    this.box = element("div", { class: "line-controls" }, ...usual,
      element("span", { class: "ends" }, "coordinates from (", x0, ",", y0, ") to (", x1, ",", y1, ")"));
  }

  // No ends where several planes have different ones.
  show(ends, hasPath) {
    this.ends = ends;
    this.alongPath.hidden = !hasPath;
    this.box.querySelector(".ends").hidden = !ends;
    for (const [index, input] of this.inputs.entries()) input.value = ends ? Number(ends[index].toPrecision(4)) : "";
  }

  typed(index) {
    const value = Number(this.inputs[index].value);
    const ends = [...this.ends];
    if (this.inputs[index].value !== "" && Number.isFinite(value)) ends[index] = value;
    this.moved(ends);
  }
}
