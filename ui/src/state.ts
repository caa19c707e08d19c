// What the page shows and where it comes from: the present by a stream, the past by pages of history.

import { signal } from "@preact/signals";
import { type Change, type Changes, type History, type Site, type Snapshot, type Timeline, get, lines } from "./api";
import { World } from "./world";

/** Milliseconds between two drawings of the panels. */
const PANELS_MS = 250;
/** Milliseconds without a word after which the server does not answer: two of its beats. */
const SILENT_MS = 2000;
/** Milliseconds that an attempt is given: on a busy machine the first picture takes some. */
const TRY_MS = 15_000;
/** Milliseconds between two attempts. */
const RETRY_MS = 400;
/** Seconds before a moment of the past that trails show. */
const TRAIL_S = 60;
/** Rows of history that they are made of. */
const TRAIL_ROWS = 2000;
/** Milliseconds for which a moment is shown before its trails are asked for: who scrubs is at another one by then. */
const TRAIL_AFTER_MS = 150;

export type Tab = "objects" | "members" | "events" | "alerts" | "releases" | "network";
export type Chosen = { kind: "object" | "member"; id: string } | { kind: "release"; id: string };

export const site = signal<Site | null>(null);
/** Moves when panels are to be drawn again. */
export const version = signal(0);
/** null while the stream lives, else when it was heard last, milliseconds of this machine. */
export const silentSince = signal<number | null>(null);
export const isFirst = signal(true);
/** The moment of the past that is shown; null: the present. */
export const past = signal<number | null>(null);
export const playing = signal(false);
export const speed = signal(1);
export const tab = signal<Tab>("objects");
export const chosen = signal<Chosen | null>(null);
export const find = signal("");
export const timeline = signal<Timeline | null>(null);
/** Seconds back that the timeline shows; 0: everything. */
export const span = signal(900);

const live = new World();
const then = new World();
/** Seconds that the server's clock is ahead of this machine's. */
let aheadS = 0;
let waiting = false;

/** Whether the first picture of the past is here; until then the present stays on the page rather than nothing. */
let isThere = false;

/** What is shown. */
export const world = (): World => (past.value === null || !isThere ? live : then);
/** The server's clock. */
export const serverNowS = (): number => Date.now() / 1000 + aheadS;
/** The moment that is shown. */
export const nowS = (): number => past.value ?? (site.value?.mode === "recording" ? endS : serverNowS());
let endS = 0;

function redraw(): void {
  if (waiting) return;
  waiting = true;
  setTimeout(() => {
    waiting = false;
    version.value++;
  }, PANELS_MS);
}

// --- the present -------------------------------------------------------------------------------------------------

let epoch = "";
let seq = 0;
/** The newest change that the present holds. */
export const newestSeq = (): number => seq;

async function follow(stop: AbortSignal): Promise<void> {
  if (!epoch) {
    const got = await get<Snapshot>("snapshot", {}, stop);
    heard(got.at_s);
    live.reset(got.rows);
    [epoch, seq] = [got.epoch, got.seq];
    isFirst.value = false;
    version.value++;
  }
  for await (const part of lines(`changes?epoch=${epoch}&after=${seq}`, stop)) {
    heard(part.now_s);
    if (part.reset) {
      epoch = "";
      return;
    }
    take(part);
  }
}

function take(part: Changes): void {
  seq = part.seq;
  for (const change of part.changes) live.apply(change);
  if (part.changes.length && past.value === null) redraw();
}

let heardMs = 0;
let triedMs = 0;
function heard(atS: number): void {
  heardMs = Date.now();
  endS = atS;
  aheadS = atS - heardMs / 1000;
  if (silentSince.value !== null) silentSince.value = null;
}

/** Begin, and never end; the stream rests while nobody looks. */
export async function run(): Promise<void> {
  let stop = new AbortController(), failed = 0;
  setInterval(() => {
    if (document.visibilityState !== "visible") return;
    const quiet = Date.now() - heardMs;
    if (heardMs && quiet > SILENT_MS) silentSince.value = heardMs;
    if (Date.now() - Math.max(heardMs, triedMs) > TRY_MS) stop.abort(); // A stream that neither speaks nor ends.
    version.value++; // Ages grow also when nothing changes.
  }, 500);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "visible") stop.abort();
  });
  for (;;) {
    if (document.visibilityState === "visible") {
      try {
        stop = new AbortController();
        triedMs = Date.now();
        heardMs ||= triedMs;
        site.value ??= await get<Site>("site");
        await follow(stop.signal);
        failed = 0;
      } catch {
        // A server that began anew numbers anew and says so by `reset`; who refuses twice is away, else the silence says it.
        if (heardMs > triedMs) failed = 0;
        if (!stop.signal.aborted && ++failed > 1) silentSince.value ??= heardMs;
      }
    } else heardMs = Date.now();
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

/** Read the timeline again. */
export async function readTimeline(): Promise<void> {
  try {
    const from = site.value?.mode === "recording" || !span.value ? 0 : serverNowS() - span.value;
    timeline.value = await get<Timeline>("timeline", { from_s: from.toFixed(3) });
  } catch {
    // The stream says that the server is silent.
  }
}

// --- the past ----------------------------------------------------------------------------------------------------

let seeking = 0;
let waitingChanges: Change[] = [];
let cursor: string | null = "";
let gaps: [number, number][] = [];
let playFromS = 0;
/** The moment up to which history was read; where the present is shown it goes on. */
let readToS = Infinity;
let isFetching = false;
let playedMs = 0;

let stopSeek = new AbortController();
/** Seconds of history that fill a page of trails here. */
let trailS = TRAIL_S;

/** Show a moment of the past; the trails follow when nobody moves on. */
export async function seek(atS: number): Promise<void> {
  const number = ++seeking;
  stopSeek.abort(); // Of moments that were passed on the way the server need not go on.
  stopSeek = new AbortController();
  past.value = atS;
  try {
    const picture = await get<Snapshot>("snapshot", { at_s: atS.toFixed(3) }, stopSeek.signal);
    if (number !== seeking) return;
    then.forgetTrails();
    then.reset(picture.rows);
    isThere = true;
    waitingChanges = [];
    [cursor, playFromS, gaps, readToS] = ["", atS, [], Infinity];
    version.value++;
    setTimeout(() => void trail(number, atS), TRAIL_AFTER_MS);
  } catch {
    // As above.
  }
}

/** Draw the ways that led to a moment that is shown. */
async function trail(number: number, atS: number): Promise<void> {
  const isPassed = () => number !== seeking || past.value !== atS; // Another moment, or it plays.
  const ask = () => get<History>("history", { from_s: (atS - trailS).toFixed(3), to_s: atS.toFixed(3), kind: "position", limit: TRAIL_ROWS }, stopSeek.signal);
  if (isPassed()) return;
  try {
    let before = await ask();
    const last = before.changes[before.changes.length - 1];
    if (before.next !== null && last) {
      // So many move that a page does not reach the moment: the latest of as long a time, now and from now on.
      trailS = Math.max(1, last.at_s - (atS - trailS));
      before = await ask();
    } else if (before.changes.length * 2 < TRAIL_ROWS) trailS = Math.min(TRAIL_S, trailS * 2);
    if (isPassed()) return;
    const shown = [...then.position.values()];
    then.forgetTrails();
    for (const change of before.changes) then.apply(change);
    for (const row of shown) then.apply({ seq: 0, at_s: atS, kind: "position", id: row.id, row });
    version.value++;
  } catch {
    // As above.
  }
}

/** Back to the present. */
export function goLive(): void {
  seeking++;
  playing.value = isThere = false;
  past.value = null;
  version.value++;
}

/** Play on from the moment that is shown, or stop. */
export function play(): void {
  if (past.value === null) {
    void seek(nowS());
    playing.value = false;
    return;
  }
  playing.value = !playing.value;
  playedMs = performance.now();
  if (playing.value) requestAnimationFrame(step);
}

function step(ms: number): void {
  const atS = past.value;
  if (!playing.value || atS === null) return;
  let next = atS + (Math.max(0, ms - playedMs) / 1000) * speed.value;
  playedMs = ms;
  const end = site.value?.mode === "recording" ? (timeline.value?.to_s ?? endS) : serverNowS();
  const gap = gaps.find(([from, to]) => next > from && next < to);
  if (gap) {
    void seek(gap[1]);
  } else if (next >= end) {
    if (site.value?.mode === "recording") {
      playing.value = false;
      past.value = end;
    } else goLive();
    return;
  } else if (waitingChanges.length === 0 && cursor !== null) {
    next = atS; // Nothing to play yet: wait for it.
    void fetchMore();
  } else {
    let count = 0;
    while (count < waitingChanges.length && (waitingChanges[count] as Change).at_s <= next) then.apply(waitingChanges[count++] as Change);
    waitingChanges.splice(0, count);
    if (cursor === null && next > readToS && site.value?.mode === "live") [cursor, playFromS, readToS] = ["", readToS, Infinity];
    if (waitingChanges.length < 500 && cursor !== null) void fetchMore();
    past.value = next;
    if (count) redraw();
  }
  requestAnimationFrame(step);
}

async function fetchMore(): Promise<void> {
  if (isFetching || cursor === null) return;
  isFetching = true;
  const number = seeking, askedS = serverNowS();
  try {
    const page = await get<History>("history", { from_s: playFromS.toFixed(3), cursor, limit: 2000 });
    if (number === seeking) {
      waitingChanges.push(...page.changes);
      gaps.push(...page.gaps);
      cursor = page.next;
      if (cursor === null) readToS = askedS;
    }
  } catch {
    playing.value = false;
  } finally {
    isFetching = false;
  }
}
