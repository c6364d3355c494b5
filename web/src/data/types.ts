// Written by `make page-types` from the *_types.py of fillerscope.report: change it there.

export const SCALES = ["ratio", "lambda", "difference", "change", "share"] as const;
export type Scale = (typeof SCALES)[number];

export const VERDICTS = ["right", "wrong", "no answer", "cut off", "failed"] as const;
export type Verdict = (typeof VERDICTS)[number];

export const DIRECTIONS = ["gained", "lost"] as const;
export type Direction = (typeof DIRECTIONS)[number];

/** A curve with its band. `style` and `dash` say which colour and which dashes, the same in every panel. */
export interface Line {
  label: string;
  condition?: string;
  style: number;
  dash: number;
  x: number[];
  y: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
  n?: (number | null)[];
}

/** Where the filler of a condition stands; `fixed`: at the same place in every problem. */
export interface Region {
  label: string;
  condition: string;
  style: number;
  dash: number;
  start: number;
  stop: number;
  fixed: boolean;
}

/** Curves over one axis. `zero`: the y axis begins at 0. `none`: the value of no change. */
export interface LinePanel {
  kind: "lines";
  title: string;
  x: string;
  y: string;
  series: Line[];
  zero: boolean;
  none: number | null;
  view?: string;
  regions?: Region[];
  tokens?: string[];
  steps?: boolean;
  edges?: number[];
  eps?: number;
}

/** A value with its interval. `published`: what a paper reports for it. */
export interface Bar {
  label: string;
  condition: string;
  style: number;
  dash?: number;
  value: number | null;
  low: number | null;
  high: number | null;
  n: number | null;
  note?: string;
  text?: string;
  published?: number | null;
}

export interface BarGroup {
  label: string;
  bars: Bar[];
}

/** Bars, or points, side by side in groups. */
export interface BarPanel {
  kind: "bars";
  title: string;
  y: string;
  groups: BarGroup[];
  none: number | null;
  mark: "bar" | "point";
}

/** Cells in rows and columns. `reach`: octaves that the colours span, where several maps share a scale. */
export interface MapPanel {
  kind: "map";
  title: string;
  down: string;
  across: string;
  rows: (string | number)[];
  columns: (string | number)[];
  scale: Scale;
  name: string;
  reach?: number;
  colour: ((number | null)[])[];
  value: ((number | null)[])[];
  low: ((number | null)[])[];
  high: ((number | null)[])[];
}

/** A condition against none; `name` is what it is called everywhere. The row that is sent has more columns, those of the table `accuracy`. */
export interface ComparisonRow {
  model: string;
  label: string;
  drawing: string;
  condition: string;
  name: string;
  group: string;
  temperature: number;
  samples: number;
  n: number;
  failed: number;
  accuracy: number | null;
  low: number | null;
  high: number | null;
  tokens: number | null;
  cut_off: number | null;
  unanswered: number | null;
  pairs: number;
  difference: number | null;
  difference_low: number | null;
  difference_high: number | null;
  gained: number;
  lost: number;
  p: number | null;
  adjusted: number | null;
  detectable: number | null;
  verdict: string;
}

/** Verdicts that changed against the first answers without filler: by rounding (none), or under a condition. */
export interface NoiseRow {
  model: string;
  label: string;
  drawing: string;
  temperature: number;
  samples: number;
  condition: string;
  name: string;
  way: string;
  n: number;
  answers: number;
  flips: number;
  share: number | null;
  low: number | null;
  high: number | null;
  texts: number;
  pairs: number;
  rounding: number | null;
  difference: number | null;
  difference_low: number | null;
  difference_high: number | null;
  p: number | null;
  adjusted: number | null;
  verdict: string;
}

/** `fields`: what the table can be split by. */
export interface Comparison {
  rows: ComparisonRow[];
  fields: string[];
  noise: NoiseRow[];
}

/** One answer with its grade. */
export interface Side {
  id: string;
  verdict: Verdict;
  finish: string;
  tokens: number;
  extracted: string;
  note: string;
  text: string;
}

/** A problem whose verdict changed, with both answers. */
export interface Flip {
  id: string;
  sample: number;
  direction: Direction;
  question: string;
  reference: string;
  before: Side;
  after: Side;
}

export interface Flips {
  condition: string;
  against: string;
  flips: Flip[];
}

export interface Answer {
  id: string;
  verdict: Verdict;
  finish: string;
  tokens: number;
  extracted: string;
  note: string;
  text: string;
  condition: string;
  sample: number;
  question: string;
  reference: string;
}

/** Some of `total` answers, from number `start` on. */
export interface Transcripts {
  total: number;
  start: number;
  answers: Answer[];
}

/** A problem in a list; its question is shortened. */
export interface ProblemName {
  number: number;
  id: string;
  question: string;
}

/** A model of the run; layers and heads are 0 until the first shard is stored. */
export interface Model {
  name: string;
  label: string;
  layers: number;
  heads: number;
  measured: number;
  failed: number;
  problems: ProblemName[];
}

export interface Condition {
  name: string;
  label: string;
  recipe: string;
  filler: boolean;
  style: number;
  dash: number;
}

/** A measure of heads that a map can show. */
export interface Metric {
  name: string;
  label: string;
  scale: Scale;
}

/** What the run measured. */
export interface Has {
  attention: boolean;
  answers: boolean;
  affine: boolean;
  activations: boolean;
  answering: boolean;
}

/** A run, as far as it does not change while it is measured. */
export interface Overview {
  name: string;
  folder: string;
  data: string;
  main: string | null;
  models: Model[];
  conditions: Condition[];
  queries: string[];
  skip_first: boolean;
  metrics: Metric[];
  has: Has;
  classes: string[];
  temperatures: number[];
}

export interface Stage {
  model: string;
  stage: string;
  done: number;
  total: number | null;
}

/** `landed`: when the last file was written, in seconds since the epoch. */
export interface Progress {
  finished: boolean;
  stages: Stage[];
  landed: number;
}

/** With how far the run is. `checked` is empty while files are still compared with their checksums. */
export interface RunOverview {
  name: string;
  folder: string;
  data: string;
  main: string | null;
  models: Model[];
  conditions: Condition[];
  queries: string[];
  skip_first: boolean;
  metrics: Metric[];
  has: Has;
  classes: string[];
  temperatures: number[];
  version: string;
  progress: Progress;
  checked: string;
  damaged: boolean;
}

/** The runs that can be shown, by label and by the number that their addresses have, and why others cannot. */
export interface Runs {
  runs: string[];
  numbers: number[];
  overviews: RunOverview[];
  unreadable: string[];
}

/** The text at each position: without filler, and of whole prompts by condition. */
export interface Tokens {
  aligned: string[];
  whole: Record<string, string[]>;
  regions: Region[];
}

/** Of packed maps of heads: how many problems they are over. */
export interface MapHeader {
  n: number;
  condition: string;
  queries: string;
}

/** Of packed profiles: `reach` is, by condition, the first position that fewer than two problems have. */
export interface ProfileHeader {
  layer: number;
  head: number;
  queries: string;
  view: string;
  reach: Record<string, number>;
  note?: string;
  tokens?: Record<string, string[]>;
}

/** Of a packed matrix of one head: `filler` is where the filler stands, from and up to, null where there is none. */
export interface MatrixHeader {
  id: string;
  condition: string;
  layer: number;
  head: number;
  tokens: string[];
  filler: [number, number] | null;
  note: string;
}

/** Why one problem cannot be measured again here; empty where it can. */
export interface Ready {
  reason: string;
}

export interface Estimate {
  value: number | null;
  low: number | null;
  high: number | null;
  n: number | null;
}

export interface Finding {
  name: string;
  line: string;
  text: string;
  numbers: Record<string, number | null>;
  table: string;
  verdict: string | null;
  reason: string;
  condition: string;
  estimates: Record<string, Estimate>;
}

export interface Headline {
  model: string;
  label: string;
  subject: string;
  lines: string[];
  verdict: string;
  tone: "change" | "no change" | "cannot be told";
  facts: ([string, string, string])[];
  left_out: string[];
}

export interface ModelFindings {
  model: string;
  label: string;
  headline: Headline;
  findings: Finding[];
}

export interface Section {
  title: string;
  paragraphs: string[];
  facts: ([string, string])[];
  code: string;
}

/** The sections, and all of them as Markdown. */
export interface Methods {
  sections: Section[];
  text: string;
}

export interface Refusal {
  error: string;
}

/** The first of `total` flips of a condition; `before` and `after` are labels. */
export interface ConditionFlips {
  model: string;
  before: string;
  after: string;
  total: number;
  flips: Flip[];
}

export interface Report {
  figures: Record<string, (LinePanel | BarPanel | MapPanel)[]>;
  comparison: ComparisonRow[];
  noise: NoiseRow[];
  flips: ConditionFlips[];
}

export type Panel = LinePanel | BarPanel | MapPanel;
