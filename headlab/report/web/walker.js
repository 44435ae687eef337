// A slider with a button that walks through frames; `show(at)` draws one and returns what to say of it.

class Walker {
  constructor(label, pause, show) {
    Object.assign(this, { pause, show, timer: null });
    this.name = make("span", { class: "soft", role: "status" });
    this.slider = make("input", { type: "range", min: "0", value: "0", "aria-label": label, oninput: () => this.draw() });
    this.play = make("button", { type: "button", class: "small", text: "Play", "aria-pressed": "false", onclick: () => (this.timer ? this.stop() : this.start()) });
    this.parts = [this.play, this.slider, this.name];
  }

  // So many frames from now on; the place is kept where there is one.
  reset(count) {
    this.count = count;
    this.slider.max = String(count - 1);
    this.draw();
  }

  draw() {
    this.name.textContent = this.show(Number(this.slider.value));
  }

  start() {
    this.timer = setInterval(() => { this.slider.value = String((Number(this.slider.value) + 1) % this.count); this.draw(); }, this.pause);
    this.mark();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.mark();
  }

  mark() {
    this.play.textContent = this.timer ? "Stop" : "Play";
    this.play.setAttribute("aria-pressed", String(Boolean(this.timer)));
  }
}
