// What a reader must know to read a picture: what is clipped, left out, not measured, or not to scale.

function fillWarning(box, card) {
  const { landscape, metric, scale, frame } = card;
  const values = landscape.values(metric);
  const texts = [];
  const sentence = (text) => text && texts.push(`${text[0].toUpperCase()}${text.slice(1)}.`);
  const [low, high] = finiteRange(values);
  if (Number.isNaN(low)) texts.push(noValueWords(landscape, metric));
  else if (low === high) texts.push(`The ${landscape.isLine ? "line" : "surface"} is flat: ${landscape.text(metric)} is ${shortText(low)} at every finite point.`);
  const count = (test) => values.filter((value) => Number.isFinite(value) && test(value)).length;
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
    for (const note of [landscape.times?.note[frame.aspect], ...frame.notes]) sentence(note);
    const above = ["above", shortText(scale.high), count((value) => value > scale.high)];
    const below = ["below", shortText(scale.low), count((value) => value < scale.low) - nonpositive];
    for (const [side, end, number] of [above, below]) if (number > 0) texts.push(`Clipped: ${number} values ${side} ${end} are drawn at ${end}.`);
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
    texts.push(landscape.dotted ? `Dots are the ${landscape.count(MEASURED)} measured points, the others are interpolated.`
      : `${kinds.interpolated} points are interpolated; the map of cells shows which.`);
    delete kinds.interpolated;
  }
  sentence(estimate);
  const dots = landscape.marked(metric).length;
  if (dots && !(contours && landscape.dotted)) texts.push(`Dots are the ${dots} measured points.`);
  box.replaceChildren(...texts.map((text) => element("span", { text })),
    ...["coarse", ...GAPS].filter((gap) => kinds[gap]).map((gap) => {
      const text = gap === "coarse" ? "coarse: value of the nearest measured point" : gap;
      return element("span.key", {}, element("i", { class: gap.replace(" ", "-") }), `${text} (${kinds[gap]})`);
    }));
  box.hidden = !box.childNodes.length;
}
