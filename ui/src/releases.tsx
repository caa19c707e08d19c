// The board of releases: how far each has come, who signed, who tries and what was said; and orders for officers to sign.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { type Prepared, type Release, type Signed, type Vote, get } from "./api";
import { Close, Find, matches } from "./panels";
import { chosen, find, nowS, past, site, version, world } from "./state";
import { type Column, Table } from "./table";
import { clock, duration } from "./world";

const BAD = new Set(["halted", "revoked", "forked"]);
const tone = (one: Release) => (BAD.has(one.state) ? "bad" : one.state === "promoted" ? "good" : "warn");
const GRAVE: Record<string, number> = { FAIL: 0, NONE: 1, PASS: 2 };
const SAYS: Record<string, string> = { halt: "halted", "model-revoke": "revoked", force: "forced", floor: "closed by a floor" };
/** What was prepared here, by release: it stays while other panels are looked at. */
const orders = signal<Record<string, Prepared>>({});

const RELEASES: Column<Release>[] = [
  { name: "model", title: "model", cell: (one) => (one.is_desired ? <b title="what the fleet should run">{one.model}</b> : one.model), key: (one) => one.model },
  { name: "version", title: "v", number: true, isMostFirst: true, cell: (one) => one.version, key: (one) => -one.version },
  { name: "state", title: "state", cell: (one) => <span class={tone(one)}>{one.state}</span>, key: (one) => one.state },
  { name: "passes", title: "passes", number: true, cell: (one) => `${one.passes} / ${one.needed}`, key: (one) => one.passes },
  { name: "fails", title: "fails", number: true, isMostFirst: true, cell: (one) => <span class={one.fails ? "bad" : ""}>{one.fails}</span>, key: (one) => -one.fails },
];

const VOTES: Column<Vote>[] = [
  { name: "name", title: "node", cell: (one) => one.name, key: (one) => one.name },
  { name: "turn", title: "turn", cell: (one) => one.turn || "any", key: (one) => one.rank },
  { name: "runs", title: "runs", number: true, cell: (one) => one.runs || "–", key: (one) => one.runs },
  { name: "verdict", title: "says", cell: (one) => <span class={one.verdict === "FAIL" ? "bad" : one.verdict === "PASS" ? "good" : "dim"}>{one.verdict === "NONE" ? one.phase || "–" : one.verdict}</span>, key: (one) => GRAVE[one.verdict] ?? 3 },
  { name: "reason", title: "why", cell: (one) => <small title={`${one.reason}${one.heard_s === null ? "" : ` · heard ${clock(one.heard_s, nowS())}`}`}>{[one.heard_s === null ? "" : clock(one.heard_s, nowS()), one.reason].filter(Boolean).join(" ")}</small>, key: (one) => one.reason },
];

export function Releases() {
  void version.value;
  const held = world();
  const one = chosen.value?.kind === "release" ? held.release.get(chosen.value.id) : undefined;
  if (one) return <Board one={one} />;
  const needle = find.value.trim().toLowerCase();
  const all = [...held.release.values()];
  const rows = all.filter((row) => matches(needle, row.model, row.state, String(row.version), row.digest));
  return (
    <>
      <Find count={rows.length} all={all.length} what="releases" />
      <Table label="Releases" kind="releases" rows={rows} columns={RELEASES} first="version" chosen="" onChoose={(row) => { chosen.value = { kind: "release", id: row.id }; find.value = ""; }} empty="No release is known here: every node runs the model that its configuration names." />
    </>
  );
}

function Board({ one }: { one: Release }) {
  void version.value;
  const all = [...world().vote.values()].filter((vote) => vote.release === one.id);
  const needle = find.value.trim().toLowerCase();
  const votes = all.filter((vote) => matches(needle, vote.name, vote.turn, vote.verdict, vote.phase, vote.reason, vote.node));
  const running = all.filter((vote) => vote.runs === one.version).length;
  return (
    <>
      <section class="detail wide" aria-label="The chosen release">
        <header><h2>{one.model} {one.version} <span class={tone(one)}>{one.state}</span></h2><span class="space" /><Close /></header>
        <div class="dim">{one.digest.slice(0, 16)} · epoch {one.epoch}{one.is_desired ? " · what the fleet should run" : ""}</div>
        <ol class="stages" aria-label="Stages">
          {one.stages_percent.map((percent, index) => (
            <li key={percent} class={index < one.stage ? "done" : index === one.stage && !BAD.has(one.state) ? "open" : ""}>{percent} %{index < one.stage ? " passed" : index === one.stage && !BAD.has(one.state) ? " open" : ""}</li>
          ))}
        </ol>
        <dl>
          <dt>votes</dt><dd>{one.passes} of {one.needed} passes, <span class={one.fails ? "bad" : ""}>{one.fails} fails</span>; {one.fails_to_halt} halt it · stage of {one.cohort} of {one.nodes}</dd>
          {all.length ? <><dt>running it</dt><dd>{running} of {all.length}{all.length < one.nodes ? ` (of those that come first; ${one.nodes} in all)` : ""}</dd></> : null}
          {one.since_s === null ? null : <><dt>{one.state}</dt><dd>for {duration(nowS() - one.since_s)}</dd></>}
          <dt>signed</dt><dd>by {one.signers.join(", ") || "nobody known here"}{one.issued_s ? `, ${clock(one.issued_s, nowS())}` : ""}</dd>
          <dt>at this node</dt><dd>{one.chunks[0]} of {one.chunks[1]} pieces</dd>
        </dl>
        {one.statements.length ? <ul aria-label="What officers signed about it">{one.statements.map((signed) => <li key={`${signed.kind}${signed.issued_s}${signed.signers.join()}`}><Told signed={signed} /></li>)}</ul> : null}
        {past.value === null && site.value?.mode === "live" ? <Order one={one} running={running} /> : null}
      </section>
      <Find count={votes.length} all={all.length} what="votes" />
      <Table label="Votes" kind="votes" rows={votes} columns={VOTES} first="turn" chosen="" onChoose={() => undefined} empty={all.length ? "No vote has these letters." : "Votes are told of the newest releases of a model only."} />
    </>
  );
}

function Told({ signed }: { signed: Signed }) {
  return <><b class={signed.kind === "force" || signed.kind === "floor" ? "warn" : "bad"}>{SAYS[signed.kind] ?? signed.kind}{signed.stage === null ? "" : ` to stage ${signed.stage + 1}`}</b>{signed.issued_s ? ` ${clock(signed.issued_s, nowS())}` : ""} by {signed.signers.join(", ")}{signed.reason ? `: ${signed.reason}` : ""}</>;
}

/** Prepares an order; what is prepared here changes nothing until officers sign it elsewhere. */
function Order({ one, running }: { one: Release; running: number }) {
  const [what, setWhat] = useState("halt");
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState("");
  const made = orders.value[one.id];
  const stage = one.stage + 1;
  const ask = () => {
    setProblem("");
    get<Prepared>("releases/prepared", { what, model: one.model, release: one.digest, reason, stage })
      .then((told) => { orders.value = { ...orders.value, [one.id]: told }; }, (error: Error) => setProblem(error.message));
  };
  return (
    <>
      <form class="order" aria-label="Prepare an order" onSubmit={(event) => { event.preventDefault(); ask(); }}>
        <select aria-label="Order" value={what} onChange={(event) => setWhat(event.currentTarget.value)}>
          <option value="halt">halt</option><option value="revoke">revoke</option>
          {stage <= one.stages_percent.length ? <option value="force">{stage < one.stages_percent.length ? `force stage ${stage + 1}` : "force it everywhere"}</option> : null}
        </select>
        {what === "force" ? null : <input type="text" aria-label="Reason" placeholder="Reason, which everybody will read" maxLength={256} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />}
        <button type="submit">Prepare</button>
      </form>
      {problem ? <p class="bad" role="alert">{problem}</p> : null}
      {made ? <Made made={made} one={one} running={running} /> : null}
    </>
  );
}

function Made({ made, one, running }: { made: Prepared; one: Release; running: number }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const link = URL.createObjectURL(new Blob([made.text], { type: "application/octet-stream" }));
    setUrl(link);
    return () => URL.revokeObjectURL(link);
  }, [made]);
  const heard = one.statements.find((signed) => signed.kind === made.kind && signed.issued_s === made.issued_s);
  return (
    <div class="prepared" role="status">
      {made.does.map((line) => <p key={line}>{line}</p>)}
      {made.warnings.map((line) => <p key={line} class="warn">{line}</p>)}
      <p><b>Nobody has signed it.</b> It takes {made.need} of the role {made.role}: {made.keys.join(", ")}. Save it, carry it to their desks, and run:</p>
      <p><a href={url} download={made.name}>Save {made.name}</a></p>
      <pre>{made.commands.join("\n")}</pre>
      <p>{heard ? <b class="good">Heard: signed by {heard.signers.join(", ")}. {running} nodes still say that they run version {one.version}.</b> : <span class="dim">Not heard at this node so far.</span>}</p>
    </div>
  );
}
