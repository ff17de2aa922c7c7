// A surface turned by keys, and wheels and fingers that scroll the page until the reader takes hold of a surface.

const TURN_DEGREES = 10;
const FINE_DEGREES = 2;
const ZOOM_STEP = 1.15;
const [NEAREST, FARTHEST] = [0.3, 8];

class Turning {
  // The card's camera is nine numbers, as in a link.
  constructor(card, frame) {
    this.card = card;
    // Plotly's own button for the camera knows nothing of "View from", and goes to a place that Plotly chose. These are made
    // once: Plotly builds a plot anew when it gets others.
    this.buttons = [[...SURFACE_BUTTONS, { name: "home", title: "Reset camera", icon: Plotly.Icons.home, click: () => this.goHome() }]];
    frame.append(element("p.hint", { text: TOUCH ? "Tap to turn" : "Click to zoom with the wheel", "aria-hidden": "true" }));
    const { surface } = card;
    const hold = (held) => surface.classList.toggle("held", held);
    surface.addEventListener("keydown", (event) => this.pressed(event));
    surface.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse") hold(true);
      surface.focus({ preventScroll: true });
    });
    surface.addEventListener("click", () => hold(true));
    surface.addEventListener("blur", () => hold(false));
    frame.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hold(false));
    addEventListener("pointerdown", (event) => !frame.contains(event.target) && hold(false), { signal: card.ending.signal });
    const free = (event) => !surface.classList.contains("held") && !event.target.closest?.(".modebar") && event.stopPropagation();
    for (const kind of ["wheel", "touchstart", "touchmove"]) frame.addEventListener(kind, free, { capture: true, passive: true });
  }

  pressed(event) {
    if (event.target !== this.card.surface || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? FINE_DEGREES : TURN_DEGREES;
    const [around, up] = arrowWay(event).map((way) => way * step);
    const closer = { "+": 1, "=": 1, "-": -1, _: -1 }[event.key] ?? 0;
    const home = event.key === "Home" || event.key === "0";
    if (closer || home) event.preventDefault();
    if (!this.card.turnable) return;
    if (home) this.goHome();
    else if (around || up || closer) this.turn(turned(this.card.seen, around, up, ZOOM_STEP ** -closer));
  }

  // Back to the place that the page chose for all surfaces.
  goHome() {
    this.turn(this.card.usualCamera, "As at first: ");
  }

  turn(next, before = "") {
    const { card } = this;
    card.turn(next).then(() => {
      card.page.comparison.turned(card);
      card.page.changed();
    });
    card.page.spoken.textContent = `${before}${cameraWords(next)}`;
  }
}

// Azimuth and elevation in degrees, and the distance from what the camera looks at.
function sphere(camera) {
  const [x, y, z] = [0, 1, 2].map((at) => camera[at] - camera[at + 3]);
  const distance = Math.hypot(x, y, z);
  return [(Math.atan2(y, x) * 180) / Math.PI, (Math.asin(z / distance) * 180) / Math.PI, distance];
}

function turned(camera, around, up, zoom) {
  const [azimuth, elevation, distance] = sphere(camera);
  // Straight from above, "up" would point at the reader.
  const [turn, tilt] = [azimuth + around, clamp(elevation + up, -89, 89)].map((degrees) => (degrees * Math.PI) / 180);
  const way = [Math.cos(tilt) * Math.cos(turn), Math.cos(tilt) * Math.sin(turn), Math.sin(tilt)];
  const away = clamp(distance * zoom, NEAREST, FARTHEST);
  return [...way.map((share, at) => camera[at + 3] + away * share), ...camera.slice(3)];
}

function cameraWords(camera) {
  const [azimuth, elevation, distance] = sphere(camera);
  const degrees = (angle) => `${Math.round(angle) || 0} degrees`.replace("-", "minus ");
  return `azimuth ${degrees(azimuth)}, elevation ${degrees(elevation)}, distance ${shortText(distance, 2)}`;
}
