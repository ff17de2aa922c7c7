// A link to what the page shows: everything that the reader changed stands in the address after its "#".

const LINK_MILLISECONDS = 400;

class Link {
  constructor(page, { live }) {
    this.page = page;
    const copy = button("Copy link", "Copy a link to this view", () => this.copy(), { id: "link" });
    this.said = element("output.said", { "aria-live": "polite" });
    // Nobody else can open the address of `landscape plot --watch`.
    // Inside another page, the reader may want more room.
    const alone = element("a.alone", {
      href: location.href, target: "_blank", rel: "noopener", text: "Open alone", hidden: !EMBEDDED || !hasAddress(),
      on: { click: () => { alone.href = this.address; } },
    });
    this.box = element("span.control.link", { hidden: live }, copy, alone, this.said);
  }

  // What stands after "#": only what is not as usual.
  get text() {
    const { page } = this;
    const { usual, settings, shown, theme } = page;
    const found = new URLSearchParams();
    for (const name of Object.keys(usual)) if (settings[name] !== null && settings[name] !== usual[name]) found.set(name, settings[name]);
    if (String([...shown].sort()) !== String([...page.usuallyShown])) found.set("shown", [...shown].sort().join(","));
    if (theme.chosen) found.set("theme", theme.chosen);
    const short = (value) => [value].flat().map((each) => Number(each.toPrecision(6))).join();
    for (const [key, card] of page.cards) {
      for (const [name, value] of Object.entries(card.kept)) if (value !== null) found.set(`${name}.${key}`, short(value));
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
    let local = "";
    if (location.protocol === "file:") local = " It opens this file on this computer; in a copy elsewhere, what begins with # opens the same view.";
    else if (!hasAddress()) local = " This page lies inside another one and has no address; behind the address of a copy, this opens the same view.";
    const field = () => element("input", { type: "text", readonly: true, value: address, "aria-label": "Link to this view", on: { focus: ({ target }) => target.select() } });
    this.said.replaceChildren((await copied(address)) ? `Copied.${local}` : field());
  }

  // What the address asks for, as far as this page has it; whoever made the address may have written anything.
  read() {
    const { page } = this;
    const given = new URLSearchParams(location.hash.slice(1));
    const settings = {};
    const choices = Object.entries(CHOICES).map(([name, options]) => [name, options.map(([value]) => value)]);
    const switches = Object.entries(page.usual).filter(([, value]) => value === true).map(([name]) => [name, ["true", "false"]]);
    const named = { metric: page.measured, beside: page.measured, difference: Object.keys(page.offered), colours: Object.keys(page.colours), camera: page.cameras };
    for (const [name, values] of [...choices, ...switches, ...Object.entries(named)]) if (values.includes(given.get(name))) settings[name] = given.get(name);
    for (const [name] of switches) if (name in settings) settings[name] = settings[name] === "true";
    for (const name of ["low", "high"]) settings[name] = numbers(given.get(name), 1)?.[0] ?? null;
    if (settings.low !== null && settings.high !== null && !(settings.low < settings.high)) settings.low = settings.high = null;
    const shown = (given.get("shown") ?? "").split(",").filter((text) => /^\d+$/.test(text)).map(Number).filter((index) => index < page.landscapes.length);
    const cards = mapping([]);
    for (const key of new Set([...given.keys()].map((name) => name.split(".")[1]).filter(Boolean))) {
      const lists = Object.entries({ camera: 9, line: 4, point: 2, zoom: 4, step: 1 });
      cards[key] = Object.fromEntries(lists.map(([name, count]) => [name, numbers(given.get(`${name}.${key}`), count)]));
    }
    return {
      settings, cards, shown: shown.length || given.get("shown") === "" ? shown.slice(0, MOST_SHOWN) : null,
      theme: ["light", "dark"].find((name) => name === given.get("theme")),
    };
  }
}

// So many finite numbers with commas between them, or null.
function numbers(text, count) {
  const found = text ? text.split(",").map((part) => (part.trim() ? Number(part) : NaN)) : [];
  return found.length === count && found.every(Number.isFinite) ? found : null;
}

// A camera as Plotly takes it; everywhere else it is nine numbers: where it stands, what it looks at, and what is up.
const cameraFrom = (list) => Object.fromEntries(["eye", "center", "up"].map((name, index) => {
  const [x, y, z] = list.slice(3 * index);
  return [name, { x, y, z }];
}));

const cameraOf = ({ _fullLayout: { scene } }) => scene._scene?.getCamera?.() ?? scene.camera;

// The part of a plot that the reader zoomed to: left, right, bottom, top; null where it is the usual.
function zoomOf(plot) {
  const { usualAxes, _fullLayout: layout } = plot;
  if (!usualAxes || !layout?.xaxis) return null;
  const axes = [layout.xaxis, layout.yaxis];
  const same = usualAxes.every((usual, index) => {
    const { range, autorange } = axes[index];
    return usual ? range.every((end, at) => Math.abs(end - usual[at]) < 1e-6 * Math.abs(usual[1] - usual[0])) : autorange;
  });
  return same ? null : axes.flatMap(({ range }) => range);
}

const zoomed = ([left, right, bottom, top]) => ({ "xaxis.range": [left, right], "yaxis.range": [bottom, top] });

const areFar = (one, two, most) => one.some((value, index) => Math.abs(value - two[index]) > most);

const listedCamera = ({ eye, center, up }) =>
  [eye, center, up ?? { x: 0, y: 0, z: 1 }].flatMap(({ x, y, z }) => [x, y, z]);

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
