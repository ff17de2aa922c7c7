// The page as a whole.

const MOST_SHOWN = 6; // browsers draw only so many three-dimensional scenes at once

class Page {
  constructor(content) {
    this.settings = { metric: "loss", scale: "auto", low: null, high: null, colours: "Viridis", map: "contour", aspect: content.aspect, shared: content.landscapes.length > 1 };
    this.differences = content.differences;
    this.webgl = hasWebGL();
    this.tooltip = new Tooltip();
    this.landscapes = content.landscapes.map((item) => new Landscape(item));
    this.shown = new Set(this.landscapes.keys().take?.(4) ?? [...this.landscapes.keys()].slice(0, 4));
    this.cards = new Map();
    this.main = document.querySelector("main");
    this.theme = new Theme(() => this.render());
    this.toolbar = new Toolbar(this);
    const header = document.querySelector("body > header");
    header.append(this.theme.button);
    header.after(this.toolbar.box);
    if (content.live) header.after(new Live(this, content.live).box);
    this.showCards();
  }

  set(changes) {
    Object.assign(this.settings, changes);
    if ("metric" in changes) this.toolbar.setRange(null, null);
    else this.render();
  }

  render() {
    for (const card of this.cards?.values() ?? []) card.render();
  }

  // The scales of a difference by metric; nothing where the two do not lie on the same grid.
  differenceScales(one, two) {
    return this.differences[`${Math.min(one, two)} ${Math.max(one, two)}`];
  }

  // A card's own scale, or one that all cards of measured values share.
  scaleOf(card) {
    const together = [...this.cards.values()].map((other) => other.landscape).filter((landscape) => !landscape.isDifference);
    const alone = card.landscape.isDifference || !this.settings.shared;
    const settings = card.landscape.isDifference ? { ...this.settings, low: null, high: null } : this.settings;
    return scaleFor(alone ? [card.landscape] : together, card.metric, settings);
  }

  showCards() {
    for (const [key, card] of this.cards) {
      if (key === "difference" || this.shown.has(key)) continue;
      card.close();
      this.cards.delete(key);
    }
    for (const index of [...this.shown].sort((one, two) => one - two)) {
      if (!this.cards.has(index)) this.add(index, this.landscapes[index]);
    }
    this.main.append(...[...this.cards.keys()].filter((key) => key !== "difference").sort((one, two) => one - two).map((key) => this.cards.get(key).section));
    this.main.classList.toggle("waiting", this.cards.size === 0);
    this.render();
  }

  add(key, landscape) {
    const card = new Card(landscape, this);
    this.cards.set(key, card);
    if (key === "difference") this.main.prepend(card.section);
    else this.main.append(card.section);
  }

  // Returns whether the landscape is shown now.
  toggle(index) {
    if (this.shown.has(index)) this.shown.delete(index);
    else if (this.shown.size < MOST_SHOWN) this.shown.add(index);
    else return false;
    this.showCards();
    return this.shown.has(index);
  }

  showDifference(pair) {
    this.cards.get("difference")?.close();
    this.cards.delete("difference");
    if (pair) this.add("difference", new Difference(this.landscapes[pair[0]], this.landscapes[pair[1]], this.differenceScales(...pair)));
    this.render();
  }

  update(landscapes) {
    this.landscapes = landscapes;
    this.toolbar.showMetrics();
    for (const [index, landscape] of landscapes.entries()) {
      this.shown.add(index);
      const card = this.cards.get(index);
      if (card && card.landscape.isLine !== landscape.isLine) {
        card.close();
        this.cards.delete(index);
      } else card?.setLandscape(landscape);
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
