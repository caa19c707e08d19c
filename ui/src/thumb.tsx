// Small pictures of what was seen: asked for when they are looked at, by the hash that their sighting names.

import { useEffect, useState } from "preact/hooks";
import { site } from "./state";

/** A picture that is on its way is asked for again so often, after so long. */
const TRIES = 4, AGAIN_MS = 2_500;

/** In a list it is decoration beside a name; in the details it has words of its own, also where it is not to be had. */
export function Thumb({ name, of }: { name: string; of?: string }) {
  const [turn, setTurn] = useState(0);
  const [isMissing, setMissing] = useState(false);
  useEffect(() => { setTurn(0); setMissing(false); }, [name]);
  useEffect(() => {
    if (!isMissing || turn + 1 >= TRIES) return;
    const timer = setTimeout(() => { setTurn(turn + 1); setMissing(false); }, AGAIN_MS);
    return () => clearTimeout(timer);
  }, [isMissing, turn]);
  // A recording names pictures and holds none.
  if (!/^[0-9a-f]{32}$/.test(name) || site.value?.mode !== "live") return null;
  if (isMissing) return of ? <p class="dim">Its picture is not to be had now: who made it cannot be reached, or keeps it no more.</p> : <span class="thumb" />;
  return <img class={of ? "picture" : "thumb"} alt={of ? `Picture of ${of}` : ""} loading="lazy" decoding="async" src={`/api/v1/thumb/${name}${turn ? `?turn=${turn}` : ""}`} onError={() => setMissing(true)} />;
}
