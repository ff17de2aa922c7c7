// Several cards beside each other: cameras that turn together, a cursor at the same coordinates in all,
// players at the same epoch, profiles on one axis.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

class Comparison {
  constructor(page) {
    Object.assign(this, { page, settings: page.settings });
    this.overlays = [new Overlay(this, false), new Overlay(this, true)];
    this.followCamera = newestOnly((card) => this.turnOthers(card));
  }

  get cards() {
    return [...this.page.cards.values()];
  }

  get several() {
    return this.page.cards.size > 1;
  }

  get side() {
    return this.several && this.settings.layout === "side";
  }

  // Before the cards are drawn, so that their plots have the right size.
  arrange() {
    const { main } = this.page;
    main.classList.toggle("side", this.side);
    // Five or six stand in two rows of three.
    main.style.setProperty("--columns", this.cards.length > 4 ? Math.ceil(this.cards.length / 2) : this.cards.length);
    for (const card of this.cards) {
      // The colour and stroke of the card's curve among others.
      card.key.replaceChildren(...(this.overlaid(card) ? [curveKey(this.style(card))] : []));
      // Beside others, the long table waits until it is asked for.
      if (card.asideBefore !== this.side) card.about.open = !this.side;
      card.asideBefore = this.side;
    }
    for (const overlay of this.overlays) overlay.arrange();
  }

  get locked() {
    return this.several && this.settings.locked;
  }

  // The card that another one follows when it is drawn: the first that is drawn with the chosen camera, or nobody.
  leader(card) {
    const first = this.cards.find((other) => other.turnable && other.camera?.chosen === this.settings.camera);
    return this.locked && first !== card ? first : null;
  }

  turned(card) {
    if (this.locked && card?.turnable && !card.following) this.followCamera(card);
  }

  turnOthers(card) {
    return Promise.all(this.cards.filter((other) => other !== card && other.turnable).map((other) => {
      const camera = lookingLike(card.seen, card.usualCamera, other.usualCamera);
      // A plot also reports where its camera stands when only its size has changed.
      return areFar(camera, other.seen, 1e-6) && other.turn(camera);
    }));
  }

  // Whether the address names a card's camera: of cameras that turn together, one says where all stand.
  namesCamera(card) {
    return !this.locked || card === this.cards.find((other) => other.turnable);
  }

  get linked() {
    return this.several && this.settings.linked;
  }

  // Marks a place of one card in all others of its kind; null takes the marks away.
  point(card, place, { keep = false } = {}) {
    const others = this.linked ? this.cards.filter((other) => other !== card && other.landscape.isLine === card.landscape.isLine) : [];
    for (const other of others) other.showLinked(place, keep);
  }

  // The other cards whose checkpoints are counted as a card's are, such as in epochs.
  companions(card) {
    const walking = this.cards.filter(({ landscape }) => landscape.walked.length && landscape.unit === card.landscape.unit);
    return walking.includes(card) ? walking.filter((other) => other !== card) : [];
  }

  get walkable() {
    return this.cards.some((card) => this.companions(card).length > 0);
  }

  // Takes the players of all to the number of the checkpoint where a card's stands. Runs differ in their length, so that a
  // share of the path would show different times as one.
  walk(card) {
    for (const other of this.settings.players ? this.companions(card) : []) other.player.follow(card.landscape.steps[card.player.step]);
  }

  // Where nobody walks, each path is shown to its own end.
  gather() {
    const walking = this.cards.find(({ landscape, player }) => landscape.walked.length && player.step !== player.last);
    if (walking) this.walk(walking);
  }

  // The cards of planes, or of lines, whose curves stand on one axis: those that show the same quantity.
  together(isLine) {
    if (!this.settings.overlay) return [];
    const cards = this.cards.filter(({ landscape }) => landscape.isLine === isLine && !landscape.isDifference);
    const found = cards.filter(({ quantity }) => quantity === cards[0].quantity);
    return found.length > 1 ? found : [];
  }

  overlaid(card) {
    return this.together(card.landscape.isLine).includes(card);
  }

  style(card) {
    const place = this.cards.filter(({ landscape }) => !landscape.isDifference).indexOf(card);
    const round = Math.floor(place / 6);
    return { colour: colour(`curve-${(place % 6) + 1}`), dash: DASHES[(place + round) % DASHES.length] };
  }

  // The planes whose profiles stand on one axis.
  get planes() {
    return this.together(false).map(({ landscape }) => landscape);
  }

  // Usually one line for all of them, so that the same place is at the same coordinates.
  setLines(lineOf) {
    for (const card of this.together(false)) card.moveLine(lineOf(card));
    this.overlays[0].render();
  }
}

// A camera that shows one scene as another shows its own: from the same side, and moved as far from what is usual there.
function lookingLike(camera, usual, ownUsual) {
  const away = (list) => Math.hypot(...[0, 1, 2].map((at) => list[at] - list[at + 3]));
  const zoom = away(ownUsual) / away(usual);
  const center = [3, 4, 5].map((at) => ownUsual[at] + camera[at] - usual[at]);
  const eye = [0, 1, 2].map((at) => center[at] + zoom * (camera[at] - camera[at + 3]));
  return [...eye, ...center, ...camera.slice(6)];
}
