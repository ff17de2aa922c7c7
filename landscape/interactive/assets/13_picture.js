// A view as one picture: the plots side by side, with their title above and what was clipped below.

const PICTURE_PAD = 16;
const PICTURE_TOP = 44;
// Pixels of a PNG for each pixel on the screen.
const PICTURE_SCALE = 2;

// How large the picture is; each plot with its size and the place of its left end; each line of text, its height and type.
function pictureFrame(plots, title, note) {
  let left = PICTURE_PAD;
  const placed = plots.map((plot) => {
    const [at, { clientWidth: width, clientHeight: height }] = [left, plot];
    left += width + PICTURE_PAD;
    return [plot, at, { width, height }];
  });
  const height = Math.max(...plots.map(({ clientHeight }) => clientHeight)) + 78;
  const family = getComputedStyle(document.body).fontFamily;
  const line = (text, y, weight, size, name) => ({ text, y, weight, size, family, font: `${weight} ${size}px ${family}`, fill: colour(name) });
  const lines = [line(title, 28, 600, 16, "text"), line(note, height - 12, 400, 12, "muted")];
  return { placed, lines, width: left, height, inside: left - 2 * PICTURE_PAD };
}

// Lines and letters that a drawing program can change; Plotly puts a surface in as a picture of pixels.
async function vectorPicture({ placed, lines, width, height, inside }) {
  const measure = element("canvas").getContext("2d");
  const [title, note] = lines.map(({ text, y, weight, size, family, font, fill }) => {
    measure.font = font;
    // Canvas squeezes what is too long, and so does this.
    const squeezed = measure.measureText(text).width > inside ? { textLength: inside, lengthAdjust: "spacingAndGlyphs" } : {};
    return vectorElement("text", { x: PICTURE_PAD, y, fill, "font-size": size, "font-weight": weight, "font-family": family, ...squeezed }, text);
  });
  const whole = vectorElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` },
    vectorElement("title", {}, lines[0].text), vectorElement("rect", { width, height, fill: colour("card") }), title);
  for (const [plot, left, size] of placed) {
    const one = await Plotly.toImage(plot, { format: "svg", ...size, imageDataOnly: true });
    const own = document.importNode(new DOMParser().parseFromString(one, "image/svg+xml").documentElement, true);
    whole.append(filled(own, { x: left, y: PICTURE_TOP }, []));
  }
  whole.append(note);
  return new Blob([new XMLSerializer().serializeToString(whole)], { type: "image/svg+xml" });
}

const fileName = (text) => text.replace(/[^\w.-]+/g, "_");

const stem = (landscape) => fileName(landscape.name.replace(/\.h5$/, ""));

const saveGrid = ({ landscape }) => save(new Blob([landscape.csv()], { type: "text/csv" }), `${stem(landscape)}.csv`);

function savePicture(card, format) {
  const { landscape, metric, scale, warning, framed } = card;
  const plots = framed.map(({ plot }) => plot).filter((plot) => !plot.hidden && landscape.isLine === (plot === card.profile));
  const words = [...warning.children].map((each) => each.textContent).join(" ");
  return savePlots(plots, landscape.title, `${landscape.text(metric)}: ${scale.kind} scale. ${words}`, `${stem(landscape)}_${fileName(metric)}`, format);
}

async function savePlots(plots, title, note, name, format) {
  const frame = pictureFrame(plots, title, note);
  const drawn = await vectorPicture(frame);
  save(format === "svg" ? drawn : await inPixels(drawn, frame), `${name}.${format}`);
}

async function inPixels(drawn, { width, height }) {
  const image = new Image();
  image.src = URL.createObjectURL(drawn);
  await image.decode();
  const canvas = element("canvas", { width: width * PICTURE_SCALE, height: height * PICTURE_SCALE });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
