// A view as one picture: the plots side by side, with their title above and what was clipped below.

const PICTURE_MARGINS = { top: 44, bottom: 34, pad: 16 };
// Pixels of a PNG for each pixel on the screen.
const PICTURE_SCALE = 2;

// Where each plot lies in the picture, and how large that is.
function pictureFrame(plots) {
  const { top, bottom, pad } = PICTURE_MARGINS;
  const sizes = plots.map((plot) => [plot.clientWidth, plot.clientHeight]);
  let left = pad;
  const boxes = sizes.map(([width, height]) => {
    const box = { left, top, width, height };
    left += width + pad;
    return box;
  });
  return { boxes, width: left, height: Math.max(...sizes.map(([, height]) => height)) + top + bottom };
}

async function picture(plots, title, note) {
  const { boxes, width, height } = pictureFrame(plots);
  const { pad } = PICTURE_MARGINS;
  const canvas = element("canvas", { width: width * PICTURE_SCALE, height: height * PICTURE_SCALE });
  const context = canvas.getContext("2d");
  context.scale(PICTURE_SCALE, PICTURE_SCALE);
  context.fillStyle = colour("card");
  context.fillRect(0, 0, width, height);
  for (const [index, plot] of plots.entries()) {
    const box = boxes[index];
    const image = new Image();
    image.src = await Plotly.toImage(plot, { format: "png", width: box.width, height: box.height, scale: PICTURE_SCALE });
    await image.decode();
    context.drawImage(image, box.left, box.top, box.width, box.height);
  }
  const font = getComputedStyle(document.body).fontFamily;
  context.fillStyle = colour("text");
  context.font = `600 16px ${font}`;
  context.fillText(title, pad, 28, width - 2 * pad);
  context.fillStyle = colour("muted");
  context.font = `12px ${font}`;
  context.fillText(note, pad, height - 12, width - 2 * pad);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

const SVG = "http://www.w3.org/2000/svg";

function vectorElement(tag, attributes, ...children) {
  const found = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

// The same as lines and letters that a drawing program can change; Plotly puts a surface in as a picture of pixels.
async function vectorPicture(plots, title, note) {
  const { boxes, width, height } = pictureFrame(plots);
  const { pad } = PICTURE_MARGINS;
  const font = getComputedStyle(document.body).fontFamily;
  const inside = width - 2 * pad;
  // Canvas squeezes what is too long, and so does this.
  const text = (content, y, size, weight, fill) => {
    const found = vectorElement("text", { x: pad, y, fill, "font-size": size, "font-weight": weight, "font-family": font }, content);
    const measure = element("canvas").getContext("2d");
    measure.font = `${weight} ${size}px ${font}`;
    if (measure.measureText(content).width > inside) for (const [name, value] of [["textLength", inside], ["lengthAdjust", "spacingAndGlyphs"]]) found.setAttribute(name, value);
    return found;
  };
  const whole = vectorElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` },
    vectorElement("title", {}, title),
    vectorElement("rect", { width, height, fill: colour("card") }),
    text(title, 28, 16, 600, colour("text")));
  for (const [index, plot] of plots.entries()) {
    const box = boxes[index];
    const one = await Plotly.toImage(plot, { format: "svg", width: box.width, height: box.height, imageDataOnly: true });
    const own = document.importNode(new DOMParser().parseFromString(one, "image/svg+xml").documentElement, true);
    for (const [name, value] of [["x", box.left], ["y", box.top]]) own.setAttribute(name, value);
    whole.append(own);
  }
  whole.append(text(note, height - 12, 12, 400, colour("muted")));
  return new Blob([new XMLSerializer().serializeToString(whole)], { type: "image/svg+xml" });
}

// The downloads of a card -------------------------------------------------------------------------------------------------

function stem(text) {
  return text.replace(/\.h5$/, "").replace(/[^\w.-]+/g, "_");
}

function saveGrid({ landscape }) {
  save(new Blob([landscape.csv()], { type: "text/csv" }), `${stem(landscape.name)}.csv`);
}

async function savePicture(card, format) {
  const { landscape, metric, scale, warning } = card;
  const plots = landscape.isLine ? [card.profile] : card.flat ? [card.map] : [card.surface, card.map];
  const said = [...warning.children].map((each) => each.textContent).join(" ");
  const note = `${landscape.text(metric)}: ${scale.kind} scale. ${said}`;
  await savePlots(plots, landscape.title, note, `${stem(landscape.name)}_${metric.replace(/[^\w.-]+/g, "_")}`, format);
}

async function savePlots(plots, title, note, name, format) {
  const make = format === "svg" ? vectorPicture : picture;
  save(await make(plots, title, note), `${name}.${format}`);
}
