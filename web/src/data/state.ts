// What is looked at, as one object, and how it is written in an address. Knows no browser.

/** An empty text, list or null means: not chosen, so that each run may choose for itself. */
export interface State {
  tab: string;
  runs: string[]; // numbers of the runs side by side
  model: string;
  condition: string;
  layer: number | null;
  head: number | null;
  metric: string;
  queries: string;
  view: string;
  band: string;
  first: boolean | null; // whether the first token is drawn
  x: [number, number] | null; // the part of the profile that is seen
  off: string[]; // conditions whose lines are off
  problem: string;
  by: string; // what the comparison is split by
  against: string; // what flips are held against
  temperature: string;
  start: number; // the first answer of the page
  text: string;
  verdict: string;
  only: string; // the condition whose answers are listed
  cls: string; // of tokens
  colour: string; // how the weights of one text become colours
}

/** How a value is read and written; what is written as nothing is left out. */
interface Form<T> {
  read: (text: string) => T;
  write: (value: T) => string;
}

const text: Form<string> = { read: (value) => value, write: (value) => value };
const whole: Form<number | null> = {
  read: (value) => (Number.isFinite(Number.parseInt(value, 10)) ? Number.parseInt(value, 10) : null),
  write: (value) => (value === null ? "" : String(value)),
};
const count: Form<number> = {
  read: (value) => Math.max(0, whole.read(value) ?? 0),
  write: (value) => (value ? String(value) : ""),
};
const yes: Form<boolean | null> = {
  read: (value) => (value === "" ? null : value === "1"),
  write: (value) => (value === null ? "" : value ? "1" : "0"),
};
/** Names that may hold any character. */
const names: Form<string[]> = {
  read: (value) => value.split(",").filter(Boolean).map(decoded),
  write: (value) => [...new Set(value)].map(encodeURIComponent).join(","),
};
const range: Form<[number, number] | null> = {
  read: (value) => {
    const ends = value.split("~").map((end) => (end === "" ? Number.NaN : Number(end)));
    return ends.length === 2 && ends.every(Number.isFinite) ? [ends[0], ends[1]] : null;
  },
  write: (value) => (value === null ? "" : value.map((end) => end.toFixed(1)).join("~")),
};

const FORMS: { [K in keyof State]: Form<State[K]> } = {
  tab: text,
  runs: names,
  model: text,
  condition: text,
  layer: whole,
  head: whole,
  metric: text,
  queries: text,
  view: text,
  band: text,
  first: yes,
  x: range,
  off: names,
  problem: text,
  by: text,
  against: text,
  temperature: text,
  start: count,
  text,
  verdict: text,
  only: text,
  cls: text,
  colour: text,
};
const KEYS = Object.keys(FORMS) as (keyof State)[];

/** The state that an address says; anything odd in it is as if it were not given. */
export function parse(hash: string): State {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  return Object.fromEntries(KEYS.map((key) => [key, FORMS[key].read(given.get(key) ?? "")])) as unknown as State;
}

/** The address of a state, without what is not chosen. */
export function print(state: State): string {
  const written = KEYS.map((key) => [key, formed(state, key)]).filter(([, value]) => value !== "");
  return new URLSearchParams(written).toString();
}

function formed<K extends keyof State>(state: State, key: K): string {
  return FORMS[key].write(state[key]);
}

/** Somebody may have cut an address in the middle of a character. */
function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
