// What holds for the whole page: metric, scale, range, colours, which landscapes, their difference, the theme.

class Toolbar {
  constructor(page) {
    this.page = page;
    const { settings } = page;
    this.box = element("div", { class: "toolbar", role: "region", "aria-label": "View" });
    this.metric = element("span", { class: "metrics" });
    this.differences = element("span");
    this.low = this.end("low", "min", "Lowest value of the colours and heights");
    this.high = this.end("high", "max", "Highest value of the colours and heights");
    const reset = button("Auto", "Choose the range from the data", () => {
      this.showRange(null, null);
      page.set({ low: null, high: null });
    });
    this.range = element("span", { class: "control range", role: "group", "aria-label": "Range" },
      element("span", { text: "Clip to" }), this.low, "\u2013", this.high, reset);
    // What a curve does not have: colours, directions, a map.
    this.planesOnly = [
      this.choice("colours", "Colours", Object.keys(page.colours).map((name) => [name, name])),
      this.choice("aspect", "Axes", [["equal", "To scale"], ["fill", "Filling"]], "To scale: distances in weight space. Filling: the plane's coordinates fill a square."),
      this.choice("camera", "View from", page.cameras.map((name) => [name, cameraText(name)]), "From where surfaces are seen, the same for all; auto looks for the best view of each path. Drag a surface to turn it."),
      this.choice("map", "Map", [["contour", "Contours"], ["cells", "Cells"]]),
    ];
    // How several cards stand beside each other, by the names of the settings.
    this.compared = {
      layout: this.choice("layout", "Layout", [["side", "Side by side"], ["rows", "In rows"]]),
      locked: this.toggle("locked", "Lock cameras", "Turn one surface, and all turn"),
      linked: this.toggle("linked", "Link cursor", "Point at one, and the same coordinates are marked in all"),
      players: this.toggle("players", "Link players", "Walk along one path, and all others are shown at the same epoch or step"),
      overlay: this.toggle("overlay", "Overlay profiles", "The profiles of all on one axis, along one line"),
    };
    const { landscapes } = page;
    const several = landscapes.length > 1;
    const chips = landscapes.map((landscape, index) => element("button", {
      type: "button", class: "chip", "aria-pressed": String(page.shown.has(index)), text: landscape.name,
      on: { click: (event) => event.currentTarget.setAttribute("aria-pressed", String(page.toggle(index))) },
    }));
    this.box.append(
      this.metric, this.choice("scale", "Scale", [["auto", "Automatic"], ["log", "Logarithmic"], ["linear", "Linear"]]), this.range,
      ...this.planesOnly, ...Object.values(this.compared),
      ...(several || this.severalSets ? [this.toggle("shared", "One scale for all")] : []),
      ...(several ? [element("div", { class: "chips", role: "group", "aria-label": "Landscapes shown" }, ...chips)] : []),
      this.differences,
    );
    this.showRange(settings.low, settings.high);
    this.showMetrics();
    this.box.append(page.link.box);
  }

  // Only what does something to the cards on the page.
  showFitting() {
    const { cards, walkable } = this.page.comparison;
    const lines = cards.length > 0 && cards.every(({ landscape }) => landscape.isLine);
    for (const control of this.planesOnly) control.hidden = lines;
    this.range.firstChild.textContent = lines ? "Values" : "Clip to";
    const surfaces = this.page.webgl ? cards.filter(({ flat }) => flat === false) : [];
    const fits = { locked: surfaces.length > 1, players: walkable };
    for (const [name, control] of Object.entries(this.compared)) control.hidden = !(fits[name] ?? cards.length > 1);
  }

  // A control of the setting that has its name.
  choice(name, text, options, title = null, more = {}) {
    const { page } = this;
    return labelled(text, select(options, page.settings[name], (value) => page.set({ [name]: value, ...more }), { id: name, title }));
  }

  toggle(name, text, title = null) {
    const box = element("input", { type: "checkbox", id: name, title, checked: this.page.settings[name], on: { change: () => this.page.set({ [name]: box.checked }) } });
    return labelled(text, box);
  }

  showMetrics() {
    const { page } = this;
    const owners = mapping([...page.landscapes].reverse().flatMap((landscape) => Object.keys(landscape.metrics).map((name) => [name, landscape])));
    const names = this.measured;
    this.names = names;
    const text = (name) => {
      const { quantity } = owners[name].names[name];
      return name === "loss_error" ? "loss_error (estimated error of interpolation)" : owners[name].text(name) + (quantity.endsWith("_stderr") ? " (standard error)" : "");
    };
    const listed = (chosen) => this.grouped(chosen.map((name) => [owners[name].names[name].dataset, [name, text(name)]]));
    const controls = [this.choice("metric", "Metric", listed(names), null, { low: null, high: null })];
    if (this.severalSets) {
      const others = [["", "nothing"], ...listed(names.filter((name) => !owners[name].names[name].is_error))];
      controls.push(this.choice("beside", "Beside it", others, "A second metric of the same landscape; metrics that measure the same share a scale."));
    }
    this.metric.append(...controls);
    this.differences.append(...[this.difference()].filter(Boolean));
  }

  // The names of all metrics.
  get measured() {
    return [...new Set(this.page.landscapes.flatMap((landscape) => Object.keys(landscape.metrics)))];
  }

  // Whether the controls are still those of the page's metrics.
  get fits() {
    return String(this.names) === String(this.measured);
  }

  get severalSets() {
    return this.page.landscapes.some((landscape) => landscape.datasets.length > 1);
  }

  // Options by data set, where there are several.
  grouped(options) {
    const groups = new Map();
    for (const [group, option] of options) groups.set(group, [...(groups.get(group) ?? []), option]);
    return groups.size > 1 ? [...groups] : options.map(([, option]) => option);
  }

  end(id, placeholder, label) {
    return element("input", { type: "number", step: "any", id, placeholder, "aria-label": label, on: { change: () => this.typed() } });
  }

  typed() {
    const read = (input) => (input.value === "" || !Number.isFinite(Number(input.value)) ? null : Number(input.value));
    const [low, high] = [read(this.low), read(this.high)];
    const wrong = low !== null && high !== null && !(low < high);
    this.high.setCustomValidity(wrong ? "The highest value must be above the lowest." : "");
    if (wrong) this.high.reportValidity();
    else this.page.set({ low, high });
  }

  showRange(low, high) {
    this.low.value = low ?? "";
    this.high.value = high ?? "";
    this.high.setCustomValidity("");
  }

  difference() {
    const { landscapes } = this.page;
    const pairs = landscapes.flatMap((first, one) => landscapes.flatMap((second, two) =>
      (this.page.differenceBetween(one, two) ? [[`${one} ${two}`, `${first.name} \u2212 ${second.name}`]] : [])));
    for (const [index, landscape] of landscapes.entries()) {
      const of = landscapes.length > 1 ? `${landscape.name}: ` : "";
      for (const [at, { metrics: [one, two] }] of landscape.metric_differences.entries()) {
        const texts = [one, two].map((name) => landscape.text(name));
        pairs.push([`${index} m${at}`, of + texts.join(" \u2212 ")], [`${index} r${at}`, of + [...texts].reverse().join(" \u2212 ")]);
      }
    }
    if (!pairs.length && landscapes.length < 2) return null;
    if (!pairs.length) return element("span", { class: "control muted", text: "No two landscapes lie on the same grid, so there is no difference to show." });
    return this.choice("difference", "Difference", [["", "none"], ...pairs]);
  }
}

// A camera of one's own is azimuth and elevation.
function cameraText(name) {
  return name.includes(",") ? `${name.replace(",", "\u00b0, ")}\u00b0` : `${name[0].toUpperCase()}${name.slice(1)}`;
}

// Light or dark as the system says, until the reader chooses.
class Theme {
  constructor(changed) {
    this.changed = changed;
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", () => this.apply());
    this.chosen = null;
    this.button = button("", "", () => this.choose(this.dark ? "light" : "dark"), { class: "theme" });
    this.apply();
  }

  choose(chosen) {
    this.chosen = chosen;
    this.apply();
  }

  get dark() {
    return this.chosen ? this.chosen === "dark" : this.system.matches;
  }

  apply() {
    document.documentElement.dataset.theme = this.dark ? "dark" : "light";
    relabel(this.button, this.dark ? "\u2600" : "\u263e", this.dark ? "Light colours" : "Dark colours");
    this.changed();
  }
}
