// The page as a whole.

const MOST_SHOWN = 6; // browsers draw only so many three-dimensional scenes at once

class Page {
  constructor(content) {
    const { aspect, camera, cameras, differences, colours, diverging } = content;
    Object.assign(this, { aspect, camera, cameras, differences, colours, diverging });
    this.webgl = hasWebGL();
    this.tooltip = new Tooltip();
    followScreen(this.tooltip);
    document.documentElement.classList.toggle("embedded", EMBEDDED);
    this.landscapes = content.landscapes.map(readLandscape);
    // One object, which cards and comparison have too.
    this.settings = this.usual;
    this.shown = this.usuallyShown;
    this.cards = new Map();
    this.main = document.querySelector("main");
    this.comparison = new Comparison(this);
    this.theme = new Theme(() => {
      this.render();
      this.changed();
    });
    // One place for what is said to those who listen to the page, and not shown.
    this.spoken = element("p", { class: "spoken", role: "status" });
    this.link = new Link(this, { live: Boolean(content.live) });
    const header = document.querySelector("body > header");
    header.append(element("div", { class: "tools" }, screenButton(document.documentElement, "The page on the whole screen"), this.theme.button), this.spoken);
    this.toolbar = null;
    this.begin();
    header.after(this.toolbar.box);
    if (content.live) header.after(new Live(this, content.live).box);
    addEventListener("hashchange", () => this.begin());
  }

  // The settings of a page that nobody has touched.
  get usual() {
    return {
      metric: "loss", beside: "", difference: "", scale: "auto", low: null, high: null, colours: "Viridis", map: "contour", aspect: this.aspect, camera: this.camera,
      shared: true, layout: "side", locked: true, linked: true, players: true, overlay: true,
    };
  }

  get usuallyShown() {
    return new Set([...this.landscapes.keys()].slice(0, 4));
  }

  // Shows what the address asks for, or the usual.
  begin() {
    const kept = this.link.read();
    for (const card of this.cards.values()) card.close();
    this.cards.clear();
    Object.assign(this.settings, this.usual, kept.settings);
    this.shown = kept.shown ? new Set(kept.shown) : this.usuallyShown;
    if (kept.theme) this.theme.choose(kept.theme);
    this.renewToolbar();
    this.showCards(kept.cards);
    for (const card of this.cards.values()) if (card.selected) card.select(card.selected);
  }

  renewToolbar() {
    const before = this.toolbar;
    this.toolbar = new Toolbar(this);
    before?.box.replaceWith(this.toolbar.box);
  }

  set(changes) {
    Object.assign(this.settings, changes);
    // The ends of a range are values of the metric.
    if ("metric" in changes) this.toolbar.showRange(null, null);
    if ("metric" in changes || "beside" in changes || "difference" in changes) {
      if ("difference" in changes) this.drop("difference");
      this.showCards();
    } else {
      this.comparison.arrange();
      this.render();
    }
    if (changes.locked) this.comparison.turned(this.comparison.cards.find((card) => card.turnable));
    if (changes.players) this.comparison.gather();
    if (changes.linked === false) for (const card of this.cards.values()) card.showLinked(null);
    this.changed();
  }

  // What others could link to is no longer what it was.
  changed() {
    this.link?.changed();
  }

  render() {
    for (const each of [...this.cards.values(), ...this.comparison.overlays]) each.render();
  }

  // What a difference of two landscapes has beside its values; nothing where they do not lie on the same grid.
  differenceBetween(one, two) {
    return this.differences[`${Math.min(one, two)} ${Math.max(one, two)}`];
  }

  // A card's own scale, or one that all cards share that show the same quantity.
  scaleOf(card) {
    const { isDifference } = card.landscape;
    const together = this.comparison.cards.filter((other) => !other.landscape.isDifference && other.quantity === card.quantity);
    const alone = isDifference || !this.settings.shared;
    const main = !isDifference && card.landscape.quantity(this.settings.metric) === card.quantity;
    // The ends that the reader gave are values of the first metric.
    const settings = main ? this.settings : { ...this.settings, low: null, high: null };
    return scaleFor((alone ? [card] : together).map((other) => [other.landscape, other.metric]), settings);
  }

  // Whether several cards of measured values share a scale.
  get comparing() {
    return this.settings.shared && [...this.cards.keys()].filter((key) => key !== "difference").length > 1;
  }

  // Whether any landscape shows a second metric.
  get besideShown() {
    return this.comparison.cards.some((card) => card.beside);
  }

  // The keys of the cards that there should be, in their order: a landscape's number, and with "b" its second metric.
  get wanted() {
    const { metric, beside, difference } = this.settings;
    const second = (index) => beside && beside !== metric && beside in this.landscapes[index].metrics;
    const shown = [...this.shown].sort((one, two) => one - two);
    return [...(difference ? ["difference"] : []), ...shown.flatMap((index) => (second(index) ? [`${index}`, `${index}b`] : [`${index}`]))];
  }

  showCards(kept = {}) {
    const { wanted } = this;
    for (const key of this.cards.keys()) if (!wanted.includes(key)) this.drop(key);
    for (const key of wanted) {
      if (this.cards.has(key)) continue;
      const landscape = key === "difference" ? this.makeDifference() : this.landscapes[parseInt(key, 10)];
      const card = new Card(landscape, this, key.endsWith("b"));
      if (kept[key]) card.restore(kept[key]);
      this.cards.set(key, card);
    }
    // What depends on the order, such as the colours of curves, is the same however the reader came here.
    this.cards = new Map(wanted.map((key) => [key, this.cards.get(key)]));
    this.main.append(...wanted.map((key) => this.cards.get(key).section));
    this.main.classList.toggle("waiting", this.cards.size === 0);
    this.toolbar.showFitting();
    this.comparison.arrange();
    this.render();
  }

  drop(key) {
    this.cards.get(key)?.close();
    this.cards.delete(key);
  }

  // Returns whether the landscape is shown now.
  toggle(index) {
    if (this.shown.has(index)) this.shown.delete(index);
    else if (this.shown.size < MOST_SHOWN) this.shown.add(index);
    else return false;
    this.showCards();
    this.changed();
    return this.shown.has(index);
  }

  // "0 1" are two landscapes; "0 m2" are two metrics of one, "0 r2" the other way round.
  makeDifference() {
    const [one, two] = this.settings.difference.split(" ");
    const first = this.landscapes[one];
    if (!/^[mr]/.test(two)) return differenceOf(first, this.landscapes[two], this.differenceBetween(one, two));
    const found = first.metric_differences[two.slice(1)];
    const metrics = two[0] === "m" ? found.metrics : [...found.metrics].reverse();
    return differenceOf(first, first, { ...found, metrics });
  }

  update(landscapes) {
    this.landscapes = landscapes;
    // The page may have been opened before there was a file, or the file may hold another landscape now.
    document.title = document.querySelector("h1").textContent = landscapes[0].title;
    for (const index of landscapes.keys()) this.shown.add(index);
    if (!this.toolbar.fits) {
      // What the file no longer has cannot be chosen any more.
      for (const name of ["metric", "beside"]) if (!this.toolbar.measured.includes(this.settings[name])) this.settings[name] = this.usual[name];
      this.renewToolbar();
    }
    if (!this.link.isDifference(this.settings.difference)) this.settings.difference = "";
    for (const [key, card] of this.cards) {
      const landscape = key !== "difference" ? this.landscapes[parseInt(key, 10)] : this.settings.difference && this.makeDifference();
      if (!landscape || card.landscape.isLine !== landscape.isLine) this.drop(key);
      else card.setLandscape(landscape);
    }
    this.showCards();
  }
}

// Plotly's script is either a file of its own, which has run by now, or lies packed in the page.
async function unpack() {
  const packed = document.getElementById("packed");
  if (!packed) return;
  const stream = new Blob([bytes(packed.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = element("script");
  script.textContent = await new Response(stream).text();
  packed.remove();
  document.head.append(script);
}

unpack().then(() => new Page(parsed(document.getElementById("content").textContent)));
