// Where numbers come from: the server of the explorer. Answers are kept, and forgotten when the run has grown.

export interface Condition {
  name: string;
  label: string;
  recipe: string;
  filler: boolean;
}

export interface Model {
  name: string;
  label: string;
  layers: number;
  heads: number;
  measured: number;
  failed: number;
  problems?: { number: number; id: string }[];
}

interface Stage {
  model: string;
  stage: string;
  done: number;
  total: number | null;
}

interface Progress {
  finished: boolean;
  stages: Stage[];
  landed: number; // seconds since the epoch
}

export interface Overview {
  name: string;
  folder: string;
  data: string;
  main: string | null;
  models: Model[];
  conditions: Condition[];
  queries: string[];
  skip_first: boolean;
  metrics: { name: string; label: string; scale: string }[];
  has: { attention: boolean; answers: boolean; affine: boolean; activations: boolean; answering: boolean };
  classes: string[];
  temperatures: number[];
  version: string;
  progress: Progress;
  checked: string; // what became of checking the files: "" while it is under way
  damaged: boolean; // no number of the run can be trusted
}

export interface Packed {
  header: Record<string, unknown>;
  arrays: Map<string, { shape: number[]; values: Float32Array }>;
}

type Parameters = Record<string, string | number | undefined>;
const KEPT = 300; // answers

export class Api {
  private readonly kept = new Map<string, Promise<unknown>>();

  constructor(readonly run: number) {}

  json<T>(path: string, parameters: Parameters = {}): Promise<T> {
    return this.ask(path, parameters, (answer) => answer.json()) as Promise<T>;
  }

  packed(path: string, parameters: Parameters = {}): Promise<Packed> {
    return this.ask(path, parameters, async (answer) => unpack(await answer.arrayBuffer())) as Promise<Packed>;
  }

  forget(): void {
    this.kept.clear();
  }

  address(path: string, parameters: Parameters = {}): string {
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
    const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)]));
    return `/api/${this.run}/${path}${given.length ? `?${query}` : ""}`;
  }

  private ask(path: string, parameters: Parameters, read: (answer: Response) => Promise<unknown>): Promise<unknown> {
    const address = this.address(path, parameters);
    const before = this.kept.get(address);
    if (before) return before;
    const asked = fetch(address).then(async (answer) => {
      if (answer.ok) return read(answer);
      const told = await answer.json().catch(() => ({}));
      throw new Error(told.error ?? `the server answered ${answer.status}`);
    });
    asked.catch(() => this.kept.delete(address));
    this.kept.set(address, asked);
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value!);
    return asked;
  }
}

/** A header of JSON and arrays of floats, as `report/packed.py` writes them. */
function unpack(data: ArrayBuffer): Packed {
  const view = new DataView(data);
  if (view.getUint32(0, false) !== 0x46534231) throw new Error("these are not packed numbers");
  const length = view.getUint32(4, true);
  const { arrays: shapes, ...header } = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 8, length)));
  const arrays = new Map<string, { shape: number[]; values: Float32Array }>();
  let at = 8 + length;
  for (const [name, shape] of Object.entries(shapes as Record<string, number[]>)) {
    const size = shape.reduce((product, one) => product * one, 1);
    arrays.set(name, { shape, values: new Float32Array(data, at, size) });
    at += 4 * size;
  }
  return { header, arrays };
}
