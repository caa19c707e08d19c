// Who hears whom, by every member's own word: a matrix of those with a link that is not good, and a list of such links.

import type { Member } from "./api";
import { Find, matches } from "./panels";
import { chosen, find, version, world } from "./state";
import { type Column, Table } from "./table";
import { HEARD } from "./world";

/** Members on a side of the matrix: more are unreadable. */
const SIDE_MAX = 24;
/** Links that a member's own row names at most. */
const ROW_MAX = 32;
const SIGNS: Record<string, string> = { good: "·", "heard-only": "✕", indirect: "↷", late: "◷", unknown: "?" };
const tone = (quality: string) => (quality === "heard-only" ? "bad" : quality === "good" ? "" : quality === "unknown" ? "dim" : "warn");

interface Link { id: string; from: Member; to: string; quality: string; back: string }

/** What one member says of its link to another. */
function says(from: Member, to: string): string {
  const told = from.row.find(([id]) => id === to)?.[1];
  if (told) return told;
  return HEARD.has(from.state) && from.row.length < ROW_MAX ? "good" : "unknown";
}

const LINKS: Column<Link>[] = [
  { name: "from", title: "says", cell: (one) => (HEARD.has(one.from.state) ? one.from.name : <span class="dim" title={`${one.from.state}: its last word`}>{one.from.name}</span>), key: (one) => one.from.name },
  { name: "to", title: "of", cell: (one) => one.to, key: (one) => one.to },
  { name: "quality", title: "link", cell: (one) => <span class={tone(one.quality)}>{one.quality}</span>, key: (one) => one.quality },
  { name: "back", title: "other way", cell: (one) => <span class={tone(one.back)}>{one.back}</span>, key: (one) => one.back },
];

export function Network() {
  void version.value;
  const members = world().member;
  const needle = find.value.trim().toLowerCase();
  const all: Link[] = [];
  for (const from of members.values()) {
    for (const [id, quality] of from.row) {
      const to = members.get(id);
      all.push({ id: `${from.id} ${id}`, from, to: to?.name ?? id.slice(0, 8), quality, back: to ? says(to, from.id) : "unknown" });
    }
  }
  const rows = all.filter((one) => matches(needle, one.from.name, one.to, one.quality, one.back));
  return (
    <>
      <Matrix needle={needle} />
      <Find count={rows.length} all={all.length} what="links" files={{ CSV: "links.csv" }} />
      <Table label="Links" kind="links" rows={rows} columns={LINKS} first="from" chosen={chosen.value?.id ?? ""} onChoose={(one) => { chosen.value = { kind: "member", id: one.from.id }; }} empty={all.length ? "No link has these letters." : "Every member that is heard says that its links are good."} />
    </>
  );
}

function Matrix({ needle }: { needle: string }) {
  void version.value;
  const members = world().member;
  const named = new Set<string>();
  for (const one of members.values()) {
    if (one.row.length) named.add(one.id);
    for (const [id] of one.row) named.add(id);
  }
  const pick = chosen.value?.kind === "member" ? chosen.value.id : "";
  if (pick) named.add(pick);
  const all = [...members.values()].filter((one) => one.state !== "left");
  const worst = (one: Member) => (one.id === pick ? -1e6 : 0) - one.row.length;
  const few = all.length <= SIDE_MAX ? all : all.filter((one) => named.has(one.id));
  const found = few.filter((one) => matches(needle, one.name, one.id)).sort((a, b) => worst(a) - worst(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
  const shown = found.slice(0, SIDE_MAX).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const left = all.length - shown.length;
  return (
    <div class="matrix" tabIndex={0} role="region" aria-label="Matrix of links">
      <p class="dim">A row is what that member says: · good, ✕ hears it and is not heard, ↷ only through others, ◷ late, ? not known.{left ? ` ${left} of ${all.length} are left out: those with the fewest bad links.` : ""}</p>
      <table aria-label="Who says what of whom">
        <thead><tr><td>says of</td>{shown.map((to) => <th key={to.id} scope="col" title={to.name}>{to.name}</th>)}</tr></thead>
        <tbody>
          {shown.map((from) => (
            <tr key={from.id}>
              <th scope="row" class={HEARD.has(from.state) ? "" : "dim"} title={HEARD.has(from.state) ? from.name : `${from.name} is ${from.state}: its last word`}>{from.name}</th>
              {shown.map((to) => {
                const quality = from.id === to.id ? "" : says(from, to.id);
                return <td key={to.id} class={tone(quality || "good")} title={quality ? `${from.name} says of ${to.name}: ${quality}` : from.name}>{quality ? SIGNS[quality] ?? "?" : ""}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
