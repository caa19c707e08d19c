// What operators do: sign in with a key that never leaves this browser, review objects, act on members.
//
// The key is made here, cannot be read out (WebCrypto, not extractable), and lies in this browser's own store; its
// public half is handed over to officers, who name it in a root for the role operator. Every review is signed here.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { Member, Review as Said, Thing } from "./api";
import { chosen, nowS, past, site, tab, world } from "./state";
import { clock } from "./world";

interface Held { name: string; pair: CryptoKeyPair; raw: Uint8Array }
interface Session { token: string; operator: string; key: string }

/** Who is signed in, in this tab. */
const session = signal<Session | null>(read());
const held = signal<Held | null>(null);
/** What is being typed: the right label, or a note. */
const asking = signal<"relabel" | "note" | null>(null);
/** What the server said last. */
const told = signal<{ text: string; bad: boolean } | null>(null);
const busy = signal(false);
/** Letters of the verdicts. */
const KEYS: Record<string, string> = { c: "confirm", r: "reject", e: "relabel", n: "note", u: "withdraw" };

function read(): Session | null {
  try {
    return JSON.parse(sessionStorage.getItem("operator") ?? "null") as Session | null;
  } catch {
    return null;
  }
}

function enter(one: Session | null): void {
  session.value = one;
  if (one) sessionStorage.setItem("operator", JSON.stringify(one));
  else sessionStorage.removeItem("operator");
}

// --- the key --------------------------------------------------------------------------------------------------------

function store<T>(mode: IDBTransactionMode, work: (keys: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  return new Promise((done, fail) => {
    const opening = indexedDB.open("swarmd-operator", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    opening.onerror = () => fail(new Error("this browser keeps no keys here (a private window?)"));
    opening.onsuccess = () => {
      const asked = work(opening.result.transaction("keys", mode).objectStore("keys"));
      asked.onsuccess = () => { done(asked.result); opening.result.close(); };
      asked.onerror = () => { fail(new Error("this browser keeps no keys here (a private window?)")); opening.result.close(); };
    };
  });
}

async function make(name: string): Promise<void> {
  const pair = (await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])) as CryptoKeyPair;
  const raw = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  await store("readwrite", (keys) => keys.put({ name, pair, raw }, "operator"));
  held.value = { name, pair, raw };
}

const hex = (bytes: Uint8Array): string => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
const unhex = (text: string): Uint8Array<ArrayBuffer> => new Uint8Array((text.match(/../g) ?? []).map((two) => parseInt(two, 16)));

async function sign(message: string): Promise<string> {
  if (!held.value) throw new Error("this browser holds no operator's key");
  return hex(new Uint8Array(await crypto.subtle.sign("Ed25519", held.value.pair.privateKey, unhex(message))));
}

/** The public half as OpenSSH writes it, for officers. */
function line(one: Held): string {
  const part = (bytes: Uint8Array) => [0, 0, 0, bytes.length, ...bytes];
  const kind = "ssh-ed25519";
  return `${kind} ${btoa(String.fromCharCode(...part(new TextEncoder().encode(kind)), ...part(one.raw)))} ${one.name}`;
}

// --- the server -----------------------------------------------------------------------------------------------------

async function post<T>(path: string, body: object): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (session.value) headers["Authorization"] = `Bearer ${session.value.token}`;
  const answer = await fetch(`/api/v1/operator/${path}`, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store" });
  const said = (await answer.json()) as T & { error?: string };
  if (answer.status === 403 && path !== "login") enter(null);
  if (!answer.ok) throw new Error(said.error ?? `${path}: ${answer.status}`);
  return said;
}

async function attempt(work: () => Promise<string>): Promise<void> {
  if (busy.value) return;
  busy.value = true;
  told.value = null;
  try {
    told.value = { text: await work(), bad: false };
  } catch (error) {
    told.value = { text: (error as Error).message, bad: true };
  }
  busy.value = false;
}

const login = () => attempt(async () => {
  const one = held.value;
  if (!one) throw new Error("this browser holds no operator's key");
  const asked = await post<{ challenge: string; message: string }>("challenge", {});
  enter(await post<Session>("login", { public_key: hex(one.raw), challenge: asked.challenge, signature: await sign(asked.message), name: one.name }));
  return `signed in as ${one.name}`;
});

const logout = () => attempt(async () => {
  await post("logout", {});
  enter(null);
  return "signed out";
});

function say(one: Thing, verdict: string, text: string): void {
  void attempt(async () => {
    const shown = (one.reviews ?? []).map((said) => said.digest);
    const draft = await post<{ payload: string; message: string; words: string }>("draft", { object: one.id, verdict, text, shown });
    await post("review", { object: one.id, payload: draft.payload, signature: await sign(draft.message) });
    asking.value = null;
    return draft.words;
  });
}

/** A letter of the keyboard that reviews the chosen object; whether it was one. */
export function reviewKey(key: string): boolean {
  const verdict = KEYS[key];
  const one = tab.value === "objects" && chosen.value?.kind === "object" ? world().object.get(chosen.value.id) : undefined;
  if (!verdict || !one || !session.value || past.value !== null) return false;
  if (verdict === "relabel" || verdict === "note") asking.value = verdict;
  else say(one, verdict, "");
  return true;
}

// --- what is shown --------------------------------------------------------------------------------------------------

const WORDS: Record<string, string> = { confirm: "confirms", reject: "rejects", relabel: "says it is", withdraw: "has taken back what was said", note: "notes" };

function One({ said }: { said: Said }) {
  return (
    <li>
      <b title={`key ${said.key}`}>{said.operator}</b> {WORDS[said.verdict] ?? said.verdict} {said.verdict === "confirm" ? said.seen : said.text}
      <span class="dim"> · {clock(said.made_s, nowS())} · key {said.key}</span>
    </li>
  );
}

/** What operators say of an object, and the means to say something. */
export function Reviews({ one }: { one: Thing }) {
  useEffect(() => { asking.value = null; told.value = null; }, [one.id]);
  const said = one.reviews ?? []; // The history of an older version has none.
  const isLive = past.value === null && site.value?.mode === "live";
  return (
    <div class="reviews">
      {said.length ? <h3>{one.review === "disputed" ? <span class="bad">Operators disagree</span> : "Operators"}</h3> : null}
      <ul aria-label="What operators say">{said.map((row) => <One key={row.digest} said={row} />)}</ul>
      {isLive ? <Means one={one} /> : null}
      {told.value ? <p class={told.value.bad ? "bad" : "good"} role={told.value.bad ? "alert" : "status"}>{told.value.text}</p> : null}
    </div>
  );
}

function Means({ one }: { one: Thing }) {
  const [text, setText] = useState("");
  const at = asking.value;
  if (!session.value) return <SignIn why="review" />;
  const ask = (event: Event) => {
    event.preventDefault();
    say(one, at as string, text);
    setText("");
  };
  return (
    <>
      <div class="verdicts" role="group" aria-label="Review">
        {Object.entries(KEYS).map(([key, verdict]) => (
          <button key={key} type="button" tabIndex={key === "c" ? 0 : -1} disabled={busy.value} onClick={() => reviewKey(key)}>{verdict} <kbd>{key}</kbd></button>
        ))}
      </div>
      {at ? (
        <form class="order" onSubmit={ask}>
          <input type="text" ref={(input) => { if (input && document.activeElement !== input) input.focus(); }} aria-label={at === "note" ? "Note" : "Right label"} placeholder={at === "note" ? "Note, which everybody will read" : "What it is"} maxLength={at === "note" ? 256 : 64} value={text}
            onInput={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Escape") asking.value = null; }} />
          <button type="submit" disabled={busy.value}>Sign</button>
        </form>
      ) : null}
      <p class="dim">as {session.value.operator}, key {session.value.key} · <button type="button" class="link" tabIndex={-1} onClick={() => void logout()}>sign out</button></p>
    </>
  );
}

function SignIn({ why }: { why: string }) {
  const [name, setName] = useState("");
  useEffect(() => {
    store<Held | undefined>("readonly", (keys) => keys.get("operator") as IDBRequest<Held | undefined>).then((one) => { held.value = one ?? null; }, () => undefined);
  }, []);
  return (
    <details class="signin">
      <summary>Sign in to {why}</summary>
      {held.value ? (
        <>
          <p>This browser holds the key of <b>{held.value.name}</b>. Officers name it in a root for the role operator; this is its public half:</p>
          <pre aria-label="Public half">{line(held.value)}</pre>
          <button type="button" disabled={busy.value} onClick={() => void login()}>Sign in as {held.value.name}</button>
        </>
      ) : (
        <form class="order" onSubmit={(event) => { event.preventDefault(); void attempt(async () => { await make(name.trim()); return "the key is made; hand its public half to the officers"; }); }}>
          <p>A key is made in this browser and never leaves it.</p>
          <input type="text" aria-label="Your name" placeholder="Your name" required pattern="[A-Za-z0-9][A-Za-z0-9._\-]{0,31}" title="1 to 32 letters, digits, dots, dashes, underlines" value={name} onInput={(event) => setName(event.currentTarget.value)} />
          <button type="submit" disabled={busy.value}>Make a key</button>
        </form>
      )}
      {why === "act" && told.value ? <p class={told.value.bad ? "bad" : "good"} role="status">{told.value.text}</p> : null}
    </details>
  );
}

/** What an operator can do with a member. */
export function Acts({ one }: { one: Member }) {
  const [sure, setSure] = useState("");
  useEffect(() => { setSure(""); told.value = null; }, [one.id]);
  if (past.value !== null || site.value?.mode !== "live") return null;
  if (!session.value) return <SignIn why="act" />;
  const acts: [string, string, boolean][] = [
    ["dismiss", "dismiss", one.state === "failed"],
    ["away", "away for 10 min", one.state === "alive" || one.state === "degraded"],
    ["eye_start", "start its eye", one.capability !== "observer" && one.state !== "failed"],
    ["eye_stop", "stop its eye", one.capability !== "observer" && one.state !== "failed"],
  ];
  const act = (what: string) => {
    if (sure !== what) return setSure(what);
    setSure("");
    void attempt(async () => (await post<{ text: string }>("act", { what, member: one.name, seconds: 600 })).text);
  };
  return (
    <>
      <div class="verdicts" role="group" aria-label="Acts">
        {acts.filter(([, , is]) => is).map(([what, title], index) => (
          <button key={what} type="button" tabIndex={index ? -1 : 0} disabled={busy.value} onClick={() => act(what)}>{sure === what ? `really ${title}?` : title}</button>
        ))}
      </div>
      {told.value ? <p class={told.value.bad ? "bad" : "good"} role={told.value.bad ? "alert" : "status"}>{told.value.text}</p> : null}
    </>
  );
}
