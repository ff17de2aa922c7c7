// Plays the path of the checkpoints: a button, a slider, and what is known about the checkpoint that it stands at.

const WALK_MILLISECONDS = 8000;

class Player {
  // `moved` hears of every step, `led` of those that the reader takes.
  constructor(landscape, moved, led) {
    Object.assign(this, { moved, led, timer: null });
    this.button = button("\u25b6", "Play the path", () => this.toggle(), { class: "play" });
    this.slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Checkpoint", on: { input: () => this.lead(Number(this.slider.value)) } });
    this.label = element("output.step");
    this.facts = element("div.facts");
    this.box = element("div.player", {}, this.button, this.slider, this.label, this.facts);
    this.setLandscape(landscape);
  }

  get last() {
    return this.landscape.steps.length - 1;
  }

  setLandscape(landscape) {
    const before = this.landscape;
    this.landscape = landscape;
    this.box.hidden = !landscape.walked.length;
    if (this.box.hidden) return;
    Object.assign(this.slider, { max: this.last, disabled: this.last === 0 });
    this.go(before?.steps.length === landscape.steps.length ? this.step : this.last);
  }

  // Goes to a step, and other players with it.
  lead(step) {
    this.label.ariaLive = "polite";
    this.go(step);
    this.led();
  }

  // Goes where another player stands: to the last checkpoint that is not beyond that number, or waits at the first.
  follow(number) {
    this.stop();
    // What the reader moves is spoken once.
    this.label.ariaLive = "off";
    const step = Math.max(this.landscape.steps.findLastIndex((own) => own <= number), 0);
    if (step !== this.step) this.go(step);
  }

  go(step) {
    this.step = step;
    this.slider.value = step;
    const { landscape } = this;
    const rows = landscape.come(step).map((past) => past.at(-1));
    const several = rows.length > 1;
    const text = several ? `${landscape.unit} ${landscape.steps[step]}` : landscape.checkpoints.labels[rows[0]];
    this.label.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    fillFacts(this.facts, several ? rows.map((row, run) => runFacts(landscape, run, row)) : checkpointFacts(landscape, rows[0]).slice(1));
    this.moved(step);
  }

  toggle() {
    if (this.timer !== null) return this.stop();
    // Where others play, this one takes over.
    this.lead(this.step === this.last ? 0 : this.step);
    this.timer = setInterval(() => {
      if (this.step < this.last) this.lead(this.step + 1);
      if (this.step >= this.last) this.stop();
    }, clamp(WALK_MILLISECONDS / (this.last + 1), 40, 500));
    return relabel(this.button, "\u275a\u275a", "Pause");
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    relabel(this.button, "\u25b6", "Play the path");
  }
}
