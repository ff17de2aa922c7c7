// The page as a whole.

const MOST_SHOWN = 6; // browsers draw only so many three-dimensional scenes at once

class Page {
  constructor(content) {
    Object.assign(this, content, { landscapes: content.landscapes.map(readLandscape), webgl: hasWebGL() });
    this.tooltip = new Tooltip();
    followScreen(this.tooltip);
    document.documentElement.classList.toggle("embedded", EMBEDDED);
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
    this.spoken = element("p.spoken", { role: "status" });
    this.link = new Link(this, { live: Boolean(this.live) });
    const header = document.querySelector("body > header");
    header.append(element("div.tools", {}, screenButton(document.documentElement, "The page on the whole screen"), this.theme.button), this.spoken);
    this.begin();
    header.after(this.toolbar.box);
    if (this.live) header.after(new Live(this, this.live).box);
    addEventListener("hashchange", () => this.begin());
  }

  // The settings of a page that nobody has touched.
  get usual() {
    return {
      metric: "loss", beside: "", difference: "", scale: "auto", low: null, high: null, colours: "Viridis", map: "contour",
      aspect: this.aspect, camera: this.camera, shared: true, layout: "side", locked: true, linked: true, players: true, overlay: true,
    };
  }

  get usuallyShown() {
    return new Set([...this.landscapes.keys()].slice(0, 4));
  }

  // Shows what the address asks for, or the usual.
  begin() {
    const kept = this.link.read();
    for (const key of this.cards.keys()) this.drop(key);
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
    // The ends of a range are values of the metric.
    Object.assign(this.settings, changes, "metric" in changes ? { low: null, high: null } : {});
    if ("metric" in changes || changes.low === null) this.toolbar.showRange(this.settings);
    if ("difference" in changes) this.drop("difference");
    if (["metric", "beside", "difference"].some((name) => name in changes)) this.showCards();
    else this.arrange();
    if (changes.locked) this.comparison.turned(this.comparison.cards.find((card) => card.turnable));
    if (changes.players) this.comparison.gather();
    if (changes.linked === false) for (const card of this.cards.values()) card.showLinked(null);
    this.changed();
  }

  arrange() {
    this.comparison.arrange();
    this.render();
  }

  // What others could link to is no longer what it was.
  changed() {
    this.link?.changed();
  }

  render() {
    for (const each of [...this.cards.values(), ...this.comparison.overlays]) each.render();
  }

  get measured() {
    return [...new Set(this.landscapes.flatMap((landscape) => Object.keys(landscape.metrics)))];
  }

  // The differences that can be shown: "0 1" of two landscapes on one grid; "0 m2" of two metrics, "0 r2" the other way round.
  get offered() {
    const { landscapes, differences } = this;
    const offer = (key, text, ...made) => [key, { text, make: () => differenceOf(...made) }];
    const pairs = landscapes.flatMap((first, one) => landscapes.flatMap((second, two) => {
      const about = differences[`${Math.min(one, two)} ${Math.max(one, two)}`];
      const way = Number(one > two);
      return about ? [offer(`${one} ${two}`, `${first.name} \u2212 ${second.name}`, first, second, { ...about, used: about.used[way] })] : [];
    }));
    const metrics = landscapes.flatMap((own, index) => own.metric_differences.flatMap((about, at) =>
      [about.metrics, about.metrics.toReversed()].map((metrics, way) => {
        const text = (landscapes.length > 1 ? `${own.name}: ` : "") + metrics.map((name) => own.text(name)).join(" \u2212 ");
        return offer(`${index} ${"mr"[way]}${at}`, text, own, own, { ...about, metrics, used: about.used[way] });
      })));
    return mapping([...pairs, ...metrics]);
  }

  // A card's own scale, or one that all cards share that show the same quantity.
  scaleOf(card) {
    const { isDifference } = card.landscape;
    const together = this.comparison.cards.filter((other) => !other.landscape.isDifference && other.quantity === card.quantity);
    const alone = isDifference || !this.settings.shared;
    const main = !isDifference && card.landscape.quantity(this.settings.metric) === card.quantity;
    // The ends that the reader gave are values of the first metric.
    const settings = main ? this.settings : { ...this.settings, low: null, high: null };
    return scaleFor(alone ? [card] : together, settings);
  }

  // Whether several cards of measured values share a scale.
  get comparing() {
    return this.settings.shared && [...this.cards.keys()].filter((key) => key !== "difference").length > 1;
  }

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

  landscapeOf(key) {
    return key === "difference" ? this.offered[this.settings.difference]?.make() : this.landscapes[parseInt(key, 10)];
  }

  showCards(kept = {}) {
    const { wanted } = this;
    for (const key of this.cards.keys()) if (!wanted.includes(key)) this.drop(key);
    for (const key of wanted) {
      if (this.cards.has(key)) continue;
      const card = new Card(this.landscapeOf(key), this, key.endsWith("b"));
      if (kept[key]) card.restore(kept[key]);
      this.cards.set(key, card);
    }
    // What depends on the order, such as the colours of curves, is the same however the reader came here.
    this.cards = new Map(wanted.map((key) => [key, this.cards.get(key)]));
    this.main.append(...wanted.map((key) => this.cards.get(key).section));
    this.main.classList.toggle("waiting", this.cards.size === 0);
    this.toolbar.showFitting();
    this.arrange();
  }

  drop(key) {
    this.cards.get(key)?.close();
    this.cards.delete(key);
  }

  // Returns whether the landscape is shown now.
  toggle(index) {
    if (!this.shown.delete(index) && this.shown.size < MOST_SHOWN) this.shown.add(index);
    this.showCards();
    this.changed();
    return this.shown.has(index);
  }

  update(landscapes) {
    this.landscapes = landscapes;
    // The page may have been opened before there was a file, or the file may hold another landscape now.
    document.title = document.querySelector("h1").textContent = landscapes[0].title;
    for (const index of landscapes.keys()) this.shown.add(index);
    if (String(this.toolbar.measured) !== String(this.measured)) {
      // What the file no longer has cannot be chosen any more.
      for (const name of ["metric", "beside"]) if (!this.measured.includes(this.settings[name])) this.settings[name] = this.usual[name];
      this.renewToolbar();
    }
    if (!(this.settings.difference in this.offered)) this.settings.difference = "";
    for (const [key, card] of this.cards) {
      const landscape = this.landscapeOf(key);
      if (!landscape || card.landscape.isLine !== landscape.isLine) this.drop(key);
      else card.setLandscape(landscape);
    }
    this.showCards();
  }
}

// Follows a run that is still writing: asks how far it is, and fetches data only when there are new ones.

const POLL_MILLISECONDS = 1000;

class Live {
  constructor(page, start) {
    this.page = page;
    this.version = start.version;
    this.bar = element("progress", { max: 1, value: 0, "aria-label": "Progress" });
    this.text = element("output", { "aria-live": "polite" });
    this.box = element("div.live", { role: "region", "aria-label": "Progress" }, this.bar, this.text);
    this.show(start);
    this.poll();
  }

  show(state) {
    this.text.textContent = state.text;
    Object.assign(this.bar, { hidden: state.total === 0, max: Math.max(state.total, 1), value: state.done });
    this.box.dataset.phase = state.phase;
  }

  async poll() {
    try {
      const answer = await fetch(`progress?after=${encodeURIComponent(this.version)}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const state = parsed(await answer.text());
      this.show(state);
      if (state.reload) location.reload();
      if (state.content) this.page.update([readLandscape(state.content)]);
      this.version = state.version;
    } catch (error) {
      this.text.textContent = "`landscape plot --watch` no longer answers; the page shows the last data that it sent.";
      this.box.dataset.phase = "lost";
    }
    setTimeout(() => this.poll(), POLL_MILLISECONDS);
  }
}

// Plotly's script is either a file of its own, which has run by now, or lies packed in the page.
async function unpack() {
  const packed = document.getElementById("packed");
  if (!packed) return;
  const stream = new Blob([bytes(packed.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = element("script", { text: await new Response(stream).text() });
  packed.remove();
  document.head.append(script);
}

unpack().then(() => new Page(parsed(document.getElementById("content").textContent)));
