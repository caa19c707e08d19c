// The past as a line: what is covered, who came and went, what was found, what happened; and the hands that move it.

import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { PeerStretch, Timeline } from "./api";
import { goLive, nowS, past, play, playing, readTimeline, seek, serverNowS, silentSince, site, span, speed, timeline, version } from "./state";
import { clock, duration, elapsed } from "./world";

const LANES = ["members", "objects", "events"];
const LEFT = 74;
/** Seconds that the line of a live swarm shows at least. */
const LEAST_S = 60;
/** Milliseconds between two readings of the timeline. */
const READ_MS = 4000;

/** (first, last) moment that is shown. */
function ends(): [number, number] {
  const line = timeline.value, isRecording = site.value?.mode === "recording";
  const last = isRecording ? (line?.to_s ?? nowS()) : serverNowS();
  const began = Math.min(line?.covered[0]?.[0] ?? last, line?.fetched[0]?.[0] ?? last);
  const first = span.value && !isRecording ? Math.max(last - span.value, began) : began;
  return [isRecording ? Math.min(first, last - 1) : Math.min(first, last - LEAST_S), last];
}

export function TimelineBar() {
  const lanes = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const canvas = lanes.current;
    if (!canvas) return;
    const end = effect(() => {
      void [version.value, past.value, timeline.value, span.value];
      draw(canvas, timeline.value);
    });
    const watcher = new ResizeObserver(() => draw(canvas, timeline.value));
    watcher.observe(canvas);
    const again = setInterval(() => { if (document.visibilityState === "visible") void readTimeline(); }, READ_MS);
    return () => { end(); watcher.disconnect(); clearInterval(again); };
  }, []);
  useEffect(() => { void readTimeline(); }, [span.value, site.value]);
  void version.value;
  const [first, last] = ends();
  const at = past.value;
  const isRecording = site.value?.mode === "recording";
  const shownS = at ?? last;
  const when = isRecording ? `${elapsed(shownS - first)} of ${elapsed(last - first)}` : at === null ? "LIVE" : `${clock(at, last)} · ${duration(last - at)} ago`;
  const toLive = () => (isRecording ? void seek(last) : goLive());
  const onLane = (event: MouseEvent & { currentTarget: HTMLCanvasElement }) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT);
    if (share >= 0 && share <= 1) void seek(first + share * (last - first));
  };
  return (
    <footer aria-label="Time">
      <div class="controls">
        <button type="button" onClick={play} aria-keyshortcuts="Space">{playing.value ? "Pause" : at === null ? "Pause" : "Play"}<kbd>space</kbd></button>
        <button type="button" onClick={toLive} disabled={!isRecording && at === null} aria-keyshortcuts="l">{isRecording ? "End" : "Live"}<kbd>l</kbd></button>
        <select aria-label="Speed" value={String(speed.value)} onChange={(event) => { speed.value = Number(event.currentTarget.value); }}>
          {[0.5, 1, 2, 5, 10, 60].map((one) => <option key={one} value={String(one)}>{one}×</option>)}
        </select>
        {isRecording ? null : (
          <select aria-label="Range" value={String(span.value)} onChange={(event) => { span.value = Number(event.currentTarget.value); }}>
            {[[300, "5 min"], [900, "15 min"], [3600, "1 h"], [86400, "1 day"], [0, "all"]].map(([value, text]) => <option key={value} value={String(value)}>{text}</option>)}
          </select>
        )}
        <input type="range" aria-label="Moment" aria-valuetext={when} min="0" max="1000" step="1"
          ref={(element) => { if (element && document.activeElement !== element) element.value = String(Math.round(((shownS - first) / (last - first)) * 1000)); }}
          onInput={(event) => {
            const share = Number(event.currentTarget.value) / 1000;
            if (share >= 1 && !isRecording) goLive();
            else void seek(first + share * (last - first));
          }} />
        <span class={`when ${at === null && !isRecording ? "good" : "warn"}`}>{when}</span>
      </div>
      <Peers line={timeline.value} first={first} last={last} />
      <canvas class="lanes" ref={lanes} onClick={onLane} role="img" aria-label="Timeline of members, objects and events" />
    </footer>
  );
}

/** What a gap in a member's own past is, in words. */
const WHY: Record<string, string> = {
  waiting: "being fetched", off: "it wrote nothing down", expired: "dropped for age or room", refused: "it does not give to this node",
  unreachable: "nobody in reach keeps it", silent: "nobody answers", lied: "its keeper answers what does not hold", revoked: "it is shut out",
};
/** Gaps shorter than this are a page that a crash cut off. */
const GAP_S = 2;
/** Gaps that are listed. */
const GAPS_MAX = 200;

/** Whose past is here of the times at which this server was not, and what is missing. */
function Peers({ line, first, last }: { line: Timeline | null; first: number; last: number }) {
  const peers = (line?.peers ?? []).filter((one) => one.to_s > first && one.from_s < last);
  if (peers.length === 0) return null;
  const gaps = peers.filter((one) => one.what !== "whole" && Math.min(one.to_s, last) - Math.max(one.from_s, first) > GAP_S);
  const names = new Set(peers.map((one) => one.node)), holed = new Set(gaps.map((one) => one.node));
  const span = (one: PeerStretch) => `${clock(Math.max(one.from_s, first), last)} to ${clock(Math.min(one.to_s, last), last)}`;
  return (
    <details class="peers">
      <summary>Before this server: the own past of {names.size - holed.size} of {names.size} members is whole</summary>
      <ul>{gaps.slice(-GAPS_MAX).map((one) => <li key={`${one.node} ${one.from_s}`}><b>{one.name}</b> {span(one)}: {WHY[one.what] ?? one.what}</li>)}</ul>
    </details>
  );
}

function draw(canvas: HTMLCanvasElement, line: Timeline | null): void {
  const box = canvas.getBoundingClientRect();
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [wide, high] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const c = canvas.getContext("2d");
  if (!c) return;
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, box.width, box.height);
  const [first, last] = ends();
  const x = (atS: number) => LEFT + ((atS - first) / (last - first)) * (box.width - LEFT);
  c.font = "11px system-ui, sans-serif";
  LANES.forEach((lane, index) => {
    const top = index * 20;
    c.fillStyle = colour("dim");
    c.fillText(lane, 0, top + 14);
    c.fillStyle = colour("raised");
    c.fillRect(LEFT, top + 1, box.width - LEFT, 18);
  });
  if (!line) return;
  // Of times that only others wrote down there is a stripe.
  c.fillStyle = colour("dim");
  for (const [began, ended] of line.fetched) if (ended > first) c.fillRect(Math.max(LEFT, x(began)), 57, Math.max(1, x(ended) - Math.max(LEFT, x(began))), 2);
  // What nobody wrote down is hatched: nothing there does not mean that nothing happened.
  c.save();
  c.beginPath();
  let from = first;
  const newest = line.covered.at(-1);
  // What was covered when the line was read is covered since, as long as the server answers.
  if (newest && silentSince.value === null && last - newest[1] < (3 * READ_MS) / 1000) newest[1] = last;
  const covered = [...line.covered, ...line.fetched, [last, last] as [number, number]].sort((a, b) => a[0] - b[0]);
  for (const [began, ended] of covered) {
    if (x(began) - x(from) > 1.5) c.rect(x(from), 1, x(began) - x(from), 58);
    from = Math.max(from, ended);
  }
  c.clip();
  c.strokeStyle = colour("line");
  c.beginPath();
  for (let at = LEFT - 60; at < box.width + 60; at += 7) {
    c.moveTo(at, 60);
    c.lineTo(at + 60, 0);
  }
  c.stroke();
  c.restore();
  for (const mark of line.marks) {
    const lane = LANES.indexOf(mark.lane);
    if (lane < 0 || mark.at_s < first) continue;
    const tall = Math.min(16, 7 + 3 * Math.log2(1 + mark.count));
    c.fillStyle = mark.level === "error" ? colour("bad") : mark.level === "warning" ? colour(mark.lane === "members" ? "bad" : "warn") : colour(mark.lane === "objects" ? "accent" : mark.lane === "members" ? "good" : "dim");
    c.fillRect(x(mark.at_s) - 1, lane * 20 + 18 - tall, 2, tall);
  }
  c.fillStyle = colour("dim");
  const count = Math.max(2, Math.floor((box.width - LEFT) / 150));
  for (let i = 0; i <= count; i++) {
    const at = first + ((last - first) * i) / count;
    const text = site.value?.mode === "recording" ? elapsed(at - first) : clock(at, last);
    c.textAlign = i === count ? "right" : i ? "center" : "left";
    c.fillText(text, x(at), 74);
  }
  c.textAlign = "left";
  c.fillStyle = colour("accent");
  c.fillRect(Math.min(x(past.value ?? last), box.width - 2), 0, 2, 60);
}
