// A link to what the page shows: everything that the reader changed stands in the address after its "#".

const LINK_MILLISECONDS = 400;
const CHOICES = { scale: ["auto", "log", "linear"], map: ["contour", "cells"], aspect: ["equal", "fill"], layout: ["side", "rows"] };
const SWITCHES = ["shared", "locked", "linked", "players", "overlay"];

class Link {
  constructor(page, { live }) {
    this.page = page;
    this.timer = null;
    this.button = button("Copy link", "Copy a link to this view", () => this.copy(), { id: "link" });
    this.said = element("output", { class: "said", "aria-live": "polite" });
    // Nobody else can open the address of `landscape plot --watch`.
    // Inside another page, the reader may want more room.
    this.alone = element("a", { class: "alone", href: location.href, target: "_blank", rel: "noopener", text: "Open alone", hidden: !EMBEDDED || !hasAddress(), on: { click: () => { this.alone.href = this.address; } } });
    this.box = element("span", { class: "control link", hidden: live }, this.button, this.alone, this.said);
  }

  // What stands after "#": only what is not as usual.
  get text() {
    const { page } = this;
    const { usual, settings, shown, theme } = page;
    const found = new URLSearchParams();
    for (const name of Object.keys(usual)) if (settings[name] !== null && settings[name] !== usual[name]) found.set(name, settings[name]);
    if (String([...shown].sort()) !== String([...page.usuallyShown])) found.set("shown", [...shown].sort().join(","));
    if (theme.chosen) found.set("theme", theme.chosen);
    for (const [key, card] of page.cards) {
      for (const [name, value] of Object.entries(card.kept)) if (value !== null) found.set(`${name}.${key}`, Array.isArray(value) ? value.map((each) => Number(each.toPrecision(6))).join(",") : value);
    }
    return found.toString();
  }

  get address() {
    return (hasAddress() ? location.href.split("#")[0] : "") + (this.text && `#${this.text}`);
  }

  // The address follows the view, so that the browser's own ways of keeping it work, a moment later.
  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), LINK_MILLISECONDS);
  }

  write() {
    try {
      history.replaceState(null, "", this.address);
    } catch {
      // A page inside another one may have no address of its own.
    }
  }

  async copy() {
    const { address } = this;
    this.write();
    const local = { "file:": " It opens this file on this computer; in a copy elsewhere, what begins with # opens the same view." }[location.protocol]
      ?? (hasAddress() ? "" : " This page lies inside another one and has no address; behind the address of a copy, this opens the same view.");
    this.said.replaceChildren((await copied(address)) ? `Copied.${local}` : element("input", { type: "text", readonly: true, value: address, "aria-label": "Link to this view", on: { focus: (event) => event.target.select() } }));
  }

  // What the address asks for, as far as this page has it; whoever made the address may have written anything.
  read() {
    const { page } = this;
    const given = new URLSearchParams(location.hash.slice(1));
    const kept = { settings: {}, shown: null, theme: null, cards: mapping([]) };
    const { settings } = kept;
    const measured = (name) => page.landscapes.some((landscape) => name in landscape.metrics);
    for (const name of ["metric", "beside"]) if (measured(given.get(name) ?? "")) settings[name] = given.get(name);
    for (const [name, values] of Object.entries({ ...CHOICES, colours: Object.keys(page.colours), camera: page.cameras })) if (values.includes(given.get(name))) settings[name] = given.get(name);
    for (const name of ["low", "high"]) settings[name] = numbers(given.get(name), 1)?.[0] ?? null;
    if (settings.low !== null && settings.high !== null && !(settings.low < settings.high)) settings.low = settings.high = null;
    for (const name of SWITCHES) if (["true", "false"].includes(given.get(name))) settings[name] = given.get(name) === "true";
    if (this.isDifference(given.get("difference") ?? "")) settings.difference = given.get("difference");
    const shown = (given.get("shown") ?? "").split(",").filter((text) => /^\d+$/.test(text)).map(Number).filter((index) => index < page.landscapes.length);
    if (shown.length || given.get("shown") === "") kept.shown = shown.slice(0, MOST_SHOWN);
    if (["light", "dark"].includes(given.get("theme"))) kept.theme = given.get("theme");
    for (const key of new Set([...given.keys()].map((name) => name.split(".")[1]).filter((key) => key))) {
      const step = given.get(`step.${key}`) ?? "";
      const lists = Object.entries({ camera: 9, line: 4, point: 2, zoom: 4 });
      kept.cards[key] = Object.fromEntries(lists.map(([name, count]) => [name, numbers(given.get(`${name}.${key}`), count)]));
      kept.cards[key].step = /^\d{1,9}$/.test(step) ? Number(step) : null;
    }
    return kept;
  }

  isDifference(text) {
    const { landscapes } = this.page;
    const two = /^(\d+) (\d+)$/.exec(text);
    if (two) return two[1] !== two[2] && Boolean(this.page.differenceBetween(two[1], two[2]));
    const metrics = /^(\d+) [mr](\d+)$/.exec(text);
    return Boolean(metrics && landscapes[metrics[1]]?.metric_differences[metrics[2]]);
  }
}

// So many finite numbers with commas between them, or null.
function numbers(text, count) {
  const found = text ? text.split(",").map((part) => (part.trim() ? Number(part) : NaN)) : [];
  return found.length === count && found.every(Number.isFinite) ? found : null;
}

function named([x, y, z]) {
  return { x, y, z };
}

// A camera as Plotly takes it; everywhere else it is nine numbers: where it stands, what it looks at, and what is up.
function cameraFrom(list) {
  return { eye: named(list.slice(0, 3)), center: named(list.slice(3, 6)), up: named(list.slice(6)) };
}

function cameraOf(plot) {
  return listedCamera(plot._fullLayout.scene._scene?.getCamera?.() ?? plot._fullLayout.scene.camera);
}

// The part of a plot that the reader zoomed to: left, right, bottom, top; null where it is the usual.
function zoomOf(plot) {
  const { usualAxes, _fullLayout: layout } = plot;
  if (!usualAxes || !layout?.xaxis) return null;
  const axes = [layout.xaxis, layout.yaxis];
  const same = axes.every(({ range, autorange }, index) => {
    const usual = usualAxes[index];
    return usual ? range.every((end, at) => Math.abs(end - usual[at]) < 1e-6 * Math.abs(usual[1] - usual[0])) : autorange;
  });
  return same ? null : axes.flatMap(({ range }) => range);
}

function zoomed([left, right, bottom, top]) {
  return { "xaxis.range": [left, right], "yaxis.range": [bottom, top] };
}

function listedCamera({ eye, center, up }) {
  return [eye, center, up ?? { x: 0, y: 0, z: 1 }].flatMap(({ x, y, z }) => [x, y, z]);
}

// Returns whether the text is on the clipboard now; older browsers know only a selection.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
