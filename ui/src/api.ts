// What `/api/v1` says; a test holds these names against the server's.

export interface Asset { id: string; east_m: number; north_m: number; width_m: number; depth_m: number }
export interface Site {
  mode: string; title: string; seen_by: string; version: string;
  latitude_deg: number | null; longitude_deg: number | null; assets: Asset[];
}
export interface Member {
  id: string; name: string; state: string; since_s: number | null; is_self: boolean; rtt_ms: number | null;
  loss: number; quality: string; broken: string[]; capability: string; version: string; address: string;
  root: number | null; group_key: number | null; certificate: string | null;
  row: [string, string][];
}
export interface Position {
  id: string; name: string; has_fix: boolean; east_m: number | null; north_m: number | null;
  latitude_deg: number; longitude_deg: number; height_agl_m: number; yaw_deg: number | null;
  sigma_m: number; battery: number | null; at_s: number;
  swarm: string; claim_m: number | null;
}
export interface Review {
  operator: string; key: string; verdict: string; text: string; seen: string; made_s: number; revision: number; digest: string;
}
export interface Thing {
  id: string; label: string; score: number; tier: string; east_m: number | null; north_m: number | null;
  covariance_m2: [number, number, number] | null; asset: string; observers: string[]; reports: number;
  first_seen_s: number; last_seen_s: number; review: string; detected: string; reviews: Review[];
  thumb: string;
}
export interface Cell { id: string; east_m: number; north_m: number; state: string; holder: string; done_by: string[] }
export interface Alert {
  id: string; code: string; subject: string; level: string; text: string; means: string; remedy: string; since_s: number;
  acknowledged_by: string; acknowledged_s: number | null; acknowledged_note: string;
}
export interface Happening {
  id: string; at_s: number; origin: string; kind: string; level: string; subject: string; reason: string; evidence: string;
}
export interface Signed { kind: string; stage: number | null; reason: string; issued_s: number; signers: string[] }
export interface Release {
  id: string; model: string; digest: string; version: number; epoch: number; state: string; since_s: number | null;
  is_desired: boolean; stages_percent: number[]; stage: number; nodes: number; cohort: number; passes: number;
  needed: number; fails: number; fails_to_halt: number; issued_s: number; signers: string[]; statements: Signed[];
  chunks: [number, number];
}
export interface Vote {
  id: string; release: string; node: string; name: string; rank: number; turn: string; runs: number; phase: string;
  verdict: string; reason: string; soak_s: number; samples: number; heard_s: number | null;
}
export interface Prepared {
  name: string; text: string; kind: string; issued_s: number; does: string[]; warnings: string[]; role: string;
  need: number; keys: string[]; commands: string[];
}
export interface Evidence {
  id: string; node: string; label: string; score: number; east_m: number | null; north_m: number | null;
  covariance_m2: [number, number, number] | null; model_digest: string; reports: number;
  first_seen_s: number; last_seen_s: number; thumb: string;
}
export interface Rows {
  member: Member[]; position: Position[]; object: Thing[]; cell: Cell[]; alert: Alert[]; event: Happening[];
  release: Release[]; vote: Vote[];
}
export type Kind = keyof Rows;
export interface Change { seq: number; at_s: number; kind: Kind; id: string; row: Rows[Kind][number] | null }
export interface Snapshot { epoch: string; seq: number; at_s: number; rows: Rows }
export interface Changes { now_s: number; seq: number; changes: Change[]; reset: boolean }
export interface PeerStretch { node: string; name: string; from_s: number; to_s: number; what: string }
export interface History { changes: Change[]; gaps: [number, number][]; next: string | null; peers: PeerStretch[] }
export interface Mark { at_s: number; lane: string; level: string; text: string; count: number }
export interface Timeline {
  from_s: number; to_s: number; covered: [number, number][]; marks: Mark[]; fetched: [number, number][];
  peers: PeerStretch[];
}

/** Ask the server for JSON. */
export async function get<T>(path: string, query: Record<string, string | number> = {}, signal?: AbortSignal): Promise<T> {
  const text = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  const answer = await fetch(`/api/v1/${path}${text ? `?${text}` : ""}`, { signal: signal ?? null, cache: "no-cache" });
  if (!answer.ok) throw new Error(await answer.json().then((told: { error?: string }) => told.error, () => undefined) ?? `${path}: ${answer.status}`);
  return (await answer.json()) as T;
}

/** The `data:` lines of a stream of changes, until it ends or is aborted. */
export async function* lines(path: string, signal: AbortSignal): AsyncGenerator<Changes> {
  const answer = await fetch(`/api/v1/${path}`, { signal, cache: "no-store" });
  if (!answer.ok || !answer.body) throw new Error(`${path}: ${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
      yield JSON.parse(held.slice(6, end)) as Changes;
      held = held.slice(end + 2);
    }
  }
}
