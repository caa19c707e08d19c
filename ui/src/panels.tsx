// The panels beside the map: objects, members, events, alerts; and the details of what is chosen.

import { useEffect, useState } from "preact/hooks";
import { type Evidence, type Happening, type Member, type Position, type Thing, get } from "./api";
import { chosen, find, nowS, past, site, version, world } from "./state";
import { Acts, Reviews } from "./review";
import { type Column, Table, ordered } from "./table";
import { Thumb } from "./thumb";
import { HEARD, clock, duration } from "./world";

const metres = (value: number | null) => (value === null ? "–" : value.toFixed(1));
const percent = (value: number | null) => (value === null ? "–" : `${Math.round(value * 100)} %`);
export const matches = (needle: string, ...texts: string[]) => !needle || texts.some((text) => text.toLowerCase().includes(needle));
const tone = (state: string) => (state === "alive" ? "good" : state === "failed" ? "bad" : state === "left" || state === "away" ? "dim" : "warn");
/** Age in whole seconds; a `time` that screen readers need not repeat. */
const Age = ({ atS }: { atS: number }) => <>{duration(nowS() - atS)}</>;

const OBJECTS: Column<Thing>[] = [
  { name: "label", title: "label", cell: (one) => (one.thumb ? <><Thumb name={one.thumb} /> {one.label}</> : one.label), key: (one) => one.label },
  { name: "asset", title: "asset", cell: (one) => one.asset || "–", key: (one) => one.asset || "~" },
  { name: "score", title: "score", number: true, isMostFirst: true, cell: (one) => one.score.toFixed(2), key: (one) => -one.score },
  { name: "seen", title: "seen by", number: true, isMostFirst: true, cell: (one) => <span class={one.tier === "candidate" || one.review === "rejected" ? "warn" : "bad"}>{one.observers.length}</span>, key: (one) => -one.observers.length },
  { name: "age", title: "last", number: true, cell: (one) => <Age atS={one.last_seen_s} />, key: (one) => -one.last_seen_s },
];

interface Row extends Member { position: Position | undefined }
const MEMBERS: Column<Row>[] = [
  { name: "name", title: "name", cell: (one) => (one.is_self ? <b>{one.name}</b> : one.name), key: (one) => one.name },
  { name: "state", title: "state", cell: (one) => <span class={tone(one.state)}>{one.state}</span>, key: (one) => one.state },
  { name: "link", title: "link", cell: (one) => <span class={["good", "self", "relayed"].includes(one.quality) ? "" : "warn"}>{one.quality}</span>, key: (one) => one.quality },
  { name: "rtt", title: "rtt ms", number: true, cell: (one) => one.rtt_ms ?? "–", key: (one) => one.rtt_ms ?? 1e9 },
  { name: "battery", title: "batt.", number: true, cell: (one) => percent(one.position?.battery ?? null), key: (one) => one.position?.battery ?? 2 },
];

const choose = (kind: "object" | "member") => (row: { id: string }) => { chosen.value = { kind, id: row.id }; };

/** Files of what is listed, by the words of their links: one stop of the tab key, arrows move between them. */
export type Files = Record<string, string>;

function Downloads({ files }: { files: Files }) {
  const move = (event: KeyboardEvent & { currentTarget: HTMLElement }) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const links = [...event.currentTarget.querySelectorAll("a")];
    const next = links[(links.indexOf(document.activeElement as HTMLAnchorElement) + step + links.length) % links.length];
    for (const one of links) one.tabIndex = one === next ? 0 : -1;
    next?.focus();
    event.preventDefault();
  };
  return (
    <span class="files" role="toolbar" aria-label="Save as" onKeyDown={move}>
      {Object.entries(files).map(([words, name], index) => <a key={name} href={`/api/v1/export/${name}`} download tabIndex={index ? -1 : 0}>{words}</a>)}
    </span>
  );
}

export function Find({ count, all, what, files }: { count: number; all: number; what: string; files?: Files }) {
  return (
    <div class="bar">
      <input id="find" type="search" aria-label={`Find ${what}`} placeholder={`Find ${what}   /`} maxLength={80} value={find.value} onInput={(event) => { find.value = event.currentTarget.value; }} />
      <span class="dim" role="status">{count === all ? all : `${count} of ${all}`}</span>
      {files && past.value === null && <Downloads files={files} />}
    </div>
  );
}

export function Objects() {
  void version.value;
  const needle = find.value.trim().toLowerCase();
  const all = [...world().object.values()];
  const rows = all.filter((one) => matches(needle, one.label, one.asset, one.id, one.tier, ...one.observers));
  const one = chosen.value?.kind === "object" ? world().object.get(chosen.value.id) : undefined;
  return (
    <>
      {one ? <ObjectDetail one={one} /> : null}
      <Find count={rows.length} all={all.length} what="objects" files={{ CSV: "objects.csv", GeoJSON: "objects.geojson", KML: "findings.kml", KMZ: "findings.kmz", PDF: "findings.pdf" }} />
      <Table label="Objects" kind="objects" rows={rows} columns={OBJECTS} first="score" chosen={chosen.value?.id ?? ""} onChoose={choose("object")}
        empty={needle ? "Nothing has these letters." : "Nothing was found yet."} />
    </>
  );
}

function ObjectDetail({ one }: { one: Thing }) {
  void version.value; // Ages grow.
  const [evidence, setEvidence] = useState<Evidence[] | null>(null);
  const isPast = past.value !== null;
  useEffect(() => {
    setEvidence(null);
    if (isPast) return;
    const stop = new AbortController();
    get<Evidence[]>(`objects/${encodeURIComponent(one.id)}/evidence`, {}, stop.signal).then(setEvidence, () => undefined);
    return () => stop.abort();
  }, [one.id, one.reports, isPast]);
  const sigma = one.covariance_m2 ? 2 * Math.sqrt(Math.max(one.covariance_m2[0], one.covariance_m2[2])) : null;
  return (
    <section class="detail" aria-label="The chosen object">
      <header><h2>{one.label}</h2><span class="space" /><Close /></header>
      <div class="dim">{[one.asset, one.id].filter(Boolean).join(" · ")}</div>
      {one.thumb ? <Thumb name={one.thumb} of={one.label} /> : null}
      <dl>
        <dt>state</dt><dd class={one.tier === "candidate" || one.review === "rejected" ? "warn" : "bad"}>{one.review ? `${one.review} by operators, seen by ${one.observers.length}` : one.tier === "confirmed" ? `confirmed by ${one.observers.length}` : `candidate, seen by ${one.observers.length}`}{one.detected ? `; detected as ${one.detected}` : ""}</dd>
        <dt>score</dt><dd>{one.score.toFixed(2)}</dd>
        <dt>place</dt><dd>{one.east_m === null ? "none" : `${metres(one.east_m)} E ${metres(one.north_m)} N`}{sigma === null ? "" : ` ± ${sigma.toFixed(2)} m (2σ)`}</dd>
        <dt>seen by</dt><dd>{one.observers.join(", ")} · {one.reports} reports</dd>
        <dt>first, last</dt><dd>{clock(one.first_seen_s, nowS())} · <Age atS={one.last_seen_s} /> ago</dd>
      </dl>
      <Reviews one={one} />
      {evidence?.length ? <h3>Evidence</h3> : null}
      <ul>
        {evidence?.map((sighting) => (
          <li key={sighting.id}>
            <b>{sighting.node}</b> {sighting.label} {sighting.score.toFixed(2)} · {sighting.reports} reports · {clock(sighting.first_seen_s, nowS())}
            <span class="dim"> · model {sighting.model_digest.slice(0, 8) || "unknown"}</span>
            {sighting.thumb && sighting.thumb !== one.thumb ? <div><Thumb name={sighting.thumb} of={`${sighting.label} by ${sighting.node}`} /></div> : null}
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Members() {
  void version.value;
  const needle = find.value.trim().toLowerCase();
  const held = world();
  const all: Row[] = [...held.member.values()].map((one) => ({ ...one, position: held.position.get(one.id) }));
  const rows = all.filter((one) => matches(needle, one.name, one.state, one.quality, one.capability, one.version, one.id));
  const one = chosen.value?.kind === "member" ? all.find((row) => row.id === chosen.value?.id) : undefined;
  return (
    <>
      {one ? <MemberDetail one={one} /> : null}
      <Find count={rows.length} all={all.length} what="members" files={{ CSV: "members.csv" }} />
      <Table label="Members" kind="members" rows={rows} columns={MEMBERS} first="name" chosen={chosen.value?.id ?? ""} onChoose={choose("member")} empty="Nobody has these letters." />
    </>
  );
}

function MemberDetail({ one }: { one: Row }) {
  void version.value;
  const place = one.position;
  return (
    <section class="detail" aria-label="The chosen member">
      <header><h2>{one.name}</h2><span class="space" /><Close /></header>
      <div class="dim">{one.id.slice(0, 16)} · {one.capability} · swarmd {one.version || "unknown"}</div>
      <dl>
        <dt>state</dt><dd class={tone(one.state)}>{one.state}{one.since_s === null ? "" : ` for ${duration(nowS() - one.since_s)}`}</dd>
        <dt>position</dt><dd>{!place ? "never told" : `${metres(place.east_m)} E ${metres(place.north_m)} N, ${metres(place.height_agl_m)} m up ± ${place.sigma_m.toFixed(1)} m${place.has_fix ? "" : ", fix lost"}`}</dd>
        {place ? <><dt>told</dt><dd>{duration(nowS() - place.at_s)} ago</dd><dt>battery</dt><dd>{percent(place.battery)}</dd></> : null}
        <dt>link</dt><dd>{one.quality}{one.rtt_ms === null ? "" : ` · ${one.rtt_ms} ms`} · loss {percent(one.loss)}</dd>
        <dt>address</dt><dd>{one.address || "–"}</dd>
        <dt>trust</dt><dd>{one.root === null ? "not told" : `root ${one.root} · group key ${one.group_key ?? "–"} · certificate ${one.certificate ?? "–"}`}</dd>
      </dl>
      <Acts one={one} />
      {one.broken.length ? <h3>Broken links</h3> : null}
      <ul>{one.broken.map((said) => <li key={said} class="warn">{said}</li>)}</ul>
    </section>
  );
}

export const Close = () => <button type="button" class="close" aria-label="Close the details" onClick={() => { chosen.value = null; }}>×</button>;

export function Events() {
  void version.value;
  const needle = find.value.trim().toLowerCase();
  const all = [...world().event.values()];
  const rows = all.filter((one) => matches(needle, one.kind, one.origin, one.subject, one.reason, one.evidence, one.level));
  const columns: Column<Happening>[] = [
    { name: "time", title: "time", isMostFirst: true, cell: (one) => <span class="dim">{clock(one.at_s, nowS())}</span>, key: (one) => -one.at_s },
    { name: "what", title: "what happened", cell: (one) => <><b class={one.level}>{one.kind}</b> {one.subject} <span class="dim">at {one.origin}</span></>, key: (one) => one.kind },
    { name: "why", title: "", cell: (one) => <small title={`${one.reason} ${one.evidence}`}>{[one.reason, one.evidence].filter(Boolean).join(" · ")}</small>, key: (one) => one.reason },
  ];
  return (
    <>
      <Find count={rows.length} all={all.length} what="events" />
      <Table label="Events" kind="events" rows={rows} columns={columns} first="time" chosen={chosen.value?.id ?? ""} height={46} onChoose={() => undefined} empty="Nothing happened." />
    </>
  );
}

export function Alerts() {
  void version.value;
  const grave: Record<string, number> = { error: 0, warning: 1, info: 2 };
  const all = ordered([...world().alert.values()], (one) => (one.acknowledged_by ? 10 : 0) + (grave[one.level] ?? 3), false);
  return (
    <div class="alerts" tabIndex={0} role="region" aria-label="Alerts">
      {all.length === 0 ? <p class="empty">Nothing stands at {site.value?.seen_by ?? "this node"} that needs a person.</p> : null}
      {all.map((one) => (
        <article key={one.id} class={`alert ${one.level}${one.acknowledged_by ? " seen" : ""}`}>
          <b>{one.code}{one.subject ? ` · ${one.subject}` : ""}</b> <span class="dim">for <Age atS={one.since_s} /></span>
          <p>{one.text}.</p>
          <p class="dim">It means that {one.means}.</p>
          <p>{one.remedy}</p>
          {one.acknowledged_by ? <p class="dim">Seen by {one.acknowledged_by}{one.acknowledged_s === null ? "" : `, ${clock(one.acknowledged_s, nowS())}`}{one.acknowledged_note ? `: ${one.acknowledged_note}` : ""}</p>
            : past.value === null && site.value?.mode === "live" ? <p class="dim">Nobody has said that they saw it: <code>swarmd acknowledge {one.code}{one.subject ? ` '${one.subject.replaceAll("'", "")}'` : ""} --note '…'</code></p> : null}
        </article>
      ))}
    </div>
  );
}

/** Members that are heard, and all. */
export function heard(): [number, number] {
  void version.value;
  const members = [...world().member.values()].filter((one) => one.state !== "left");
  return [members.filter((one) => HEARD.has(one.state)).length, members.length];
}
