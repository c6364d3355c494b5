// Answers of the explorer's server. They are kept, and forgotten when the run has grown.

import { permission } from "../ui/permission";
import { authorization } from "./token";
import type { Refusal } from "./types";

export interface Packed<Header> {
  header: Header;
  arrays: Map<string, { shape: number[]; values: Float32Array }>;
}

type Parameters = Record<string, string | number | undefined>;
type Read = (answer: Response) => Promise<unknown>;
const KEPT = 300; // answers

export class Api {
  private readonly kept = new Map<string, Promise<unknown>>();
  private measuring = new AbortController();

  constructor(readonly run: number) {}

  json<T>(path: string, parameters: Parameters = {}): Promise<T> {
    return this.ask(path, parameters, (answer) => answer.json()) as Promise<T>;
  }

  packed<Header>(path: string, parameters: Parameters = {}): Promise<Packed<Header>> {
    return this.ask(path, parameters, packedOf) as Promise<Packed<Header>>;
  }

  /** Packed numbers that a model is run for. What was asked for before and has not come is given up. */
  measured<Header>(path: string, parameters: Parameters): Promise<Packed<Header>> {
    const address = this.address(path, parameters);
    return this.keep(address, () => {
      this.measuring.abort();
      this.measuring = new AbortController();
      const { signal } = this.measuring;
      return permission().then(() => answered(address, packedOf, { method: "POST", signal }));
    }) as Promise<Packed<Header>>;
  }

  blob(path: string): Promise<Blob> {
    return answered(this.address(path), (answer) => answer.blob()) as Promise<Blob>;
  }

  forget(): void {
    this.kept.clear();
  }

  address(path: string, parameters: Parameters = {}): string {
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
    const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
    return `/api/${this.run}/${path}${query ? `?${query}` : ""}`;
  }

  private ask(path: string, parameters: Parameters, read: Read): Promise<unknown> {
    const address = this.address(path, parameters);
    return this.keep(address, () => answered(address, read));
  }

  private keep(address: string, ask: () => Promise<unknown>): Promise<unknown> {
    const before = this.kept.get(address);
    if (before) return before;
    const asked = ask();
    this.kept.set(address, asked);
    asked.catch(() => this.kept.get(address) === asked && this.kept.delete(address));
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value!);
    return asked;
  }
}

const packedOf: Read = async (answer) => unpack(await answer.arrayBuffer());

async function answered(address: string, read: Read, options: RequestInit = {}): Promise<unknown> {
  const answer = await fetched(address, options);
  return answer.ok ? read(answer) : refuse(answer);
}

/** What the server answers; an error that says what to do where it does not. */
export async function fetched(address: string, options: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(address, { ...options, headers: authorization() });
  } catch {
    throw new Error(
      "The explorer does not answer: see whether `fillerscope view` is still running, then reload this page.",
    );
  }
}

/** Throws what the server says is wrong. */
export async function refuse(answer: Response): Promise<never> {
  const { error } = (await answer.json().catch(() => ({}))) as Partial<Refusal>;
  throw new Error(error ?? `the server answered ${answer.status}`);
}

/** A header of JSON and arrays of floats, as `report/packed_arrays.py` writes them. */
export function unpack(data: ArrayBuffer): Packed<unknown> {
  const view = new DataView(data);
  if (view.getUint32(0, false) !== 0x46534231) throw new Error("these are not packed numbers");
  const length = view.getUint32(4, true);
  const text = new TextDecoder().decode(new Uint8Array(data, 8, length));
  const { arrays: shapes, ...header } = JSON.parse(text) as { arrays: Record<string, number[]> };
  const arrays: Packed<unknown>["arrays"] = new Map();
  let at = 8 + length;
  for (const [name, shape] of Object.entries(shapes)) {
    const size = shape.reduce((product, one) => product * one, 1);
    arrays.set(name, { shape, values: new Float32Array(data, at, size) });
    at += 4 * size;
  }
  return { header, arrays };
}
