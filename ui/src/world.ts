// What is known at one moment: rows by kind and id, with trails. The map reads it directly; panels when `version` moves.

import type { Alert, Cell, Change, Happening, Kind, Member, Position, Release, Rows, Thing, Vote } from "./api";

/** Points of a trail; at one a second two minutes. */
const TRAIL_MAX = 120;
/** Events that a page keeps; the timeline has the rest. */
const EVENTS_MAX = 500;

export interface Trail { east: number[]; north: number[] }

let worlds = 0;

/** Whether two rows of a kind say the same. */
function isSame(one: object, other: object): boolean {
  const here = one as Record<string, unknown>, there = other as Record<string, unknown>, names = Object.keys(here);
  if (names.length !== Object.keys(there).length) return false;
  for (const name of names) {
    const a = here[name], b = there[name];
    if (a !== b && (typeof a !== "object" || typeof b !== "object" || JSON.stringify(a) !== JSON.stringify(b))) return false;
  }
  return true;
}

export class World {
  /** No other world's: what was drawn of one is not taken for another. */
  readonly number = ++worlds;
  member = new Map<string, Member>();
  position = new Map<string, Position>();
  object = new Map<string, Thing>();
  cell = new Map<string, Cell>();
  alert = new Map<string, Alert>();
  event = new Map<string, Happening>();
  release = new Map<string, Release>();
  vote = new Map<string, Vote>();
  trails = new Map<string, Trail>();
  /** How often rows of a kind changed: who draws them looks whether it moved. */
  moved: Record<Kind, number> = { member: 0, position: 0, object: 0, cell: 0, alert: 0, event: 0, release: 0, vote: 0 };

  /** Take a whole picture. */
  reset(rows: Rows): void {
    for (const kind of Object.keys(this.moved) as Kind[]) {
      const held = this[kind] as Map<string, Rows[Kind][number]>;
      const told: Rows[Kind][number][] = rows[kind] ?? [];
      let isMoved = held.size !== told.length;
      const fresh = told.map((row) => {
        const old = held.get(row.id);
        if (old && isSame(old, row)) return old;
        isMoved = true;
        return row;
      });
      // Of what is as it was, nothing is painted anew: two moments of a flight differ in little.
      if (!isMoved) continue;
      held.clear();
      for (const row of fresh) held.set(row.id, row);
      this.moved[kind]++;
    }
    for (const id of [...this.trails.keys()]) if (!this.position.has(id)) this.trails.delete(id);
    for (const row of rows.position) this.follow(row);
  }

  /** Take one change. */
  apply(change: Change): void {
    const held = this[change.kind] as Map<string, Rows[Kind][number]> | undefined;
    if (!held) return; // A kind of a newer server.
    this.moved[change.kind]++;
    if (change.row === null) {
      held.delete(change.id);
      return;
    }
    held.set(change.id, change.row);
    if (change.kind === "position") this.follow(change.row as Position);
    if (change.kind === "event" && held.size > EVENTS_MAX) {
      for (const oldest of held.keys()) { held.delete(oldest); break; }
    }
  }

  /** Forget where everybody came from. */
  forgetTrails(): void {
    this.trails.clear();
    this.moved.position++;
  }

  private follow(row: Position): void {
    if (row.east_m === null || row.north_m === null || !row.has_fix) return;
    let trail = this.trails.get(row.id);
    if (!trail) this.trails.set(row.id, (trail = { east: [], north: [] }));
    const last = trail.east.length - 1;
    if (last >= 0 && trail.east[last] === row.east_m && trail.north[last] === row.north_m) return;
    trail.east.push(row.east_m);
    trail.north.push(row.north_m);
    if (last > TRAIL_MAX) {
      trail.east.shift();
      trail.north.shift();
    }
  }
}

/** States in which a member is heard. */
export const HEARD = new Set(["alive", "degraded"]);

/** One in so many members that do not answer are said before they are taken for failed, which takes a node alone a minute. */
const CUT_SHARE = 4;

export interface Cut { title: string; text: string; grave: boolean }

/** What this node does not see, in words; null while it hears everybody. */
export function hidden(world: World, seenBy: string, nowS: number): Cut | null {
  const others = [...world.member.values()].filter((one) => !one.is_self && one.state !== "left" && one.state !== "away");
  const gone = others.filter((one) => one.state === "failed" || one.state === "unreachable");
  const silent = others.filter((one) => one.state === "suspect" || gone.includes(one));
  // One that is suspected is mostly back in a moment; everybody, or two that are many, are what a cut looks like at first.
  const isCut = silent.length === others.length || (silent.length >= 2 && silent.length * CUT_SHARE >= others.length);
  const lost = isCut ? silent : gone;
  if (!lost.length) return null;
  const since = Math.min(...lost.map((one) => one.since_s ?? Infinity));
  const forS = Number.isFinite(since) ? `for ${duration(nowS - since)}` : "since before this page's server began";
  const where = "Drawn hollow where they were last heard.";
  if (lost.length === 1) {
    const one = lost[0] as Member;
    return {
      title: `${one.name} has not been heard ${forS}.`, grave: false,
      text: `It is down or out of reach. You see what ${seenBy} knows; ${one.name} is drawn hollow where it was last heard.`,
    };
  }
  if (lost.length === others.length) {
    return {
      title: `${seenBy} is cut off: none of ${others.length} members is heard ${forS}.`, grave: true,
      text: `You see only what ${seenBy} knew. ${where} What they find and claim arrives when the link is back.`,
    };
  }
  return {
    title: `The swarm is cut: ${lost.length} of ${others.length} members have not been heard ${forS}.`, grave: true,
    text: `You see what ${seenBy} knows. ${where} Their finds and claims arrive when the link is back.`,
  };
}

/** A length of time for people. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) return `${s} s`;
  if (s < 6000) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

/** Time since a recording began, as players show it. */
export function elapsed(seconds: number): string {
  const s = Math.max(0, Math.round(seconds)), two = (number: number) => String(number).padStart(2, "0");
  const minutes = Math.floor(s / 60);
  return minutes < 60 ? `${minutes}:${two(s % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(s % 60)}`;
}

/** A moment as this machine's clock shows it; with the day where it is another one. */
export function clock(atS: number, nowS: number): string {
  const at = new Date(atS * 1000), now = new Date(nowS * 1000);
  const two = (value: number) => String(value).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return at.toDateString() === now.toDateString() ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}
