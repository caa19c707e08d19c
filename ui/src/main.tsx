// The page: header, map, panels, time. Keys: 1 to 6 panels, / find, j and k the next and the one before, space, l, 0.

import { effect } from "@preact/signals";
import { type JSX, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { SwarmMap, type Layers } from "./map";
import { Alerts, Events, Members, Objects, heard } from "./panels";
import { Network } from "./network";
import { Releases } from "./releases";
import { reviewKey } from "./review";
import { type Tab, chosen, goLive, isFirst, newestSeq, nowS, past, play, run, seek, serverNowS, silentSince, site, tab, timeline, version, world } from "./state";
import { TimelineBar } from "./timeline";
import { signal } from "@preact/signals";
import { clock, duration, hidden } from "./world";

const layers = signal<Layers>({ assets: true, cells: true, links: true, trails: true, objects: true, names: true });
const PANELS: Record<Tab, () => JSX.Element> = { objects: Objects, members: Members, events: Events, alerts: Alerts, releases: Releases, network: Network };
const TABS = Object.keys(PANELS) as Tab[];
let map: SwarmMap | null = null;

function Header() {
  void version.value;
  const [alive, all] = heard();
  const held = world(), at = site.value;
  const done = [...held.cell.values()].filter((one) => one.state === "done").length;
  const quietMs = silentSince.value;
  return (
    <header>
      <h1>swarmd ground</h1>
      <span class="pill">{at?.mode === "recording" ? "recording" : "swarm"} <b>{at?.title ?? "…"}</b></span>
      <span class="pill">as seen by <b>{at?.seen_by ?? "…"}</b></span>
      <span class="pill"><b class={alive < all ? "bad" : ""}>{alive}</b> of {all} heard</span>
      <span class="pill"><b>{held.object.size}</b> objects</span>
      {held.cell.size ? <span class="pill"><b>{done}</b> of {held.cell.size} cells done</span> : null}
      <span class="space" />
      {quietMs !== null ? <span class="pill bad" role="status">server does not answer, {duration((Date.now() - quietMs) / 1000)} old</span>
        : isFirst.value ? <span class="pill dim" role="status">loading</span>
        : at?.mode === "recording" ? <span class="pill warn">recording</span>
        : past.value === null ? <span class="pill good" role="status">receiving</span> : <span class="pill warn" role="status">past</span>}
    </header>
  );
}

function Notes() {
  void version.value;
  const at = site.value;
  if (!at || isFirst.value) return null;
  const cut = hidden(world(), at.seen_by, nowS());
  return (
    <div class="notes" role="status">
      {past.value !== null && at.mode === "live" ? <div class="note mild"><b>The past, {clock(past.value, serverNowS())}.</b> What happens meanwhile is not shown.</div> : null}
      {cut ? <div class={`note ${cut.grave ? "grave" : "mild"}`}><b>{cut.title}</b> {cut.text}</div> : null}
      {at.latitude_deg === null && at.mode === "live" ? <div class="note"><b>No mission origin.</b> Nothing has a place on this map: set `node.origin` as the drones have it.</div> : null}
    </div>
  );
}

/** One stop of the tab key; arrows move between the buttons. */
function rove(event: KeyboardEvent & { currentTarget: HTMLElement }): void {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (!step) return;
  const buttons = [...event.currentTarget.querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
  const next = buttons[(at + step + buttons.length) % buttons.length];
  for (const one of buttons) one.tabIndex = one === next ? 0 : -1;
  next?.focus();
  if (next?.getAttribute("role") === "tab") next.click();
  event.preventDefault();
}

function MapView() {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!canvas.current) return;
    const shown = () => (site.value ? { world: world(), site: site.value, nowS: nowS(), layers: layers.value, chosen: chosen.value?.kind === "release" ? null : chosen.value } : null);
    map = new SwarmMap(canvas.current, shown, (pick) => {
      chosen.value = pick;
      if (pick) tab.value = pick.kind === "object" ? "objects" : "members";
    });
    return effect(() => {
      void [version.value, layers.value, chosen.value, past.value, site.value];
      map?.ask();
    });
  }, []);
  return (
    <main class="map">
      <canvas ref={canvas} tabIndex={0} role="application" aria-label="Map: arrows move, plus and minus zoom, 0 shows everything" />
      <Notes />
      <div class="layers" role="toolbar" aria-label="Layers" onKeyDown={rove}>
        {(Object.keys(layers.value) as (keyof Layers)[]).map((name, index) => (
          <button key={name} type="button" tabIndex={index ? -1 : 0} aria-pressed={layers.value[name]} onClick={() => { layers.value = { ...layers.value, [name]: !layers.value[name] }; }}>{name}</button>
        ))}
      </div>
    </main>
  );
}

function Panels() {
  void version.value;
  const Shown = PANELS[tab.value];
  const count = [...world().alert.values()].filter((one) => !one.acknowledged_by).length;
  const title = (name: Tab) => `${name[0]?.toUpperCase()}${name.slice(1)}${name === "alerts" && count ? ` ${count}` : ""}`;
  return (
    <aside aria-label="What is known">
      <div role="tablist" aria-label="Panels" onKeyDown={rove}>
        {TABS.map((name) => (
          <button key={name} type="button" role="tab" id={`tab-${name}`} aria-controls="panel" aria-selected={tab.value === name} tabIndex={tab.value === name ? 0 : -1} onClick={() => { tab.value = name; }}>{title(name)}</button>
        ))}
      </div>
      <div role="tabpanel" id="panel" aria-labelledby={`tab-${tab.value}`}>
        <Shown />
      </div>
    </aside>
  );
}

function keys(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target instanceof HTMLInputElement && target.type !== "range") {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (target instanceof HTMLSelectElement) return;
  if (!(target instanceof HTMLButtonElement && event.key === " ") && reviewKey(event.key)) return event.preventDefault();
  const number = Number(event.key);
  if (number >= 1 && number <= TABS.length) tab.value = TABS[number - 1] as Tab;
  else if (event.key === "/") document.getElementById("find")?.focus();
  else if (event.key === " " && !(target instanceof HTMLButtonElement)) play();
  else if (event.key === "l") {
    if (site.value?.mode === "recording") void seek(timeline.value?.to_s ?? nowS());
    else goLive();
  } else if (event.key === "0" && target.tagName !== "CANVAS") map?.fit();
  else if (event.key === "j" || event.key === "k") {
    const list = document.querySelector<HTMLElement>("[role=listbox]");
    list?.dispatchEvent(new KeyboardEvent("keydown", { key: event.key === "j" ? "ArrowDown" : "ArrowUp" }));
  } else if (event.key === "Escape") chosen.value = null;
  else return;
  event.preventDefault();
}

function Page() {
  useEffect(() => effect(() => {
    const one = chosen.value;
    if (!one) return;
    const row = one.kind === "object" ? world().object.get(one.id) : one.kind === "member" ? world().position.get(one.id) : undefined;
    if (row) map?.centre(row.east_m, row.north_m);
  }), []);
  return <div class="page"><Header /><MapView /><Panels /><TimelineBar /></div>;
}

document.addEventListener("keydown", keys);
render(<Page />, document.getElementById("app") as HTMLElement);
void run();
/** What tests and the bench read; nothing here changes anything but the window onto the map. */
Object.assign(window, { ground: { world, trails: () => world().trails, seq: newestSeq, named: () => map?.named, spent: () => map?.spent, pan: (dx: number, dy: number) => map?.pan(dx, dy), zoom: (factor: number) => map?.zoom(factor), centre: (east: number, north: number) => map?.centre(east, north), fit: () => map?.fit(), paint: () => map?.paint(), past, silentSince, seek } });
