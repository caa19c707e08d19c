// A table of any length: only the rows in the window are there; one tab stop, arrows move the choice.

import { type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Column<T> { name: string; title: string; number?: boolean; isMostFirst?: boolean; cell: (row: T) => ComponentChildren; key: (row: T) => string | number }
interface Props<T extends { id: string }> { label: string; kind: string; rows: T[]; columns: Column<T>[]; chosen: string; onChoose: (row: T) => void; height?: number; first: string; isDown?: boolean; empty: string }

export function Table<T extends { id: string }>({ label, kind, rows, columns, chosen, onChoose, height = 30, first, isDown = false, empty }: Props<T>) {
  const [by, setBy] = useState({ name: first, isDown });
  const [from, setFrom] = useState(0);
  const [high, setHigh] = useState(600);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const watcher = new ResizeObserver(() => setHigh(element.clientHeight));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  const column = columns.find((one) => one.name === by.name) ?? columns[0];
  const sorted = column ? ordered(rows, column.key, by.isDown) : rows;
  const at = sorted.findIndex((row) => row.id === chosen);
  const show = (index: number) => {
    const element = box.current, row = sorted[index];
    if (!element || !row) return;
    onChoose(row);
    if (index * height < element.scrollTop) element.scrollTop = index * height;
    else if ((index + 1) * height > element.scrollTop + element.clientHeight) element.scrollTop = (index + 1) * height - element.clientHeight;
  };
  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(high / height) - 1);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: Math.max(0, at - 1), PageDown: at + page, PageUp: at - page, Home: 0, End: sorted.length - 1 };
    const next = steps[event.key];
    if (next === undefined) return;
    event.preventDefault();
    show(Math.min(sorted.length - 1, Math.max(0, next)));
  };
  const begin = Math.max(0, Math.floor(from / height) - 4), end = Math.min(sorted.length, begin + Math.ceil(high / height) + 9);
  const nextBy = (name: string) => setBy(by.name === name ? { name, isDown: !by.isDown } : { name, isDown: false });
  return (
    <>
      <div class={`head ${kind}`}>
        {columns.map((one) => (
          <button key={one.name} type="button" tabIndex={-1} class={one.number ? "number" : ""} title={`sort by ${one.title}`}
            data-sorted={by.name === one.name ? (by.isDown === !one.isMostFirst ? "down" : "up") : undefined} onClick={() => nextBy(one.name)}>{one.title}</button>
        ))}
      </div>
      <div class="rows" role="listbox" aria-label={label} tabIndex={0} ref={box} onKeyDown={key} onScroll={(event) => setFrom(event.currentTarget.scrollTop)}
        aria-activedescendant={at >= begin && at < end ? `row-${kind}-${at}` : undefined}>
        {sorted.length === 0 && <div class="empty" role="option" aria-selected="false" aria-disabled="true">{empty}</div>}
        <div class="table" role="presentation" ref={(element) => { if (element) element.style.height = `${sorted.length * height}px`; }}>
          {sorted.slice(begin, end).map((row, index) => (
            <div key={row.id} id={`row-${kind}-${begin + index}`} role="option" aria-selected={row.id === chosen} aria-posinset={begin + index + 1} aria-setsize={sorted.length}
              class={`row ${kind}${row.id === chosen ? " chosen" : ""}`} onClick={() => onChoose(row)}
              ref={(element) => { if (element) element.style.top = `${(begin + index) * height}px`; }}>
              {columns.map((one) => <span key={one.name} class={one.number ? "number" : ""}>{one.cell(row)}</span>)}
            </div>
          ))}
        </div>
      </div>
    </>
  );
}

/** Rows by a key; equal keys by id, so that nothing jumps. */
export function ordered<T extends { id: string }>(rows: T[], key: (row: T) => string | number, isDown: boolean): T[] {
  const keys = new Map(rows.map((row) => [row, key(row)]));
  const sign = isDown ? -1 : 1;
  const order = (a: string | number, b: string | number) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return [...rows].sort((a, b) => sign * order(keys.get(a) ?? "", keys.get(b) ?? "") || (a.id < b.id ? -1 : 1));
}
