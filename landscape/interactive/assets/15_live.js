// Follows a run that is still writing: asks how far it is, and fetches data only when there are new ones.

const POLL_MILLISECONDS = 1000;

class Live {
  constructor(page, start) {
    this.page = page;
    this.version = start.version;
    this.bar = element("progress", { max: 1, value: 0, "aria-label": "Progress" });
    this.text = element("output", { "aria-live": "polite" });
    this.box = element("div", { class: "live", role: "region", "aria-label": "Progress" }, this.bar, this.text);
    this.show(start);
    this.poll();
  }

  show(state) {
    this.text.textContent = state.text;
    this.bar.hidden = state.total === 0;
    this.bar.max = Math.max(state.total, 1);
    this.bar.value = state.done;
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
