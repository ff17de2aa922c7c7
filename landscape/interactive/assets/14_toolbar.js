// What holds for the whole page: metric, scale, range, colours, which landscapes, their difference, the theme.

class Toolbar {
  constructor(page) {
    this.page = page;
    const { settings } = page;
    this.box = element("div", { class: "toolbar", role: "region", "aria-label": "View" });
    this.metric = element("span", { class: "metrics" });
    this.differences = element("span");
    this.low = this.end("low", "Lowest value of the colours and heights");
    this.high = this.end("high", "Highest value of the colours and heights");
    this.reset = button("Auto", "Choose the range from the data", () => {
      this.showRange(null, null);
      page.set({ low: null, high: null });
    });
    this.box.append(
      this.metric,
      labelled("Scale", select([["auto", "Automatic"], ["log", "Logarithmic"], ["linear", "Linear"]], settings.scale, (value) => page.set({ scale: value }), { id: "scale" })),
      this.range = element("span", { class: "control range", role: "group", "aria-label": "Range" }, element("span", { text: "Clip to" }), this.low, "\u2013", this.high, this.reset),
      ...this.ofPlanes(labelled("Colours", select(Object.keys(COLOUR_MAPS).map((name) => [name, name]), settings.colours, (value) => page.set({ colours: value }), { id: "colours" })),
      labelled("Axes", select([["equal", "To scale"], ["fill", "Filling"]], settings.aspect, (value) => page.set({ aspect: value }), { id: "aspect", title: "To scale: distances in weight space. Filling: the plane's coordinates fill a square." })),
      labelled("View from", select(page.cameras.map((name) => [name, cameraText(name)]), settings.camera, (value) => page.set({ camera: value }), { id: "camera", title: "From where surfaces are seen, the same for all; auto looks for the best view of each path. Drag a surface to turn it." })),
      labelled("Map", select([["contour", "Contours"], ["cells", "Cells"]], settings.map, (value) => page.set({ map: value }), { id: "map" }))),
    );
    [this.low.value, this.high.value] = [settings.low ?? "", settings.high ?? ""];
    this.several();
    this.showMetrics();
    this.box.append(page.link.box);
  }

  // What a curve does not have: colours, directions, a map.
  ofPlanes(...controls) {
    this.planesOnly = controls;
    return controls;
  }

  // Only what does something to the cards on the page.
  showFitting() {
    const cards = [...this.page.cards.values()];
    const lines = cards.length > 0 && cards.every(({ landscape }) => landscape.isLine);
    for (const control of this.planesOnly) control.hidden = lines;
    this.range.firstChild.textContent = lines ? "Values" : "Clip to";
    const switches = { layout: cards.length > 1, locked: this.page.webgl && cards.filter(({ flat }) => flat === false).length > 1, linked: cards.length > 1, players: this.page.comparison.walkable, overlay: cards.length > 1 };
    for (const [name, fits] of Object.entries(switches)) this.compared[name].hidden = !fits;
  }

  // How several cards stand beside each other, by the names of the settings.
  comparing() {
    const { settings } = this.page;
    const found = { layout: labelled("Layout", select([["side", "Side by side"], ["rows", "In rows"]], settings.layout, (value) => this.page.set({ layout: value }), { id: "layout" })) };
    for (const [name, text, title] of [
      ["locked", "Lock cameras", "Turn one surface, and all turn"],
      ["linked", "Link cursor", "Point at one, and the same coordinates are marked in all"],
      ["players", "Link players", "Walk along one path, and all others are shown at the same epoch or step"],
      ["overlay", "Overlay profiles", "The profiles of all on one axis, along one line"],
    ]) found[name] = this.toggle(name, text, title);
    return found;
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
    const controls = [labelled("Metric", select(listed(names), page.settings.metric, (value) => page.set({ metric: value, low: null, high: null }), { id: "metric" }))];
    if (this.severalSets) {
      const others = listed(names.filter((name) => !owners[name].isError(name)));
      controls.push(labelled("Beside it", select([["", "nothing"], ...others], page.settings.beside, (value) => page.set({ beside: value }), { id: "beside", title: "A second metric of the same landscape; metrics that measure the same share a scale." })));
    }
    this.metric.replaceChildren(...controls);
    this.differences.replaceChildren(...[this.difference()].filter((control) => control));
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

  end(which, label) {
    return element("input", { type: "number", step: "any", id: which, placeholder: which === "low" ? "min" : "max", "aria-label": label, on: { change: () => this.typed() } });
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

  several() {
    const { landscapes } = this.page;
    this.compared = this.comparing();
    this.box.append(...Object.values(this.compared));
    if (landscapes.length < 2 && !this.severalSets) return this.box.append(this.differences);
    this.box.append(this.toggle("shared", "One scale for all"));
    if (landscapes.length < 2) return this.box.append(this.differences);
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Landscapes shown" }, ...landscapes.map((landscape, index) =>
      element("button", {
        type: "button", class: "chip", "aria-pressed": String(this.page.shown.has(index)), text: landscape.name,
        on: { click: (event) => event.currentTarget.setAttribute("aria-pressed", String(this.page.toggle(index))) },
      })));
    return this.box.append(this.chips, this.differences);
  }

  difference() {
    const { landscapes, settings } = this.page;
    const pairs = landscapes.flatMap((first, one) => landscapes.flatMap((second, two) =>
      (this.page.differenceScales(one, two) ? [[`${one} ${two}`, `${first.name} \u2212 ${second.name}`]] : [])));
    for (const [index, landscape] of landscapes.entries()) {
      const of = landscapes.length > 1 ? `${landscape.name}: ` : "";
      for (const [at, { metrics: [one, two] }] of landscape.metric_differences.entries()) {
        const texts = [one, two].map((name) => landscape.text(name));
        pairs.push([`${index} m${at}`, of + texts.join(" \u2212 ")], [`${index} r${at}`, of + [...texts].reverse().join(" \u2212 ")]);
      }
    }
    if (!pairs.length && landscapes.length < 2) return null;
    if (!pairs.length) return element("span", { class: "control muted", text: "No two landscapes lie on the same grid, so there is no difference to show." });
    return labelled("Difference", select([["", "none"], ...pairs], settings.difference, (value) => this.page.set({ difference: value }), { id: "difference" }));
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
    this.button = button("", "", () => {
      this.choose(this.dark ? "light" : "dark");
    }, { class: "theme" });
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
    this.button.textContent = this.dark ? "\u2600" : "\u263e";
    this.button.setAttribute("aria-label", this.dark ? "Light colours" : "Dark colours");
    this.button.title = this.dark ? "Light colours" : "Dark colours";
    this.changed();
  }
}
