// What holds for the whole page: metric, scale, range, colours, which landscapes, their difference, the theme.

// The values of settings, which links name too, and what the controls call them.
const CHOICES = {
  scale: [["auto", "Automatic"], ["log", "Logarithmic"], ["linear", "Linear"]],
  aspect: [["equal", "To scale"], ["fill", "Filling"]],
  map: [["contour", "Contours"], ["cells", "Cells"]],
  layout: [["side", "Side by side"], ["rows", "In rows"]],
};

class Toolbar {
  constructor(page) {
    this.page = page;
    const { landscapes, settings } = page;
    this.measured = page.measured;
    this.low = this.end("low", "min", "Lowest value of the colours and heights");
    this.high = this.end("high", "max", "Highest value of the colours and heights");
    const reset = button("Auto", "Choose the range from the data", () => page.set({ low: null, high: null }));
    this.range = element("span.control", { role: "group", "aria-label": "Range" },
      element("span", { text: "Clip to" }), this.low, "\u2013", this.high, reset);
    // What a curve does not have: colours, directions, a map.
    this.planesOnly = [
      this.choice("colours", "Colours", Object.keys(page.colours).map((name) => [name, name])),
      this.choice("aspect", "Axes", CHOICES.aspect, "To scale: distances in weight space. Filling: the plane's coordinates fill a square."),
      this.choice("camera", "View from", page.cameras.map((name) => [name, cameraText(name)]), "From where surfaces are seen, the same for all; auto looks for the best view of each path. Drag a surface to turn it."),
      this.choice("map", "Map", CHOICES.map),
    ];
    // How several cards stand beside each other, by the names of the settings.
    this.compared = {
      layout: this.choice("layout", "Layout", CHOICES.layout),
      locked: this.toggle("locked", "Lock cameras", "Turn one surface, and all turn"),
      linked: this.toggle("linked", "Link cursor", "Point at one, and the same coordinates are marked in all"),
      players: this.toggle("players", "Link players", "Walk along one path, and all others are shown at the same epoch or step"),
      overlay: this.toggle("overlay", "Overlay profiles", "The profiles of all on one axis, along one line"),
    };
    const several = landscapes.length > 1;
    const severalSets = landscapes.some(({ datasets }) => datasets.length > 1);
    const chips = landscapes.map((landscape, index) => element("button.chip", {
      type: "button", "aria-pressed": String(page.shown.has(index)), text: landscape.name,
      on: { click: ({ currentTarget }) => { currentTarget.ariaPressed = String(page.toggle(index)); } },
    }));
    this.box = element("div.toolbar", { role: "region", "aria-label": "View" },
      element("span.metrics", {}, ...this.metrics(severalSets)), this.choice("scale", "Scale", CHOICES.scale), this.range,
      ...this.planesOnly, ...Object.values(this.compared),
      ...(several || severalSets ? [this.toggle("shared", "One scale for all")] : []),
      ...(several ? [element("div.chips", { role: "group", "aria-label": "Landscapes shown" }, ...chips)] : []),
      element("span", {}, ...this.difference()), page.link.box);
    this.showRange(settings);
  }

  // Only what does something to the cards on the page.
  showFitting() {
    const { cards, walkable } = this.page.comparison;
    const lines = cards.length > 0 && cards.every(({ landscape }) => landscape.isLine);
    for (const control of this.planesOnly) control.hidden = lines;
    this.range.firstChild.textContent = lines ? "Values" : "Clip to";
    const fits = { locked: cards.filter(({ flat }) => flat === false).length > 1, players: walkable };
    for (const [name, control] of Object.entries(this.compared)) control.hidden = !(fits[name] ?? cards.length > 1);
  }

  // A control of the setting that has its name.
  choice(name, text, options, title = null) {
    const { page } = this;
    return labelled(text, element("select", { id: name, title, on: { change: ({ target }) => page.set({ [name]: target.value }) } },
      ...optionsOf(options, page.settings[name])));
  }

  toggle(name, text, title = null) {
    const { page } = this;
    const change = ({ target }) => page.set({ [name]: target.checked });
    return labelled(text, element("input", { type: "checkbox", id: name, title, checked: page.settings[name], on: { change } }));
  }

  metrics(severalSets) {
    const owners = mapping([...this.page.landscapes].reverse().flatMap((landscape) => Object.keys(landscape.metrics).map((name) => [name, landscape])));
    const text = (name) => {
      if (name === "loss_error") return "loss_error (estimated error of interpolation)";
      return owners[name].text(name) + (owners[name].quantity(name).endsWith("_stderr") ? " (standard error)" : "");
    };
    // By data set, where there are several.
    const listed = (names) => {
      const groups = Map.groupBy(names, (name) => owners[name].names[name].dataset);
      const options = [...groups].map(([group, members]) => [group, members.map((name) => [name, text(name)])]);
      return options.length > 1 ? options : options.flatMap(([, members]) => members);
    };
    const metric = this.choice("metric", "Metric", listed(this.measured));
    if (!severalSets) return [metric];
    const others = listed(this.measured.filter((name) => !owners[name].names[name].is_error));
    return [metric, this.choice("beside", "Beside it", [["", "nothing"], ...others], "A second metric of the same landscape; metrics that measure the same share a scale.")];
  }

  end(id, placeholder, label) {
    return element("input", { type: "number", step: "any", id, placeholder, "aria-label": label, on: { change: () => this.typed() } });
  }

  typed() {
    const [low, high] = [this.low, this.high].map(({ valueAsNumber: value }) => (Number.isFinite(value) ? value : null));
    const wrong = low !== null && high !== null && !(low < high);
    this.high.setCustomValidity(wrong ? "The highest value must be above the lowest." : "");
    if (wrong) this.high.reportValidity();
    else this.page.set({ low, high });
  }

  showRange({ low, high }) {
    this.low.value = low ?? "";
    this.high.value = high ?? "";
    this.high.setCustomValidity("");
  }

  difference() {
    const pairs = Object.entries(this.page.offered).map(([key, { text }]) => [key, text]);
    if (pairs.length) return [this.choice("difference", "Difference", [["", "none"], ...pairs])];
    const none = "No two landscapes lie on the same grid, so there is no difference to show.";
    return this.page.landscapes.length > 1 ? [element("span.control", { text: none })] : [];
  }
}

// A camera of one's own is azimuth and elevation.
const cameraText = (name) =>
  name.includes(",") ? `${name.replace(",", "\u00b0, ")}\u00b0` : `${name[0].toUpperCase()}${name.slice(1)}`;

// Light or dark as the system says, until the reader chooses.
class Theme {
  constructor(changed) {
    this.changed = changed;
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", () => this.choose(this.chosen));
    this.button = button("", "", () => this.choose(this.dark ? "light" : "dark"), { class: "theme" });
    this.choose(null);
  }

  get dark() {
    return this.chosen ? this.chosen === "dark" : this.system.matches;
  }

  choose(chosen) {
    this.chosen = chosen;
    document.documentElement.dataset.theme = this.dark ? "dark" : "light";
    relabel(this.button, this.dark ? "\u2600" : "\u263e", this.dark ? "Light colours" : "Dark colours");
    this.changed();
  }
}
