// What a reader must know to read a picture: what is clipped, left out, not measured, or not to scale.

function fillWarning(box, card) {
  const { landscape, metric, scale } = card;
  const values = landscape.values(metric);
  const texts = [];
  const [low, high] = finiteRange(values);
  if (Number.isNaN(low)) texts.push(noValueWords(landscape, metric));
  else if (low === high) texts.push(`The ${landscape.isLine ? "line" : "surface"} is flat: ${landscape.text(metric)} is ${shortText(low)} at every finite point.`);
  const count = (test) => values.reduce((total, value) => total + (Number.isFinite(value) && test(value) ? 1 : 0), 0);
  const nonpositive = scale.kind === "log" ? count((value) => value <= 0) : 0;
  // Checkpoints, networks and the origin may lie lower than the grid.
  const marks = scale.kind === "log" ? landscape.scales[metric]?.log?.marks_without_place ?? "" : "";
  if (nonpositive || marks) {
    const which = low < 0 || marks === "0 and less" ? "0 or less" : "0";
    const who = { 0: "Some marked points are", 1: "1 value is" }[nonpositive] ?? `${nonpositive} values are`;
    const end = shortText((landscape.isLine ? scale.tall : scale).low);
    texts.push(`${who} ${which}, which has no place on a log scale: drawn at ${end}.`);
  }
  if (!landscape.isLine) {
    const marked = landscape.checkpoints?.times?.note[card.frame.aspect];
    if (marked) texts.push(`${marked[0].toUpperCase()}${marked.slice(1)}.`);
    texts.push(...card.frame.notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`));
    const above = count((value) => value > scale.high);
    const below = count((value) => value < scale.low) - nonpositive;
    if (above) texts.push(`Clipped: ${above} values above ${shortText(scale.high)} are drawn at ${shortText(scale.high)}.`);
    if (below > 0) texts.push(`Clipped: ${below} values below ${shortText(scale.low)} are drawn at ${shortText(scale.low)}.`);
  }
  const kinds = {};
  const contours = card.map.data?.[0].type === "contour";
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
  const dots = landscape.marked(metric).length;
  if (dots && !(contours && landscape.dotted)) texts.push(`Dots are the ${dots} measured points.`);
  box.replaceChildren(...texts.map((text) => element("span", { text })),
    ...["coarse", ...GAPS].filter((gap) => kinds[gap]).map((gap) => {
      const text = gap === "coarse" ? "coarse: value of the nearest measured point" : gap;
      return element("span", { class: "key" }, element("i", { class: gap.replace(" ", "-") }), `${text} (${kinds[gap]})`);
    }));
  box.hidden = !box.childNodes.length;
}
