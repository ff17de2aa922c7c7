// The view as one PNG: the plots side by side, with their title above and what was clipped below.

async function picture(plots, title, note) {
  const scale = 2;
  const [top, bottom, pad] = [44, 34, 16];
  const sizes = plots.map((plot) => [plot.clientWidth, plot.clientHeight]);
  const width = sizes.reduce((total, [across]) => total + across, 0) + pad * (plots.length + 1);
  const height = Math.max(...sizes.map(([, up]) => up)) + top + bottom;
  const canvas = element("canvas", { width: width * scale, height: height * scale });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = colour("card");
  context.fillRect(0, 0, width, height);
  let left = pad;
  for (const [index, plot] of plots.entries()) {
    const [across, up] = sizes[index];
    const image = new Image();
    image.src = await Plotly.toImage(plot, { format: "png", width: across, height: up, scale });
    await image.decode();
    context.drawImage(image, left, top, across, up);
    left += across + pad;
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
