// What holds for the whole page: metric, scale, range, colours, which landscapes, their difference, the theme.

class Toolbar {
  constructor(page) {
    this.page = page;
    this.box = element("div", { class: "toolbar", role: "toolbar", "aria-label": "View" });
    this.metric = element("span");
    this.low = this.end("low", "Lowest value of the colours and heights");
    this.high = this.end("high", "Highest value of the colours and heights");
    this.reset = button("Auto", "Choose the range from the data", () => this.setRange(null, null));
    this.box.append(
      this.metric,
      labelled("Scale", select([["auto", "Automatic"], ["log", "Logarithmic"], ["linear", "Linear"]], "auto", (value) => page.set({ scale: value }), { id: "scale" })),
      element("span", { class: "control range", role: "group", "aria-label": "Range" }, element("span", { text: "Clip to" }), this.low, "\u2013", this.high, this.reset),
      labelled("Colours", select(Object.keys(COLOUR_MAPS).map((name) => [name, name]), "Viridis", (value) => page.set({ colours: value }), { id: "colours" })),
      labelled("Axes", select([["equal", "To scale"], ["fill", "Filling"]], page.settings.aspect, (value) => page.set({ aspect: value }), { id: "aspect", title: "To scale: distances in weight space. Filling: the plane's coordinates fill a square." })),
      labelled("Map", select([["contour", "Contours"], ["cells", "Cells"]], "contour", (value) => page.set({ map: value }), { id: "map" })),
    );
    this.several();
    this.showMetrics();
  }

  showMetrics() {
    const names = [...new Set(this.page.landscapes.flatMap((landscape) => Object.keys(landscape.metrics)))];
    const text = (name) => (name === "loss_error" ? "loss_error (estimated error of interpolation)" : name.endsWith("_stderr") ? `${name} (standard error)` : name);
    if (String(names) === String(this.names)) return;
    this.names = names;
    this.metric.replaceChildren(labelled("Metric", select(names.map((name) => [name, text(name)]), this.page.settings.metric, (value) => this.page.set({ metric: value, low: null, high: null }), { id: "metric" })));
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

  setRange(low, high) {
    this.low.value = low ?? "";
    this.high.value = high ?? "";
    this.high.setCustomValidity("");
    this.page.set({ low, high });
  }

  several() {
    const { landscapes, settings } = this.page;
    if (landscapes.length < 2) return;
    const shared = element("input", { type: "checkbox", id: "shared", checked: settings.shared, on: { change: () => this.page.set({ shared: shared.checked }) } });
    this.box.append(labelled("One scale for all", shared));
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Landscapes shown" }, ...landscapes.map((landscape, index) =>
      element("button", {
        type: "button", class: "chip", "aria-pressed": String(this.page.shown.has(index)), text: landscape.name,
        on: { click: (event) => event.currentTarget.setAttribute("aria-pressed", String(this.page.toggle(index))) },
      })));
    this.box.append(this.chips, this.difference());
  }

  difference() {
    const { landscapes } = this.page;
    const pairs = landscapes.flatMap((first, one) => landscapes.flatMap((second, two) =>
      (this.page.differenceScales(one, two) ? [[`${one} ${two}`, `${first.name} \u2212 ${second.name}`]] : [])));
    if (!pairs.length) return element("span", { class: "control muted", text: "No two landscapes lie on the same grid, so there is no difference to show." });
    return labelled("Difference", select([["", "none"], ...pairs], "", (value) => this.page.showDifference(value ? value.split(" ").map(Number) : null), { id: "difference" }));
  }
}

// Light or dark as the system says, until the reader chooses.
class Theme {
  constructor(changed) {
    this.changed = changed;
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", () => this.apply());
    this.chosen = null;
    this.button = button("", "", () => {
      this.chosen = this.dark ? "light" : "dark";
      this.apply();
    }, { class: "theme" });
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
