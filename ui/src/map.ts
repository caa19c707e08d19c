// The map: layered canvases on the east-north plane, metres to pixels, north up.
//
// Rules this file keeps: what rarely changes (assets and cells, objects) is painted on a bitmap larger than the window
// and copied; at most one bitmap is painted anew in a frame; a frame is drawn only when something moved.

import type { Cell, Position, Site, Thing } from "./api";
import { HEARD, type World, duration } from "./world";

export interface Layers { assets: boolean; cells: boolean; links: boolean; trails: boolean; objects: boolean; names: boolean }
export interface Pick { kind: "object" | "member"; id: string }
export interface Shown { world: World; site: Site; nowS: number; layers: Layers; chosen: Pick | null }

/** A bitmap is so much larger than the window on each side, as a share of it. */
const MARGIN = 0.25;
/** Pixels around the pointer in which something is meant. */
const NEAR_PX = 14;
/** Pixels of a square of the window that one name may lie on. */
const NAME_CELL = 12;
/** Seconds after which the place of a drone is old. */
const OLD_S = 15;
const [ZOOM_MIN, ZOOM_MAX] = [0.005, 400];

/** Colours of the style sheet, read once per theme. */
interface Palette { ground: string; asset: string; edge: string; text: string; dim: string; drone: string; bad: string; open: string; claimed: string; done: string; candidate: string; confirmed: string; ring: string; halo: string }

interface Name { text: string; x: number; y: number; isLost: boolean }
interface Box { text: string; left: number; top: number; wide: number }

interface Bitmap { canvas: OffscreenCanvas; context: OffscreenCanvasRenderingContext2D; key: string; east: number; north: number; scale: number; width: number; height: number }

export class SwarmMap {
  /** Centre of the window, metres, and pixels a metre. */
  private east = 0;
  private north = 0;
  private scale = 4;
  private isFitted = false;
  private isTouched = false;
  private width = 1;
  private height = 1;
  private ratio = 1;
  private context: CanvasRenderingContext2D;
  private palette: Palette;
  private ground: Bitmap;
  private objects: Bitmap;
  private asked = 0;
  private themeNumber = 0;
  /** How long drawing took, milliseconds, how many frames were drawn, and bitmaps painted for them: what the bench reads. */
  spent = { ms: 0, frames: 0, bitmaps: 0 };
  /** Where the last frame wrote whose name: what a test reads. */
  named: Box[] = [];

  constructor(private canvas: HTMLCanvasElement, private shown: () => Shown | null, private onPick: (pick: Pick | null) => void) {
    this.context = canvas.getContext("2d", { alpha: false, willReadFrequently: true }) as CanvasRenderingContext2D;
    this.palette = this.readPalette();
    [this.ground, this.objects] = [bitmap(), bitmap()];
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle());
    canvas.addEventListener("pointerdown", (event) => this.drag(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.resize();
  }

  /** Draw at the next frame. */
  ask(): void {
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      const before = performance.now();
      this.draw();
      this.spent.ms += performance.now() - before;
      this.spent.frames++;
    });
  }

  /** Draw now and wait until the pixels are there: what the bench measures. */
  paint(): void {
    this.draw();
    this.context.getImageData(0, 0, 1, 1);
  }

  /** Show everything that has a place. */
  fit(): void {
    const shown = this.shown();
    if (!shown) return;
    let [west, east, south, north] = [Infinity, -Infinity, Infinity, -Infinity];
    const take = (x: number | null, y: number | null, dx = 0, dy = 0) => {
      if (x === null || y === null) return;
      [west, east] = [Math.min(west, x - dx), Math.max(east, x + dx)];
      [south, north] = [Math.min(south, y - dy), Math.max(north, y + dy)];
    };
    for (const one of shown.site.assets) take(one.east_m, one.north_m, one.width_m / 2, one.depth_m / 2);
    for (const one of shown.world.cell.values()) take(one.east_m, one.north_m, 5, 5);
    for (const one of shown.world.position.values()) take(one.east_m, one.north_m);
    for (const one of shown.world.object.values()) take(one.east_m, one.north_m);
    if (west > east) return;
    [this.east, this.north] = [(west + east) / 2, (south + north) / 2];
    const [wide, high] = [Math.max(east - west, 20), Math.max(north - south, 20)];
    this.scale = clamp(Math.min((this.width - 110) / wide, (this.height - 170) / high), ZOOM_MIN, ZOOM_MAX);
    this.isFitted = true;
    this.ask();
  }

  /** Move the window to something. */
  centre(east: number | null, north: number | null): void {
    if (east === null || north === null) return;
    const [x, y] = this.toScreen(east, north);
    if (x > 60 && x < this.width - 60 && y > 60 && y < this.height - 60) return;
    [this.east, this.north] = [east, north];
    this.isTouched = true;
    this.ask();
  }

  /** Move the window by pixels. */
  pan(dx: number, dy: number): void {
    this.east -= dx / this.scale;
    this.north += dy / this.scale;
    this.isTouched = true;
    this.ask();
  }

  /** Zoom about a point of the window. */
  zoom(factor: number, x = this.width / 2, y = this.height / 2): void {
    const [east, north] = this.toGround(x, y);
    this.scale = clamp(this.scale * factor, ZOOM_MIN, ZOOM_MAX);
    this.east = east - (x - this.width / 2) / this.scale;
    this.north = north + (y - this.height / 2) / this.scale;
    this.isTouched = true;
    this.ask();
  }

  /** Take the colours of the style sheet again. */
  restyle(): void {
    this.palette = this.readPalette();
    this.themeNumber++;
    this.ask();
  }

  // --- hands ---------------------------------------------------------------------------------------------------

  private drag(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    let [x, y, way] = [event.clientX, event.clientY, 0];
    const move = (next: PointerEvent) => {
      way += Math.abs(next.clientX - x) + Math.abs(next.clientY - y);
      if (way > 3) this.pan(next.clientX - x, next.clientY - y);
      [x, y] = [next.clientX, next.clientY];
    };
    const end = (last: PointerEvent) => {
      this.canvas.removeEventListener("pointermove", move);
      this.canvas.removeEventListener("pointerup", end);
      this.canvas.removeEventListener("pointercancel", end);
      if (way <= 3 && last.type === "pointerup") this.onPick(this.pick(last));
    };
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", end);
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    this.zoom(Math.exp(-clamp(event.deltaY, -240, 240) / 300), event.clientX - box.left, event.clientY - box.top);
  }

  private key(event: KeyboardEvent): void {
    const hands: Record<string, () => void> = {
      ArrowLeft: () => this.pan(80, 0), ArrowRight: () => this.pan(-80, 0), ArrowUp: () => this.pan(0, 80),
      ArrowDown: () => this.pan(0, -80), "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5),
      "0": () => this.fit(),
    };
    const hand = hands[event.key];
    if (!hand || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    hand();
  }

  private pick(event: PointerEvent): Pick | null {
    const shown = this.shown();
    if (!shown) return null;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best: Pick | null = null;
    let nearest = NEAR_PX;
    const look = (kind: Pick["kind"], id: string, east: number | null, north: number | null) => {
      if (east === null || north === null) return;
      const [px, py] = this.toScreen(east, north);
      const away = Math.hypot(px - x, py - y);
      if (away < nearest) [best, nearest] = [{ kind, id }, away];
    };
    for (const one of shown.world.position.values()) if (!one.swarm) look("member", one.id, one.east_m, one.north_m);
    if (shown.layers.objects) for (const one of shown.world.object.values()) look("object", one.id, one.east_m, one.north_m);
    return best;
  }

  // --- drawing --------------------------------------------------------------------------------------------------

  private resize(): void {
    const box = this.canvas.getBoundingClientRect();
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    [this.width, this.height] = [Math.max(1, box.width), Math.max(1, box.height)];
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    if (this.isFitted && !this.isTouched) this.fit();
    this.ask();
  }

  private draw(): void {
    const shown = this.shown();
    const c = this.context, p = this.palette;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = p.ground;
    c.fillRect(0, 0, this.width, this.height);
    if (!shown) return;
    if (!this.isFitted) {
      this.fit();
      if (!this.isFitted) return;
    }
    const { world, layers } = shown;
    const groundKey = `${world.number} ${this.themeNumber} ${layers.assets} ${layers.cells} ${layers.names} ${world.moved.cell} ${shown.site.assets.length}`;
    const objectsKey = `${world.number} ${this.themeNumber} ${layers.objects} ${world.moved.object}`;
    const isPainted = this.lay(this.ground, groundKey, false, (b) => this.paintGround(b, shown));
    this.lay(this.objects, objectsKey, isPainted, (b) => this.paintObjects(b, shown));
    if (layers.trails) this.drawTrails(shown);
    if (layers.links) this.drawLinks(shown);
    this.drawChosen(shown);
    this.drawDrones(shown);
    this.drawScale();
  }

  /** Copy a bitmap to the window; paint it first where it does not fit any more and may be painted in this frame. */
  private lay(b: Bitmap, key: string, isBusy: boolean, paint: (b: Bitmap) => void): boolean {
    const [wide, high] = [this.width * (1 + 2 * MARGIN), this.height * (1 + 2 * MARGIN)];
    const [dx, dy] = [(b.east - this.east) * this.scale, (this.north - b.north) * this.scale];
    const isOutside = Math.abs(dx) > this.width * MARGIN || Math.abs(dy) > this.height * MARGIN;
    const isStale = b.key !== key || b.scale !== this.scale || isOutside || b.width !== wide || b.height !== high;
    let painted = false;
    if (isStale && !isBusy) {
      if (b.width !== wide || b.height !== high || b.canvas.width !== Math.round(wide * this.ratio)) {
        [b.width, b.height] = [wide, high];
        [b.canvas.width, b.canvas.height] = [Math.round(wide * this.ratio), Math.round(high * this.ratio)];
      }
      [b.key, b.east, b.north, b.scale] = [key, this.east, this.north, this.scale];
      b.context.setTransform(1, 0, 0, 1, 0, 0);
      b.context.clearRect(0, 0, b.canvas.width, b.canvas.height);
      b.context.setTransform(this.ratio, 0, 0, this.ratio, (wide / 2) * this.ratio, (high / 2) * this.ratio);
      paint(b);
      this.spent.bitmaps++;
      painted = true;
    } else if (isStale) this.ask();
    const grow = this.scale / (b.scale || this.scale);
    const [x, y] = this.toScreen(b.east, b.north);
    this.context.drawImage(b.canvas, x - (b.width / 2) * grow, y - (b.height / 2) * grow, b.width * grow, b.height * grow);
    return painted;
  }

  private paintGround(b: Bitmap, { world, site, layers }: Shown): void {
    const c = b.context, p = this.palette, s = b.scale;
    const isSeen = (east: number, north: number, reach: number) =>
      Math.abs(east - b.east) * s < b.width / 2 + reach * s && Math.abs(north - b.north) * s < b.height / 2 + reach * s;
    if (layers.cells && world.cell.size) {
      const cells = [...world.cell.values()];
      const [wide, high] = cellSize(cells);
      for (const cell of cells) {
        if (!isSeen(cell.east_m, cell.north_m, Math.max(wide, high))) continue;
        const [x, y] = [(cell.east_m - wide / 2 - b.east) * s, (b.north - cell.north_m - high / 2) * s];
        c.fillStyle = cell.state === "done" ? p.done : cell.state === "claimed" ? p.claimed : p.open;
        c.fillRect(x + 1, y + 1, wide * s - 2, high * s - 2);
        c.strokeStyle = p.edge;
        c.lineWidth = 1;
        c.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, wide * s - 1, high * s - 1);
      }
    }
    if (layers.assets && site.assets.length) {
      c.fillStyle = p.asset;
      c.beginPath();
      for (const one of site.assets) {
        if (!isSeen(one.east_m, one.north_m, one.width_m + one.depth_m)) continue;
        const [wide, high] = [one.width_m * s, one.depth_m * s];
        const gap = wide > 4 && high > 4 ? 1 : 0;
        c.rect((one.east_m - b.east) * s - wide / 2, (b.north - one.north_m) * s - high / 2, Math.max(wide - gap, 0.6), Math.max(high - gap, 0.6));
      }
      c.fill();
    }
    if (layers.cells && layers.names && world.cell.size) {
      const cells = [...world.cell.values()];
      const [wide, high] = cellSize(cells);
      if (wide * s < 34) return;
      c.font = "11px system-ui, sans-serif";
      for (const cell of cells) {
        if (!isSeen(cell.east_m, cell.north_m, Math.max(wide, high))) continue;
        const [x, y] = [(cell.east_m - wide / 2 - b.east) * s, (b.north - cell.north_m - high / 2) * s];
        const who = cell.state === "claimed" ? cell.holder : cell.state === "done" ? "done" : "";
        const text = fitted(c, who ? `${cell.id} · ${who}` : cell.id, wide * s - 8);
        c.fillStyle = p.ground;
        c.globalAlpha = 0.55;
        c.fillRect(x + 2, y + 2, c.measureText(text).width + 6, 14);
        c.globalAlpha = 1;
        c.fillStyle = p.dim;
        c.fillText(text, x + 5, y + 13);
      }
    }
  }

  private paintObjects(b: Bitmap, { world, layers }: Shown): void {
    if (!layers.objects) return;
    const c = b.context, p = this.palette, s = b.scale;
    const kinds: [string, Thing[]][] = [["candidate", []], ["confirmed", []]];
    for (const one of world.object.values()) {
      if (one.east_m === null || one.north_m === null) continue;
      if (Math.abs(one.east_m - b.east) * s > b.width / 2 + 9 || Math.abs(one.north_m - b.north) * s > b.height / 2 + 9) continue;
      (one.tier === "candidate" || one.review === "rejected" ? kinds[0] : kinds[1])?.[1].push(one);
    }
    const size = s < 1.5 ? 2.5 : 4.5;
    for (const [tier, things] of kinds) {
      c.beginPath();
      for (const one of things) ellipse(c, one, b, 6);
      c.strokeStyle = tier === "confirmed" ? p.confirmed : p.candidate;
      c.globalAlpha = 0.7;
      c.lineWidth = 1;
      c.stroke();
      c.globalAlpha = 1;
      c.beginPath();
      for (const one of things) {
        const [x, y] = [((one.east_m as number) - b.east) * s, (b.north - (one.north_m as number)) * s];
        // A square is what two saw, a ring what one saw: colour is not the only difference.
        if (tier === "confirmed") c.rect(x - size, y - size, 2 * size, 2 * size);
        else {
          c.moveTo(x + size, y);
          c.arc(x, y, size, 0, 2 * Math.PI);
        }
      }
      if (tier === "confirmed") {
        c.fillStyle = p.confirmed;
        c.fill();
        c.strokeStyle = p.halo;
        c.lineWidth = 1.2;
      } else {
        c.fillStyle = p.halo;
        c.globalAlpha = 0.6;
        c.fill();
        c.globalAlpha = 1;
        c.strokeStyle = p.candidate;
        c.lineWidth = 2;
      }
      c.stroke();
    }
  }

  private drawTrails({ world }: Shown): void {
    const c = this.context;
    c.beginPath();
    for (const trail of world.trails.values()) {
      for (let i = 0; i < trail.east.length; i++) {
        const [x, y] = this.toScreen(trail.east[i] as number, trail.north[i] as number);
        if (i) c.lineTo(x, y);
        else c.moveTo(x, y);
      }
    }
    c.strokeStyle = this.palette.drone;
    c.globalAlpha = 0.45;
    c.lineWidth = 1.3;
    c.stroke();
    c.globalAlpha = 1;
  }

  /** Bad links that anybody reports; of the chosen member also the good one to who looks. */
  private drawLinks({ world, chosen }: Shown): void {
    const c = this.context;
    const places = new Map<string, [number, number]>();
    for (const one of world.position.values()) {
      if (one.east_m !== null && one.north_m !== null) places.set(one.name, this.toScreen(one.east_m, one.north_m));
    }
    const line = (from: string, to: string) => {
      const [a, b] = [places.get(from), places.get(to)];
      if (!a || !b) return;
      c.moveTo(a[0], a[1]);
      c.lineTo(b[0], b[1]);
    };
    c.beginPath();
    for (const one of world.member.values()) {
      for (const said of one.broken) {
        const [from, to] = broken(said);
        if (from && to) line(from, to);
      }
    }
    c.strokeStyle = this.palette.bad;
    c.globalAlpha = 0.8;
    c.setLineDash([5, 4]);
    c.lineWidth = 1.2;
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
    if (chosen?.kind !== "member") return;
    const self = [...world.member.values()].find((one) => one.is_self);
    const other = world.member.get(chosen.id);
    if (!self || !other) return;
    c.beginPath();
    // Who is reached through others has no line of its own.
    if (other.quality === "relayed") return;
    line(self.name, other.name);
    c.strokeStyle = other.quality === "good" ? this.palette.drone : this.palette.bad;
    c.stroke();
  }

  private drawChosen({ world, chosen }: Shown): void {
    if (!chosen) return;
    const c = this.context, p = this.palette;
    const one = chosen.kind === "object" ? world.object.get(chosen.id) : world.position.get(chosen.id);
    if (!one || one.east_m === null || one.north_m === null) return;
    const [x, y] = this.toScreen(one.east_m, one.north_m);
    c.beginPath();
    c.arc(x, y, 15, 0, 2 * Math.PI);
    c.strokeStyle = p.ring;
    c.lineWidth = 2;
    c.stroke();
    if (chosen.kind === "object") {
      c.beginPath();
      ellipse(c, one as Thing, { east: this.east, north: this.north, scale: this.scale }, 0, this.width / 2, this.height / 2);
      c.stroke();
    }
  }

  private drawDrones({ world, nowS, layers }: Shown): void {
    const c = this.context, p = this.palette;
    c.font = "12px system-ui, sans-serif";
    const many = world.position.size > 60 && this.scale < 1.5;
    const names: Name[] = [];
    for (const one of world.position.values()) {
      if (one.east_m === null || one.north_m === null) continue;
      const [x, y] = this.toScreen(one.east_m, one.north_m);
      if (x < -60 || y < -30 || x > this.width + 60 || y > this.height + 30) continue;
      if (one.swarm) {
        this.drawBeside(one, x, y);
        if (layers.names && one.claim_m === null) names.push({ text: one.name.slice(0, 30), x, y, isLost: false });
        continue;
      }
      const member = world.member.get(one.id);
      const ageS = nowS - one.at_s;
      const isLost = !member || !HEARD.has(member.state);
      const isOld = isLost || !one.has_fix || ageS > OLD_S;
      c.save();
      c.translate(x, y);
      c.beginPath();
      if (one.yaw_deg === null) c.arc(0, 0, 6, 0, 2 * Math.PI);
      else {
        c.rotate((one.yaw_deg * Math.PI) / 180);
        c.moveTo(0, -10);
        c.lineTo(6.5, 8);
        c.lineTo(0, 4.5);
        c.lineTo(-6.5, 8);
        c.closePath();
      }
      if (isOld) {
        c.strokeStyle = isLost ? p.bad : p.dim;
        c.setLineDash([2.5, 2]);
        c.lineWidth = 1.5;
      } else {
        c.fillStyle = p.drone;
        c.fill();
        c.strokeStyle = p.halo;
        c.lineWidth = 1.2;
      }
      c.stroke();
      c.restore();
      if (!layers.names || (many && !isLost)) continue;
      const notes = [isOld || ageS > 5 ? duration(ageS) : "", one.has_fix ? "" : "no fix", one.battery !== null && one.battery < 0.25 ? `${Math.round(one.battery * 100)} %` : ""];
      names.push({ text: [one.name.slice(0, 30), ...notes.filter(Boolean)].join(" · "), x, y, isLost });
    }
    this.drawNames(names);
  }

  /** What another swarm shares: its members as open squares, the space that it claims as a dashed circle. */
  private drawBeside(one: Position, x: number, y: number): void {
    const c = this.context, p = this.palette;
    c.beginPath();
    if (one.claim_m === null) c.rect(x - 5, y - 5, 10, 10);
    else c.arc(x, y, Math.max(3, one.claim_m * this.scale), 0, 2 * Math.PI);
    c.strokeStyle = one.claim_m === null ? p.text : p.dim;
    c.setLineDash(one.claim_m === null ? [] : [6, 4]);
    c.lineWidth = 1.5;
    c.stroke();
    c.setLineDash([]);
  }

  /** Names where there is room, those that are not heard first: what lies on another name is read by nobody. */
  private drawNames(names: Name[]): void {
    const c = this.context, p = this.palette, taken = new Set<number>();
    this.named = [];
    for (const { text, x, y, isLost } of [...names.filter((one) => one.isLost), ...names.filter((one) => !one.isLost)]) {
      const wide = c.measureText(text).width;
      const left = x < this.width && x + 10 + wide > this.width ? x - 10 - wide : x + 10; // At the edge beside it on the left.
      const covered: number[] = [];
      for (let column = Math.floor(left / NAME_CELL); column * NAME_CELL < left + wide; column++) {
        for (const row of [Math.floor((y - 16) / NAME_CELL), Math.floor((y - 4) / NAME_CELL)]) covered.push(column * 65_536 + row); // No window has so many rows.
      }
      if (covered.some((one) => taken.has(one))) continue;
      for (const one of covered) taken.add(one);
      this.named.push({ text, left, top: y - 16, wide });
      c.lineWidth = 3;
      c.strokeStyle = p.ground;
      c.strokeText(text, left, y - 6);
      c.fillStyle = isLost ? p.bad : p.text;
      c.fillText(text, left, y - 6);
    }
  }

  private drawScale(): void {
    const c = this.context;
    const raw = 120 / this.scale, power = 10 ** Math.floor(Math.log10(raw));
    const metres = [5, 2, 1].map((step) => step * power).find((length) => length <= raw) ?? power;
    const [wide, x, y] = [metres * this.scale, this.width - 20 - metres * this.scale, this.height - 22];
    c.strokeStyle = c.fillStyle = this.palette.dim;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(x, y - 5);
    c.lineTo(x, y);
    c.lineTo(x + wide, y);
    c.lineTo(x + wide, y - 5);
    c.stroke();
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "center";
    c.fillText(metres >= 1000 ? `${metres / 1000} km` : `${metres} m`, x + wide / 2, y - 6);
    c.textAlign = "start";
  }

  private toScreen(east: number, north: number): [number, number] {
    return [(east - this.east) * this.scale + this.width / 2, (this.north - north) * this.scale + this.height / 2];
  }

  private toGround(x: number, y: number): [number, number] {
    return [this.east + (x - this.width / 2) / this.scale, this.north - (y - this.height / 2) / this.scale];
  }

  private readPalette(): Palette {
    const style = getComputedStyle(this.canvas);
    const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
    return {
      ground: read("ground"), asset: read("asset"), edge: read("edge"), text: read("text"), dim: read("dim"),
      drone: read("accent"), bad: read("bad"), open: read("cell-open"), claimed: read("cell-claimed"),
      done: read("cell-done"), candidate: read("candidate"), confirmed: read("confirmed"), ring: read("accent"), halo: read("halo"),
    };
  }
}

function bitmap(): Bitmap {
  const canvas = new OffscreenCanvas(1, 1);
  const context = canvas.getContext("2d", { willReadFrequently: true }) as OffscreenCanvasRenderingContext2D;
  return { canvas, context, key: "", east: 0, north: 0, scale: 0, width: 0, height: 0 };
}

/** The ellipse of two standard deviations, where it is larger than so many pixels. */
function ellipse(
  c: CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D, one: Thing, at: { east: number; north: number; scale: number },
  leastPx: number, x0 = 0, y0 = 0,
): void {
  if (!one.covariance_m2 || one.east_m === null || one.north_m === null) return;
  const [ee, en, nn] = one.covariance_m2;
  const middle = (ee + nn) / 2, spread = Math.hypot((ee - nn) / 2, en);
  const [long, short] = [2 * Math.sqrt(Math.max(0, middle + spread)) * at.scale, 2 * Math.sqrt(Math.max(0, middle - spread)) * at.scale];
  if (!(long > leastPx) || long > 4000) return;
  const turn = -0.5 * Math.atan2(2 * en, ee - nn); // Screens count north downwards.
  const [x, y] = [(one.east_m - at.east) * at.scale + x0, (at.north - one.north_m) * at.scale + y0];
  c.moveTo(x + long * Math.cos(turn), y + long * Math.sin(turn));
  c.ellipse(x, y, long, short, turn, 0, 2 * Math.PI);
}

/** How far neighbours' centres lie apart: cells have centres only. */
export function cellSize(cells: Cell[]): [number, number] {
  const step = (values: number[]) => {
    const sorted = [...new Set(values.map((value) => Math.round(value * 10) / 10))].sort((a, b) => a - b);
    let least = Infinity;
    for (let i = 1; i < sorted.length; i++) {
      const gap = (sorted[i] as number) - (sorted[i - 1] as number);
      if (gap > 2) least = Math.min(least, gap);
    }
    return least;
  };
  const [wide, high] = [step(cells.map((cell) => cell.east_m)), step(cells.map((cell) => cell.north_m))];
  const either = Number.isFinite(wide) ? wide : Number.isFinite(high) ? high : 10;
  return [Number.isFinite(wide) ? wide : either, Number.isFinite(high) ? high : either];
}

/** The two names of a broken link, as the daemon says it. */
export function broken(said: string): [string, string] {
  const found = /^(.+?) hears (.+?), /.exec(said) ?? /^(.+?) reaches (.+?) only through others$/.exec(said) ?? /^(.+?) answers (.+?) late$/.exec(said);
  return [found?.[1] ?? "", found?.[2] ?? ""];
}

function fitted(c: OffscreenCanvasRenderingContext2D, text: string, width: number): string {
  if (c.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && c.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
