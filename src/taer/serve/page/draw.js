// A sheet of white paper: pointer, touch, or arrow keys with Space for the pen.

const STEP = 8;

export class Sheet {
  constructor(canvas, onChange) {
    this.canvas = canvas;
    this.onChange = onChange;
    this.paper = canvas.getContext("2d", { willReadFrequently: true });
    this.pen = null; // where the keyboard's pen is
    this.penDown = false;
    this.clear();
    canvas.addEventListener("pointerdown", (event) => this.start(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.end());
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.liftPen());
  }

  clear() {
    this.paper.fillStyle = "#fff";
    this.paper.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.empty = true;
    this.ink = null;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  start(event) {
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.last = this.at(event);
    this.line(this.last);
  }

  move(event) {
    if (!this.last) return;
    for (const part of event.getCoalescedEvents?.() ?? [event]) this.line(this.at(part));
  }

  end() {
    if (!this.last) return;
    this.last = null;
    this.onChange();
  }

  line(to) {
    const [x, y] = this.last ?? to;
    Object.assign(this.paper, { lineWidth: 12, lineCap: "round", lineJoin: "round", strokeStyle: "#000" });
    this.paper.beginPath();
    this.paper.moveTo(x, y);
    this.paper.lineTo(...to);
    this.paper.stroke();
    if (this.last) this.last = to;
    this.empty = false;
  }

  key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const middle = [this.canvas.width / 2, this.canvas.height / 2];
    if (event.key in ways) {
      const from = this.pen ?? middle;
      const to = from.map((value, i) => Math.min(this.canvas.width, Math.max(0, value + STEP * ways[event.key][i])));
      this.hidePen();
      if (this.penDown) {
        this.last = from;
        this.line(to);
        this.last = null;
      }
      this.pen = to;
      this.showPen();
    } else if (event.key === " ") {
      this.pen ??= middle;
      this.hidePen();
      if (this.penDown) this.onChange();
      else this.line(this.pen);
      this.penDown = !this.penDown;
      this.showPen();
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.liftPen();
      this.clear();
      this.onChange();
    } else {
      return;
    }
    event.preventDefault();
  }

  // The keyboard's pen is drawn over the paper and taken away before anything is read from it.
  showPen() {
    const [x, y] = this.pen;
    this.ink = this.paper.getImageData(0, 0, this.canvas.width, this.canvas.height);
    Object.assign(this.paper, { lineWidth: 2, strokeStyle: this.penDown ? "#c43e28" : "#1f5fcc" });
    this.paper.beginPath();
    this.paper.arc(x, y, 9, 0, 2 * Math.PI);
    this.paper.stroke();
  }

  hidePen() {
    if (this.ink) this.paper.putImageData(this.ink, 0, 0);
    this.ink = null;
  }

  liftPen() {
    this.hidePen();
    this.pen = null;
    const wasDown = this.penDown;
    this.penDown = false;
    if (wasDown) this.onChange();
  }

  toBase64() {
    const over = this.pen;
    this.hidePen();
    const data = this.canvas.toDataURL("image/png").split(",")[1];
    if (over) this.showPen();
    return data;
  }
}
